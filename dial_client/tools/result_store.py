"""Stores the full text of results that are too long for the model, which can read pages of them or search them."""

from __future__ import annotations

import secrets
from collections import OrderedDict

MAX_CHARS = 32_000_000
"""Maximum characters of all texts together; above it, the least recently read text is dropped."""
MAX_MATCHES = 20
_CONTEXT = 150
"""Characters shown on both sides of a match."""


class ResultStore:
    """Texts with random ids, so that conversations that share a client cannot read each other's texts.

    The texts are kept in memory only, and lost when the client ends.
    """

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def __len__(self) -> int:
        return len(self._texts)

    def keep(self, text: str) -> str | None:
        """Store a text, and return its id; None if the text alone exceeds the size of the store."""
        if len(text) > self._max_chars:
            return None
        key = secrets.token_hex(6)
        self._texts[key] = text
        self._size += len(text)
        while self._size > self._max_chars:
            _, dropped = self._texts.popitem(last=False)
            self._size -= len(dropped)
        return key

    def read_page(self, key: str, offset: int, length: int) -> str | None:
        """Return a page below a line with its offsets and the offset of the next page; None if the text is not stored.

        Args:
            key: The id that `keep` returned.
            offset: Characters before the page; a negative number counts from the end.
            length: Characters of the page.
        """
        text = self._find(key)
        if text is None:
            return None
        begin = max(0, len(text) + offset) if offset < 0 else min(offset, len(text))
        end = min(begin + length, len(text))
        next_page = f"; the next page begins at offset {end}" if end < len(text) else "; this is the end"
        return f"[characters {begin:,} to {end:,} of {len(text):,}{next_page}]\n{text[begin:end]}"

    def find_matches(self, key: str, words: str, length: int) -> str | None:
        """Return the first matches of some words, ignoring case, with the text around them; None if no text is stored.

        Args:
            key: The id that `keep` returned.
            words: The exact words to find, not a pattern.
            length: Maximum characters of the returned text.
        """
        text = self._find(key)
        if text is None:
            return None
        places = _find_places(text, words)
        if not places:
            return f"[{words!r} is not in these {len(text):,} characters]"
        shown: list[str] = []
        room = length
        for at in places[:MAX_MATCHES]:
            around = text[max(0, at - _CONTEXT) : at + len(words) + _CONTEXT]
            shown.append(f"[offset {at}] …{' '.join(around.split())}…")
            room -= len(shown[-1])
            if room <= 0:
                break
        more = f", the first {len(shown)} of them" if len(shown) < len(places) else ""
        return "\n".join([f"[{len(places):,} places{more}]", *shown])[:length]

    def _find(self, key: str) -> str | None:
        text = self._texts.get(key)
        if text is not None:
            self._texts.move_to_end(key)
        return text


def _find_places(text: str, words: str) -> list[int]:
    """Return the offsets of all matches that do not overlap. Case counts if lower case changes the text's length."""
    lowered, looked_for = text.lower(), words.lower()
    if len(lowered) != len(text):
        lowered, looked_for = text, words
    places: list[int] = []
    at = lowered.find(looked_for) if looked_for else -1
    while at >= 0:
        places.append(at)
        at = lowered.find(looked_for, at + len(looked_for))
    return places

"""Whole results that were too long for the model: kept aside, read page by page or searched."""

from __future__ import annotations

import secrets
from collections import OrderedDict

MAX_CHARS = 32_000_000
"""Characters of all texts together; the one that was not read for longest goes first."""
MAX_MATCHES = 20
_CONTEXT = 150
"""Characters shown on both sides of a match."""


class ResultStore:
    """Texts under ids nobody can guess: conversations that share a client cannot read each other's.

    Nothing is written to a disk, and all of it is gone with the client.
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
        """Put a text on the shelf, and give its id; None for one that is longer than the whole shelf."""
        if len(text) > self._max_chars:
            return None
        key = secrets.token_hex(6)
        self._texts[key] = text
        self._size += len(text)
        while self._size > self._max_chars:
            _, gone = self._texts.popitem(last=False)
            self._size -= len(gone)
        return key

    def page(self, key: str, offset: int, length: int) -> str | None:
        """Give a page with a line that says which, and where the next begins; None for a text that is not here.

        Args:
            key: what `keep` gave.
            offset: characters before the page; a negative one counts from the end.
            length: characters of the page.
        """
        text = self._found(key)
        if text is None:
            return None
        begin = max(0, len(text) + offset) if offset < 0 else min(offset, len(text))
        end = min(begin + length, len(text))
        next_page = f"; the next page begins at offset {end}" if end < len(text) else "; this is the end"
        return f"[characters {begin:,} to {end:,} of {len(text):,}{next_page}]\n{text[begin:end]}"

    def matches(self, key: str, wanted: str, length: int) -> str | None:
        """Give where some words stand, whatever their case, with what is around them; None for a text not here.

        Args:
            key: what `keep` gave.
            wanted: words as they stand in the text; no pattern.
            length: characters of all that is shown.
        """
        text = self._found(key)
        if text is None:
            return None
        places = _places(text, wanted)
        if not places:
            return f"[{wanted!r} is not in these {len(text):,} characters]"
        shown: list[str] = []
        room = length
        for at in places[:MAX_MATCHES]:
            around = text[max(0, at - _CONTEXT) : at + len(wanted) + _CONTEXT]
            shown.append(f"[offset {at}] …{' '.join(around.split())}…")
            room -= len(shown[-1])
            if room <= 0:
                break
        more = f", the first {len(shown)} of them" if len(shown) < len(places) else ""
        return "\n".join([f"[{len(places):,} places{more}]", *shown])[:length]

    def _found(self, key: str) -> str | None:
        text = self._texts.get(key)
        if text is not None:
            self._texts.move_to_end(key)
        return text


def _places(text: str, wanted: str) -> list[int]:
    """Find all places, those that overlap counted once. Lower case may be longer: then case matters."""
    lowered, looked_for = text.lower(), wanted.lower()
    if len(lowered) != len(text):
        lowered, looked_for = text, wanted
    places: list[int] = []
    at = lowered.find(looked_for) if looked_for else -1
    while at >= 0:
        places.append(at)
        at = lowered.find(looked_for, at + len(looked_for))
    return places

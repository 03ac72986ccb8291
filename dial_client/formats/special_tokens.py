"""Strings that mean something to a model's template, and where the next of them is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Protocol

CONTROL = r"<[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>"
"""A template's own token, such as ``<|im_end|>``: never a part of what people read."""

_TOKEN_PART = re.compile(r"`?(?:<(?:[|\uff5c][^\s<>|\uff5c]{0,64}+[|\uff5c]?)?)?\Z")
_LONGEST_TOKEN = 69


class Marked(Protocol):
    """Says where in a text the next marker is."""

    @property
    def first(self) -> Callable[[str], object]:
        """Say whether a text has any character with which a marker could begin."""
        ...

    def search(self, text: str, at: int, *, fresh: bool) -> re.Match[str] | None:
        """Find the first whole marker from `at` on; `fresh`: there a line begins, whatever stands before it."""
        ...

    def held(self, text: str, at: int, *, fresh: bool) -> int:
        """Give how many characters at the end of the text, from `at` on, may be the beginning of a marker."""
        ...


class Markers:
    """Markers that are plain strings, none of them the beginning of another; what finds them is made when it is needed.

    Args:
        markers: the strings; the first character of one stands only at the beginning of it, perhaps several times.
        tokens: a template's own tokens are markers too, known or not.
        in_code: each marker is another one with a backtick before it.
    """

    def __init__(self, *markers: str, tokens: bool = False, in_code: bool = False) -> None:
        self._markers = markers
        self._tokens = tokens
        self._in_code = in_code

    @cached_property
    def _known(self) -> frozenset[str]:
        in_code = (f"`{marker}" for marker in self._markers if self._in_code and marker[0] != "`")
        return frozenset((*self._markers, *in_code))

    @cached_property
    def pattern(self) -> str:
        """All of them, as a regular expression."""
        parts = [_alternatives(self._known)]
        if self._tokens:
            parts.append(f"`?{CONTROL}" if self._in_code else CONTROL)
        return "|".join(parts)

    @cached_property
    def leads(self) -> str:
        """The characters with which they begin."""
        more = ("<" if self._tokens else "") + ("`" if self._in_code else "")
        return "".join(sorted({marker[0] for marker in self._known} | set(more)))

    @cached_property
    def first(self) -> Callable[[str], object]:
        """Say whether a text has any character with which a marker could begin."""
        return re.compile(f"[{re.escape(self.leads)}]").search

    @cached_property
    def _search(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(self.pattern).search

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(marker[:length] for marker in self._known for length in range(1, len(marker)))

    @cached_property
    def _longest(self) -> int:
        return max([_LONGEST_TOKEN if self._tokens else 0, *map(len, self._known)])

    def search(self, text: str, at: int, *, fresh: bool = False) -> re.Match[str] | None:  # noqa: ARG002 - see `Marked`
        """Find the first whole marker from `at` on."""
        return self._search(text, at)

    def held(self, text: str, at: int, *, fresh: bool = False) -> int:  # noqa: ARG002 - see `Marked`
        """Give how many characters at the end of the text, from `at` on, may be the beginning of a marker."""
        size = len(text)
        begin = max(at, size - self._longest)
        held = 0
        for lead in self.leads:
            place = text.rfind(lead, begin)
            while place >= begin and self._may_begin(text, place):
                held = max(held, size - place)
                place = place - 1 if text[place - 1 : place] == lead else -1
        return held

    def _may_begin(self, text: str, place: int) -> bool:
        return text[place:] in self._beginnings or (self._tokens and _TOKEN_PART.match(text, place) is not None)


def _alternatives(strings: Iterable[str]) -> str:
    """Write a pattern for any of the strings that looks at no character twice."""
    tails: dict[str, set[str]] = {}
    for string in strings:
        tails.setdefault(string[:1], set()).add(string[1:])
    parts = []
    for first in sorted(tails):
        rest = tails[first]
        parts.append(re.escape(first) + ("" if rest == {""} else _alternatives(rest)))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"

"""Markers, which are strings with a meaning in a model's chat template, and the search for them in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Protocol

CONTROL = r"<[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>"
"""Matches a special token of a chat template, such as ``<|im_end|>``, which is never shown to the user."""

_TOKEN_PART = re.compile(r"`?(?:<(?:[|\uff5c][^\s<>|\uff5c]{0,64}+[|\uff5c]?)?)?\Z")
_LONGEST_TOKEN = 69


class MarkerMatcher(Protocol):
    """Finds the next marker in a text."""

    @property
    def has_lead(self) -> Callable[[str], object]:
        """A function that returns None for a text without any character that could begin a marker."""
        ...

    def search(self, text: str, start: int, *, at_line_start: bool) -> re.Match[str] | None:
        """Return the first complete marker from `start` on.

        Args:
            text: The text to search.
            start: The index at which the search begins.
            at_line_start: True if `start` counts as the start of a line, whatever the text before it.
        """
        ...

    def count_partial(self, text: str, start: int, *, at_line_start: bool) -> int:
        """Return the number of characters at the end of the text, from `start` on, that may begin a marker."""
        ...


class Markers:
    """Markers that are plain strings, none of them a prefix of another. Patterns are compiled on first use.

    Args:
        markers: The strings. The first character of a marker occurs only at its beginning, perhaps several times.
        tokens: True if all special tokens of chat templates are markers too, even unknown ones.
        in_code: True if each marker with a backtick before it is a marker too.
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
        """A regular expression for all markers."""
        parts = [_build_pattern(self._known)]
        if self._tokens:
            parts.append(f"`?{CONTROL}" if self._in_code else CONTROL)
        return "|".join(parts)

    @cached_property
    def leads(self) -> str:
        """The characters with which markers begin."""
        extra_leads = ("<" if self._tokens else "") + ("`" if self._in_code else "")
        return "".join(sorted({marker[0] for marker in self._known} | set(extra_leads)))

    @cached_property
    def has_lead(self) -> Callable[[str], object]:
        """A function that returns None for a text without any character that could begin a marker."""
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

    def search(
        self,
        text: str,
        start: int,
        *,
        at_line_start: bool = False,  # noqa: ARG002 - required by `MarkerMatcher`
    ) -> re.Match[str] | None:
        """Return the first complete marker from `start` on."""
        return self._search(text, start)

    def count_partial(self, text: str, start: int, *, at_line_start: bool = False) -> int:  # noqa: ARG002 - as above
        """Return the number of characters at the end of the text, from `start` on, that may begin a marker."""
        size = len(text)
        begin = max(start, size - self._longest)
        partial = 0
        for lead in self.leads:
            index = text.rfind(lead, begin)
            while index >= begin and self._may_begin(text, index):
                partial = max(partial, size - index)
                index = index - 1 if text[index - 1 : index] == lead else -1
        return partial

    def _may_begin(self, text: str, index: int) -> bool:
        return text[index:] in self._beginnings or (self._tokens and _TOKEN_PART.match(text, index) is not None)


def _build_pattern(strings: Iterable[str]) -> str:
    """Return a pattern for any of the strings, as a tree of common prefixes, which matches without backtracking."""
    tails: dict[str, set[str]] = {}
    for string in strings:
        tails.setdefault(string[:1], set()).add(string[1:])
    parts = []
    for first in sorted(tails):
        rest = tails[first]
        parts.append(re.escape(first) + ("" if rest == {""} else _build_pattern(rest)))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"

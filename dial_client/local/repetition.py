"""Answers that do not come to an end: lists of one item, numbered on and on."""

from __future__ import annotations

import re
from collections import deque

WINDOW = 120
"""Words that are looked at: a multiplication table of twenty lines is shorter."""
LEAST_DISTINCT = 9
"""Different words among them, whatever their numbers; fewer are a repetition."""

_DIGITS = re.compile(r"\d+")
_LABEL = re.compile(r"#*[A-Z]{0,2}[.,:)|]*")


class Repetition:
    """The last words of an answer, fed piece by piece."""

    def __init__(self) -> None:
        self._words: deque[str] = deque(maxlen=WINDOW)
        self._rest = ""

    def feed(self, text: str) -> bool:
        """Add a piece of the answer, and return whether it only repeats itself now."""
        *whole, self._rest = re.split(r"\s", self._rest + text)
        self._words.extend(_shape(word) for word in whole if word)
        return len(self._words) == WINDOW and len(set(self._words)) < LEAST_DISTINCT


def _shape(word: str) -> str:
    """Return a word without what counts on in a list: its digits, or one or two capital letters."""
    masked = _DIGITS.sub("#", word)
    return "#" if _LABEL.fullmatch(masked) else masked

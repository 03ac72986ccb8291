"""Detects answers that repeat themselves without end, such as numbered lists of the same item."""

from __future__ import annotations

import re
from collections import deque

WINDOW = 120
"""The number of last words that are compared. A multiplication table of twenty lines is shorter."""
LEAST_DISTINCT = 9
"""The minimum number of different words in the window, apart from digits; fewer are a repetition."""

_DIGITS = re.compile(r"\d+")
_LABEL = re.compile(r"#*[A-Z]{0,2}[.,:)|]*")


class Repetition:
    """Collects the last words of an answer, piece by piece."""

    def __init__(self) -> None:
        self._words: deque[str] = deque(maxlen=WINDOW)
        self._rest = ""

    def feed(self, text: str) -> bool:
        """Add a piece of the answer; return True if the answer now only repeats itself."""
        *whole, self._rest = re.split(r"\s", self._rest + text)
        self._words.extend(_mask_numbering(word) for word in whole if word)
        return len(self._words) == WINDOW and len(set(self._words)) < LEAST_DISTINCT


def _mask_numbering(word: str) -> str:
    """Return a word without the parts that count in a list: its digits, or one or two capital letters."""
    masked = _DIGITS.sub("#", word)
    return "#" if _LABEL.fullmatch(masked) else masked

"""The seconds of a turn, without those in which a question waited for a person."""

from __future__ import annotations

import time
from collections.abc import Callable


class TurnClock:
    """Measures one turn after the other; questions may wait side by side.

    Args:
        now: returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.begun = 0.0
        """The beginning of the turn, later by the seconds of its questions."""
        self._now = now
        self._questions, self._asked = 0, 0.0

    @property
    def seconds(self) -> float:
        """The seconds of the turn so far."""
        return self._now() - self.begun

    def begin(self) -> None:
        """Begin a turn."""
        self.begun = self._now()

    def begin_question(self) -> None:
        """Begin to wait for a person."""
        if not self._questions:
            self._asked = self._now()
        self._questions += 1

    def end_question(self) -> None:
        """End the wait for an answer: the time in which any question waited is left out once."""
        self._questions -= 1
        if not self._questions:
            self.begun += self._now() - max(self._asked, self.begun)

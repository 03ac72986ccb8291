"""The duration of a turn, without the time spent waiting for the user."""

from __future__ import annotations

import time
from collections.abc import Callable


class TurnClock:
    """Measures one turn after the other; several questions may be open at the same time.

    Args:
        now: Returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.begun = 0.0
        """The start time of the turn, moved forward by the seconds of its questions."""
        self._now = now
        self._questions, self._asked = 0, 0.0

    @property
    def seconds(self) -> float:
        """The duration of the turn so far, in seconds."""
        return self._now() - self.begun

    def begin(self) -> None:
        """Start to measure a turn."""
        self.begun = self._now()

    def begin_question(self) -> None:
        """Start to wait for the user."""
        if not self._questions:
            self._asked = self._now()
        self._questions += 1

    def end_question(self) -> None:
        """End the wait for an answer. Time in which several questions were open is subtracted once."""
        self._questions -= 1
        if not self._questions:
            self.begun += self._now() - max(self._asked, self.begun)

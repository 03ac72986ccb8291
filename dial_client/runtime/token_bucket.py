"""A limit of how often something happens: so often at once, and then as often as the time gives it."""

from __future__ import annotations

import time


class TokenBucket:
    """A token bucket: it starts full with ``burst`` tokens, and is refilled with ``rate`` tokens per second."""

    def __init__(self, burst: int, rate: float) -> None:
        self.burst = burst
        """The most tokens."""
        self._rate = rate
        self._tokens = float(burst)
        self._refilled_at = time.monotonic()

    def take(self) -> bool:
        """Take a token; return False if there is none."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def spend(self, count: int) -> None:
        """Take tokens that are used up elsewhere, also those that are not there: at most ``burst`` are owed."""
        self._refill()
        self._tokens = max(float(-self.burst), self._tokens - count)

    def _refill(self) -> None:
        now = time.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now

    @property
    def seconds(self) -> float:
        """Seconds until there is a token, as of the last `take`."""
        return max(0.0, (1 - self._tokens) / self._rate)

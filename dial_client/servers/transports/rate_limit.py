"""Holds what a server says of its own accord to a rate: no flood keeps the host busy, or waits in its memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mcp_types import JSONRPCNotification, JSONRPCRequest

BURST = 500
"""Messages of one kind that pass at once, however fast they come."""
RATE = 50.0
"""Messages of one kind that pass in a second, when they keep coming.

None is held back for longer than `listing.DEBOUNCE`: behind the last news of a change the list is read.
"""
MAX_NUMBER = 1e300
"""The SDK makes a float of what progress says, and its reading ends where that fails (mcp 2.3)."""
_KINDS = {
    "notifications/progress": "progress",
    "notifications/message": "logs",
    "notifications/tools/list_changed": "changes of its tools",
    "notifications/prompts/list_changed": "changes of its prompts",
    "notifications/resources/list_changed": "changes of its resources",
    "notifications/resources/updated": "updates of resources",
    "ping": "pings",
}


class RateLimiter:
    """Lets messages through, but for those that are too many; ``note`` hears, once for each kind, that there are such.

    An answer always passes: there is one at most for each of our requests.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._buckets: dict[str, Bucket] = {}

    def passes(self, message: object) -> bool:
        """Whether to take a message."""
        if not isinstance(message, JSONRPCNotification | JSONRPCRequest):
            return True
        if message.method == "notifications/progress" and not _is_sound(message.params or {}):
            return False
        other = "requests" if isinstance(message, JSONRPCRequest) else "notifications"
        kind = _KINDS.get(message.method, other)
        if self._buckets.setdefault(kind, Bucket(BURST, RATE)).take():
            return True
        self._note(f"it sends a flood of {kind}; some of them are dropped")
        return False


class Bucket:
    """Is full at first, and fills up again: ``burst`` of something at once, and ``rate`` a second."""

    def __init__(self, burst: int, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._at = time.monotonic()

    def take(self) -> bool:
        """Take one; False when there is none left."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _is_sound(params: dict[str, Any]) -> bool:
    numbers = (params.get("progress"), params.get("total"))
    return all(not isinstance(number, int) or abs(number) < MAX_NUMBER for number in numbers)

"""A rate limit for the notifications and requests of a server, to protect the client's CPU time and memory."""

from __future__ import annotations

from collections.abc import Callable

from mcp_types import JSONRPCNotification, JSONRPCRequest

from dial_client.runtime.token_bucket import TokenBucket

# Messages of one kind that pass before the rate is limited.
BURST = 500
# Messages of one kind that pass per second after the burst.
#
# Dropping announcements loses no change: a list is read `notifications.DEBOUNCE` seconds after the last one that
# passed.
RATE = 50.0
# Limit of progress numbers: the SDK (mcp 2.3) stops reading if it cannot convert a number to a float.
MAX_NUMBER = 1e300
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
    """Drops messages above the rate limit, and calls ``note`` when it does.

    Responses always pass: there is at most one for each request.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._buckets: dict[str, TokenBucket] = {}

    def allows(self, message: object) -> bool:
        """Return True if the message may pass; False if it must be dropped."""
        if not isinstance(message, JSONRPCNotification | JSONRPCRequest):
            return True
        # One number that cannot be converted would end the connection, with all its calls: see `MAX_NUMBER`.
        params = message.params or {}
        numbers = [params.get("progress"), params.get("total")] if message.method == "notifications/progress" else []
        if any(isinstance(number, int) and abs(number) >= MAX_NUMBER for number in numbers):
            return False
        # Each kind has its own bucket: a flood of log messages must not drop the one notice that the tools have
        # changed. Kinds that this list does not name share a bucket, so that a server cannot make up new ones.
        default = "requests" if isinstance(message, JSONRPCRequest) else "notifications"
        kind = _KINDS.get(message.method, default)
        if self._buckets.setdefault(kind, TokenBucket(BURST, RATE)).take():
            return True
        self._note(f"it sends a flood of {kind}; some of them are dropped")
        return False

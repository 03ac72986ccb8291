"""The sessions of MCP clients over HTTP, as revisions of the protocol up to 2025-11-25 have them: their number and age.

A session that nobody uses ends after a while, and one more than there may be ends the one that was idle longest:
clients that open a session for each call, and never end one, would lock out all others. The id of a session that has
ended gets 404, and its client has to begin another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from dial_client.serve.people.authentication import Person

# Maximum number of sessions.
MAX_SESSIONS = 1_000
# Seconds without a request, and without a stream of notifications, after which a session ends.
IDLE_SECONDS = 1_800.0

# How often in `idle_seconds` sessions are checked.
_CHECKS = 4


@dataclass(eq=False, slots=True)
class McpSession:
    """A session, and its use."""

    id: str
    person: Person
    used_at: float
    """When its last request ended, or began."""
    requests: int = 0
    """The requests and streams in progress."""


class McpSessions:
    """The open sessions.

    Args:
        end: Ends a session that is not used any more; the session is forgotten already.
        max_sessions: Maximum number of sessions.
        idle_seconds: Seconds without a request after which a session ends.
    """

    def __init__(
        self,
        end: Callable[[McpSession], Awaitable[None]],
        *,
        max_sessions: int = MAX_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._end = end
        self._max_sessions, self._idle_seconds = max_sessions, idle_seconds
        # The sessions by their ids, the one that was used last at the end.
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._sessions

    async def add(self, id_: str, person: Person) -> None:
        """Add a session; end another one if there are too many."""
        self._sessions[id_] = McpSession(id_, person, anyio.current_time())
        if len(self._sessions) > self._max_sessions:
            earlier = [session for session in self._sessions.values() if session.id != id_]
            # All may be in use: streams of notifications stay open for days.
            idle = next((session for session in earlier if not session.requests), earlier[0])
            await self._close(idle)

    def remove(self, id_: str) -> McpSession | None:
        """Forget a session that its client has ended, and return it; None if it is unknown."""
        return self._sessions.pop(id_, None)

    @contextmanager
    def use(self, id_: str | None) -> Iterator[None]:
        """Count a request of a session while it is answered; an unknown session is ignored."""
        session = self._sessions.get(id_) if id_ else None
        if session is None:
            yield
            return
        session.requests += 1
        self._touch(session)
        try:
            yield
        finally:
            session.requests -= 1
            self._touch(session)

    def _touch(self, session: McpSession) -> None:
        session.used_at = anyio.current_time()
        if session.id in self._sessions:
            self._sessions.move_to_end(session.id)

    async def run(self) -> None:
        """End idle sessions until cancelled."""
        while True:
            await anyio.sleep(self._idle_seconds / _CHECKS)
            limit = anyio.current_time() - self._idle_seconds
            for session in list(self._sessions.values()):
                if not session.requests and session.used_at <= limit and session.id in self._sessions:
                    await self._close(session)

    async def _close(self, session: McpSession) -> None:
        del self._sessions[session.id]
        await self._end(session)

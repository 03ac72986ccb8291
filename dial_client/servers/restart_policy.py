"""When a server whose session has ended is started again, and when it is given up.

A `ServerSession` returns an `Exit`, and `RestartPolicy.after` makes a `RestartDecision` of it. The policy knows times
and kinds of exits, and nothing of processes and connections.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from dial_client.servers.status import ServerState

MAX_DEATHS = 5
"""Deaths within `WINDOW`, or failed starts in a row, after which a server is given up."""
WINDOW = 60.0
"""Seconds; a session that lasts as long as this is healthy, and the pauses begin anew."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
"""Seconds before the second restart in a row, doubled for each further one; the first is at once."""
LATER = (5.0, 10.0, 20.0, 40.0, 60.0, 60.0)
"""Seconds between the attempts at a URL that cannot be reached; after the last attempt there is no other."""


class ExitKind(StrEnum):
    """How a session ended."""

    STOPPED = "stopped"
    """It was asked to end."""
    DIED = "died"
    """It ended by itself, or never became ready."""
    UNREACHABLE = "unreachable"
    """Nothing answers at the URL, which may change."""
    REOPENED = "reopened"
    """It was healthy, but the server needs the older protocol."""
    MISCONFIGURED = "misconfigured"
    """There is no such command or folder, or a login is required: another attempt changes nothing."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a session ended, and what it had been."""

    kind: ExitKind
    why: str = ""
    """In one line; empty where the session was asked to end."""
    ready_at: float | None = None
    """When the session became ready; None if it never did."""
    protocol_version: str | None = None
    """The negotiated version; None if the session never became ready."""


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What follows from the end of a session."""

    state: ServerState
    error: str
    pause: float | None = None
    """Seconds until the server is started again; None for never."""


@dataclass(slots=True)
class RestartPolicy:
    """Counts the deaths of one server. All times are seconds of one monotonic clock."""

    _deaths: list[float] = field(default_factory=list)
    _was_ready: bool = False
    """Since the server was last given up."""
    _restarts_in_row: int = 0
    _failed_starts: int = 0
    _attempts_later: int = 0

    def record_ready(self, session_exit: Exit) -> None:
        """Learn that a session was ready; part of `after`, and enough where the end of the session does not count."""
        if session_exit.ready_at is not None:
            self._was_ready, self._failed_starts, self._attempts_later = True, 0, 0

    def after(self, session_exit: Exit, now: float) -> RestartDecision:
        """Count the end of a session, and decide whether and when the next one begins."""
        self.record_ready(session_exit)
        if session_exit.kind is ExitKind.STOPPED:
            return RestartDecision(ServerState.STOPPED, session_exit.why)
        if session_exit.kind is ExitKind.MISCONFIGURED or not self._was_ready:
            return self._give_up(session_exit)
        if session_exit.ready_at is None:
            self._failed_starts += 1
        elif now - session_exit.ready_at >= WINDOW:
            self._restarts_in_row = 0
        self._restarts_in_row += 1
        self._deaths = [*(death for death in self._deaths if now - death < WINDOW), now]
        if len(self._deaths) >= MAX_DEATHS:
            return self._give_up(session_exit, f"it is given up after {MAX_DEATHS} deaths within a minute: ")
        if self._failed_starts >= MAX_DEATHS:
            return self._give_up(session_exit, f"it is given up after {MAX_DEATHS} failed starts: ")
        return RestartDecision(ServerState.RESTARTING, session_exit.why, self._pause())

    def _pause(self) -> float:
        if self._restarts_in_row == 1:
            return 0.0
        return jittered(min(MAX_PAUSE, FIRST_PAUSE * 2.0 ** min(self._restarts_in_row - 2, 10)))

    def _give_up(self, session_exit: Exit, prefix: str = "") -> RestartDecision:
        self._was_ready, self._restarts_in_row, self._failed_starts, self._deaths = False, 0, 0, []
        if session_exit.kind is not ExitKind.UNREACHABLE:
            return RestartDecision(ServerState.FAILED, f"{prefix}{session_exit.why}")
        if self._attempts_later == len(LATER):
            return RestartDecision(ServerState.FAILED, session_exit.why)
        self._attempts_later += 1
        return RestartDecision(ServerState.FAILED, session_exit.why, jittered(LATER[self._attempts_later - 1]))


def jittered(seconds: float) -> float:
    """Return a random duration from three quarters of `seconds` to all of it: retries at the same moment spread out."""
    return seconds * (0.75 + 0.25 * random.random())  # noqa: S311 (no secret)

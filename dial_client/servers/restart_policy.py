"""Decides whether and when a server is restarted after the end of a session.

A `ServerSession` returns an `Exit`, and `RestartPolicy.decide` returns a `RestartDecision` for it. The policy depends
only on times and kinds of exits, not on processes or connections.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from dial_client.servers.status import ServerState

MAX_DEATHS = 5
"""Deaths within `WINDOW`, or consecutive failed starts, after which a server is given up."""
WINDOW = 60.0
"""Seconds after which a session counts as healthy, so that the pauses start again from the first."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
"""Pauses in seconds: before the second consecutive restart, doubled for each further one, and the maximum.

The first restart has no pause.
"""
UNREACHABLE_PAUSES = (5.0, 10.0, 20.0, 40.0, 60.0, 60.0)
"""Seconds between the connection attempts at an unreachable URL; the last attempt is final."""


class ExitKind(StrEnum):
    """How a session ended."""

    STOPPED = "stopped"
    """The client ended the session."""
    DIED = "died"
    """The session ended by itself, or never became ready."""
    UNREACHABLE = "unreachable"
    """Nothing answers at the URL; a later attempt may succeed."""
    REOPENED = "reopened"
    """The session was healthy, but the server needs the older protocol."""
    MISCONFIGURED = "misconfigured"
    """The command or folder does not exist, or a login is required: another attempt would not help."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a session ended, and the facts about the session that the restart policy needs."""

    kind: ExitKind
    why: str = ""
    """The reason in one line; empty if the client ended the session."""
    ready_at: float | None = None
    """Monotonic time in seconds when the session became ready; None if it never did."""
    protocol_version: str | None = None
    """The negotiated version; None if the session never became ready."""


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """The state of a server after the end of a session, and the time of its restart."""

    state: ServerState
    error: str
    pause: float | None = None
    """Seconds until the server is restarted; None for no restart."""


@dataclass(slots=True)
class RestartPolicy:
    """Counts the deaths of one server. All times are seconds of the same monotonic clock."""

    _deaths: list[float] = field(default_factory=list)
    _was_ready: bool = False
    """True if the server was ready since it was last given up."""
    _restarts_in_row: int = 0
    _failed_starts: int = 0
    _attempts_later: int = 0

    def record_ready(self, session_exit: Exit) -> None:
        """Reset the failure counters if the session became ready.

        `decide` does this itself; call it alone for an end of a session that does not count as a death.
        """
        if session_exit.ready_at is not None:
            self._was_ready, self._failed_starts, self._attempts_later = True, 0, 0

    def decide(self, session_exit: Exit, now: float) -> RestartDecision:
        """Count the end of a session, and decide whether and when the server is restarted."""
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
        return add_jitter(min(MAX_PAUSE, FIRST_PAUSE * 2.0 ** min(self._restarts_in_row - 2, 10)))

    def _give_up(self, session_exit: Exit, prefix: str = "") -> RestartDecision:
        self._was_ready, self._restarts_in_row, self._failed_starts, self._deaths = False, 0, 0, []
        if session_exit.kind is not ExitKind.UNREACHABLE:
            return RestartDecision(ServerState.FAILED, f"{prefix}{session_exit.why}")
        if self._attempts_later == len(UNREACHABLE_PAUSES):
            return RestartDecision(ServerState.FAILED, session_exit.why)
        self._attempts_later += 1
        return RestartDecision(
            ServerState.FAILED, session_exit.why, add_jitter(UNREACHABLE_PAUSES[self._attempts_later - 1])
        )


def add_jitter(seconds: float) -> float:
    """Return a random duration between 75 and 100 % of `seconds`, so that simultaneous retries spread out."""
    return seconds * (0.75 + 0.25 * random.random())  # noqa: S311 (no secret)

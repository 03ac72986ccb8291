"""When a server that has died is started again, and when it is given up. Knows nothing of processes and connections."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from dial_client.servers.status import ServerState

MAX_DEATHS = 5
"""Deaths within `WINDOW`, or starts in a row that come to nothing, after which a server is given up."""
WINDOW = 60.0
"""Seconds; a server that lives as long as this is taken for healthy, and its pauses begin anew."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
"""Seconds before the second start in a row, doubled for each further one; the first is at once."""
LATER = (5.0, 10.0, 20.0, 40.0, 60.0, 60.0)
"""Seconds between the attempts at a URL that could not be reached; after the last it is left alone."""


class ExitKind(StrEnum):
    """What kind of end a life had."""

    STOPPED = "stopped"
    """It was asked to end."""
    DIED = "died"
    """It ended by itself, or never became ready."""
    UNREACHABLE = "unreachable"
    """Nobody was there: a URL may have somebody behind it later."""
    REOPENED = "reopened"
    """It was well, but has to be spoken to in the older protocol."""
    MISCONFIGURED = "misconfigured"
    """There is no such command or folder, or it wants a login: trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a life ended."""

    kind: ExitKind
    why: str = ""
    """In one line; empty where it was asked to end."""


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What follows from a death."""

    state: ServerState
    error: str
    pause: float | None = None
    """Seconds until it is started again; None for never."""


@dataclass(slots=True)
class RestartPolicy:
    """Counts the deaths of one server. All times are seconds of one clock that never goes back."""

    _deaths: list[float] = field(default_factory=list)
    _up_since: float | None = None
    _was_ready: bool = False
    """Since it was last given up."""
    _in_row: int = 0
    _in_vain: int = 0
    _later: int = 0

    def came_up(self, now: float) -> None:
        """Take note that it is ready."""
        self._up_since, self._was_ready, self._in_vain, self._later = now, True, 0, 0

    def after(self, ending: Exit, now: float) -> RestartDecision:
        """Take note of an end, and say what follows from it."""
        up_since, self._up_since = self._up_since, None
        if ending.kind is ExitKind.STOPPED:
            return RestartDecision(ServerState.STOPPED, ending.why)
        if ending.kind is ExitKind.MISCONFIGURED or not self._was_ready:
            return self._failed(ending)
        if up_since is None:
            self._in_vain += 1
        elif now - up_since >= WINDOW:
            self._in_row = 0
        self._in_row += 1
        self._deaths = [*(death for death in self._deaths if now - death < WINDOW), now]
        if len(self._deaths) >= MAX_DEATHS:
            return self._failed(ending, f"it is given up after {MAX_DEATHS} deaths within a minute: ")
        if self._in_vain >= MAX_DEATHS:
            return self._failed(ending, f"it is given up after {MAX_DEATHS} starts in vain: ")
        return RestartDecision(ServerState.RESTARTING, ending.why, self._pause())

    def _pause(self) -> float:
        if self._in_row == 1:
            return 0.0
        return jittered(min(MAX_PAUSE, FIRST_PAUSE * 2.0 ** min(self._in_row - 2, 10)))

    def _failed(self, ending: Exit, given_up: str = "") -> RestartDecision:
        self._was_ready, self._in_row, self._in_vain, self._deaths = False, 0, 0, []
        if ending.kind is not ExitKind.UNREACHABLE:
            return RestartDecision(ServerState.FAILED, f"{given_up}{ending.why}")
        if self._later == len(LATER):
            return RestartDecision(ServerState.FAILED, ending.why)
        self._later += 1
        return RestartDecision(ServerState.FAILED, ending.why, jittered(LATER[self._later - 1]))


def jittered(seconds: float) -> float:
    """Give three quarters of a pause, up to all of it: what died together is not to come back all at once."""
    return seconds * (0.75 + 0.25 * random.random())  # noqa: S311 (no secret)

"""Decides whether and when a server is restarted after the end of a session, and with which version of MCP.

A `ServerSession` returns an `Exit`, and `RestartPolicy.decide` returns a `RestartDecision` for it. The policy depends
only on times and kinds of exits, not on processes or connections. `ProtocolChooser` chooses the protocol of the next
session: the configured one, or the one that worked before.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from dial_client.servers.server_cache import ServerCache
from dial_client.servers.status import ServerState
from dial_client.settings.config_types import Protocol, ServerSettings

# Deaths within `WINDOW`, or consecutive failed starts, after which a server is given up.
MAX_DEATHS = 5
# Seconds after which a session counts as healthy, so that the pauses start again from the first.
WINDOW = 60.0
# Pauses in seconds: before the second consecutive restart, doubled for each further one, and the maximum.
#
# The first restart has no pause.
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
# Seconds between the connection attempts at an unreachable URL; the last attempt is final.
UNREACHABLE_PAUSES = (5.0, 10.0, 20.0, 40.0, 60.0, 60.0)


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


@dataclass(eq=False, slots=True)
class RestartPolicy:
    """Counts the deaths of one server. All times are seconds of the same monotonic clock."""

    _deaths: list[float] = field(default_factory=list)
    # True if the server was ready since it was last given up.
    _was_ready: bool = False
    _restarts_in_row: int = 0
    _failed_starts: int = 0
    # Attempts to reach an unreachable URL since the server was given up.
    _late_attempts: int = 0

    def record_ready(self, session_exit: Exit) -> None:
        """Reset the failure counters if the session became ready.

        `decide` does this itself; call it alone for an end of a session that does not count as a death.
        """
        if session_exit.ready_at is not None:
            self._was_ready, self._failed_starts, self._late_attempts = True, 0, 0

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
        # The first restart is at once. Further ones wait longer each time, so that a server that dies at its start does
        # not keep the machine busy. The exponent is bounded, because a float overflows at 2 ** 1024.
        doublings = min(self._restarts_in_row - 2, 10)
        pause = 0.0 if self._restarts_in_row == 1 else add_jitter(min(MAX_PAUSE, FIRST_PAUSE * 2.0**doublings))
        return RestartDecision(ServerState.RESTARTING, session_exit.why, pause)

    def _give_up(self, session_exit: Exit, reason: str = "") -> RestartDecision:
        """Return that the server has failed; only an unreachable URL is tried again, at most six times.

        The counters start anew: a later attempt, or a restart by the user, is judged like a first start.
        """
        self._was_ready, self._restarts_in_row, self._failed_starts, self._deaths = False, 0, 0, []
        if session_exit.kind is not ExitKind.UNREACHABLE:
            return RestartDecision(ServerState.FAILED, f"{reason}{session_exit.why}")
        pause = next(iter(UNREACHABLE_PAUSES[self._late_attempts :]), None)
        self._late_attempts += 1
        return RestartDecision(ServerState.FAILED, session_exit.why, None if pause is None else add_jitter(pause))


def add_jitter(seconds: float) -> float:
    """Return a random duration between 75 and 100 % of `seconds`, so that simultaneous retries spread out."""
    return seconds * (0.75 + 0.25 * random.random())  # noqa: S311 (no secret)


@lru_cache(maxsize=16)  # without it, the import takes longer than the answer, several times in each call
def is_modern(version: str | None) -> bool:
    """Return True if this protocol version has neither handshake nor sessions (2026-07-28 and later)."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return version in MODERN_PROTOCOL_VERSIONS


class ProtocolChooser:
    """Chooses the protocol of each session of one server, depending on how the sessions before ended.

    Args:
        settings: How the server is reached; None for a server object in this process.
        cache: Data about the server from the last run of the program.
        startup_timeout: The start-up timeout in seconds.
    """

    def __init__(self, settings: ServerSettings | None, cache: ServerCache, startup_timeout: float) -> None:
        self._configured = settings.protocol if settings is not None else Protocol.AUTO
        self._cache = cache
        self._startup_timeout = startup_timeout
        self._last_exit: Exit | None = None
        # The time when the older protocol was chosen because the cache says so; None once the server was ready.
        self._guessed_at: float | None = None
        self._protocol_version: str | None = None
        # True if the server sends requests, which only the older protocol has.
        #
        # False if the server does but cannot be opened with the older protocol; None if it is not known to send any.
        self._sends_requests: bool | None = None

    @property
    def can_be_reopened(self) -> bool:
        """True if a session may be reopened with the older protocol when the server tries to send requests."""
        return self._sends_requests is None

    def choose(self) -> Protocol:
        """Return the protocol to open the next session with."""
        protocol, before = self._configured, self._last_exit
        if protocol is Protocol.AUTO:
            # Probing for the newer protocol can cost ten seconds: some servers ignore unknown requests.
            if before is None:
                is_legacy = self._cache.is_legacy()
                self._guessed_at = time.monotonic() if is_legacy else None
            else:
                spoke_legacy = before.protocol_version is not None and not is_modern(before.protocol_version)
                is_legacy = spoke_legacy or bool(self._sends_requests)
            protocol = Protocol.LEGACY if is_legacy else protocol
        return protocol

    def record_exit(self, session_exit: Exit) -> bool:
        """Record how a session ended; return True if the next one must be opened at once with another protocol."""
        self._last_exit = session_exit
        self._protocol_version = session_exit.protocol_version or self._protocol_version
        if session_exit.ready_at is not None:
            self._guessed_at = None
        if session_exit.kind is ExitKind.DIED and (guessed_at := self._guessed_at) is not None:
            self._guessed_at = None
            self._cache.forget_legacy()
            # After the start-up timeout there is no time for another attempt.
            if time.monotonic() - guessed_at < self._startup_timeout:
                return True
        if session_exit.kind is ExitKind.REOPENED:
            self._sends_requests = True
            return True
        if self._sends_requests and is_modern(self._protocol_version):
            self._sends_requests = False
        return False

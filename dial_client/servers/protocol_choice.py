"""The choice of the protocol to open a session with: the configured protocol, or the one that worked before."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.servers.protocol_versions import is_modern
from dial_client.servers.restart_policy import Exit, ExitKind
from dial_client.servers.server_cache import ServerCache
from dial_client.settings.config_types import Protocol, ServerSettings


@dataclass(frozen=True, slots=True)
class ProtocolChoice:
    """The protocol of one session."""

    protocol: Protocol = Protocol.AUTO
    can_be_reopened: bool = True
    """True if the session may be reopened with the older protocol when the server tries to send requests."""


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
        self._protocol_version: str | None = None
        self._sends_requests: bool | None = None
        """True if the server sends requests, which only the older protocol has.

        False if the server does but cannot be opened with the older protocol; None if it is not known to send any.
        """

    def choose(self) -> ProtocolChoice:
        """Return the protocol to open the next session with."""
        protocol = self._configured
        if protocol is Protocol.AUTO and self._is_known_as_legacy():
            # Probing for the newer protocol can cost ten seconds: some servers ignore unknown requests.
            protocol = Protocol.LEGACY
        return ProtocolChoice(protocol, self._sends_requests is None)

    def _is_known_as_legacy(self) -> bool:
        if self._last_exit is None:
            return self._cache.guess_legacy()
        version = self._last_exit.protocol_version
        return bool(self._sends_requests) or (version is not None and not is_modern(version))

    def record_exit(self, session_exit: Exit) -> bool:
        """Record how a session ended; return True if the next one must be opened at once with another protocol."""
        self._last_exit = session_exit
        self._protocol_version = session_exit.protocol_version or self._protocol_version
        if session_exit.kind is ExitKind.DIED and self._cache.reject_guess(self._startup_timeout):
            return True
        if session_exit.kind is ExitKind.REOPENED:
            self._sends_requests = True
            return True
        if self._sends_requests and is_modern(self._protocol_version):
            self._sends_requests = False
        return False

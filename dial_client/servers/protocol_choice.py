"""Which protocol a session opens with: the configured one, or the one that worked before."""

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
    """True if the older protocol may be tried where the newer one has no way for the server's requests."""


class ProtocolChooser:
    """Chooses the protocol of each session of one server from the ends of the sessions before.

    Args:
        settings: how the server is reached; None for a server object in this process.
        cache: what was known of the server when the program last ran.
        startup_timeout: the seconds a start may take.
    """

    def __init__(self, settings: ServerSettings | None, cache: ServerCache, startup_timeout: float) -> None:
        self._configured = settings.protocol if settings is not None else Protocol.AUTO
        self._cache = cache
        self._startup_timeout = startup_timeout
        self._last_exit: Exit | None = None
        self._protocol_version: str | None = None
        self._sends_requests: bool | None = None
        """True if the server sends requests, which only the older protocol has; False if that could not be opened."""

    def choose(self) -> ProtocolChoice:
        """Return the protocol to open the next session with."""
        protocol = self._configured
        if protocol is Protocol.AUTO and self._is_known_as_legacy():
            # Asking for the newer protocol can cost ten seconds: servers may ignore what they do not know.
            protocol = Protocol.LEGACY
        return ProtocolChoice(protocol, self._sends_requests is None)

    def _is_known_as_legacy(self) -> bool:
        if self._last_exit is None:
            return self._cache.guess_legacy()
        version = self._last_exit.protocol_version
        return bool(self._sends_requests) or (version is not None and not is_modern(version))

    def is_changed_by(self, session_exit: Exit) -> bool:
        """Learn from the end of a session; True if the next one is to be opened at once in another protocol."""
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

"""Where one session is: connecting, ready, ending or ended, in one value that its tasks wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from dial_client.servers.observable import Observable
from dial_client.servers.protocol_versions import is_modern
from dial_client.servers.restart_policy import Exit, ExitKind

if TYPE_CHECKING:
    from mcp import Client


@dataclass(frozen=True, slots=True)
class SessionState:
    """What is true of a session at one moment."""

    client: Client | None = None
    """Requests are made with it; None before the session is ready, and after its end."""
    protocol_version: str | None = None
    """The negotiated version; None before the session is ready."""
    has_session_id: bool = False
    """True if requests carry a session id, which a server can forget."""
    ready_at: float | None = None
    ending: Exit | None = None
    """Why the session is about to end: no new call is made, and those in flight may come to their end."""
    exit: Exit | None = None
    """How the session ended."""
    is_announced: bool = False
    """True once the status of the server says what follows from the end."""

    @property
    def is_started(self) -> bool:
        """True if the session is ready, or never will be."""
        return self.client is not None or self.exit is not None

    @property
    def is_serving(self) -> bool:
        """True if a call may be made: the session is ready, and nothing is known to be wrong with it."""
        return self.client is not None and self.ending is None

    @property
    def is_breaking(self) -> bool:
        """True if the connection is lost, or about to be."""
        return self.ending is not None and self.ending.kind is not ExitKind.REOPENED

    @property
    def is_legacy(self) -> bool:
        """True if the session was ready, with a protocol that has a handshake."""
        return self.protocol_version is not None and not is_modern(self.protocol_version)

    @property
    def reason(self) -> str:
        """Why there is no connection, in words."""
        return "the connection was closed" if self.exit is None else self.exit.why or "it was stopped"


class ObservableState:
    """The state of a session, and its transitions."""

    def __init__(self) -> None:
        self._state = Observable(SessionState())

    @property
    def value(self) -> SessionState:
        """The state of the moment."""
        return self._state.value

    async def wait_until(self, predicate: Callable[[SessionState], bool]) -> SessionState:
        """Wait until the predicate is true of the state, and return that state."""
        return await self._state.wait_until(predicate)

    def become_ready(self, client: Client, *, is_streamable_http: bool) -> None:
        """Let calls be made with the client."""
        self._state.set(
            replace(
                self.value,
                client=client,
                protocol_version=client.protocol_version,
                has_session_id=is_streamable_http and not is_modern(client.protocol_version),
                ready_at=anyio.current_time(),
            )
        )

    def end(self, ending: Exit) -> None:
        """Let the session end. The first reason counts, and the last kind that is more than a death."""
        before = self.value.ending
        if before is not None:
            kind = before.kind if ending.kind is ExitKind.DIED else ending.kind
            ending = Exit(kind, before.why or ending.why)
        self._state.set(replace(self.value, ending=ending))

    def exit(self, kind: ExitKind, why: str = "") -> None:
        """Set how the session ended, once and for good."""
        state = self.value
        if state.exit is None:
            session_exit = Exit(kind, why, state.ready_at, state.protocol_version)
            self._state.set(replace(state, client=None, ending=state.ending or session_exit, exit=session_exit))

    def announce(self) -> None:
        """Record that the status of the server says what follows from the end."""
        self._state.set(replace(self.value, is_announced=True))

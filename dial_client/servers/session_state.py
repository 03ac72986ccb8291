"""The state of one session (connecting, ready, ending or ended) as one value that tasks can wait for."""

from __future__ import annotations

import math
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
    """The state of a session at one moment."""

    client: Client | None = None
    """The SDK's client, which sends requests; None before the session is ready, and after its end."""
    protocol_version: str | None = None
    """The negotiated version; None before the session is ready."""
    has_session_id: bool = False
    """True if requests carry a session id, which a server may no longer know after its restart."""
    ready_at: float | None = None
    """The time of `anyio.current_time` when the session became ready."""
    ending: Exit | None = None
    """Why the session is about to end; no new call may be made, and calls in flight may finish."""
    exit: Exit | None = None
    """How the session ended; None before its end."""
    is_announced: bool = False
    """True once the server's status was updated after the end of the session."""

    @property
    def is_started(self) -> bool:
        """True if the start of the session is over: it became ready, or it ended."""
        return self.client is not None or self.exit is not None

    @property
    def is_serving(self) -> bool:
        """True if calls may be made: the session is ready, and no problem with it is known."""
        return self.client is not None and self.ending is None

    @property
    def is_breaking(self) -> bool:
        """True if the connection is lost, or about to be."""
        return self.ending is not None and self.ending.kind is not ExitKind.REOPENED

    @property
    def is_legacy(self) -> bool:
        """True if the session became ready with a protocol version that has a handshake (before 2026-07-28)."""
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
        """The current state."""
        return self._state.value

    async def wait_until(self, predicate: Callable[[SessionState], bool], seconds: float = math.inf) -> SessionState:
        """Wait until the predicate is true of the state, at most `seconds`, and return the state."""
        return await self._state.wait_until(predicate, seconds)

    def become_ready(self, client: Client, *, is_streamable_http: bool) -> None:
        """Record that the session is ready: calls may be made with the client."""
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
        """Begin to end the session.

        Of several calls, the first non-empty reason is kept, and the last kind other than `ExitKind.DIED`.
        """
        before = self.value.ending
        if before is not None:
            kind = before.kind if ending.kind is ExitKind.DIED else ending.kind
            ending = Exit(kind, before.why or ending.why)
        self._state.set(replace(self.value, ending=ending))

    def exit(self, kind: ExitKind, why: str = "") -> None:
        """Set how the session ended; later calls have no effect."""
        state = self.value
        if state.exit is None:
            session_exit = Exit(kind, why, state.ready_at, state.protocol_version)
            self._state.set(replace(state, client=None, ending=state.ending or session_exit, exit=session_exit))

    def announce(self) -> None:
        """Record that the server's status was updated after the end of the session."""
        self._state.set(replace(self.value, is_announced=True))

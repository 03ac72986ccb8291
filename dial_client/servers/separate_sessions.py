"""Sessions of one server that each serve only one party, beside the session that all others share.

A party is a client of a gateway (``"perClient"`` in the configuration), or a person (``"perUser"``). A session is a
connection of its own: its first call starts it, it is restarted if it dies, and it is closed when its party is gone, or
has made no call for a while. Of a server per client, lists, subscriptions and calls of the program itself stay with the
shared session; of a server per person there is no other session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.call_context import Caller, Callers, Feature, InputRequired
from dial_client.messages.errors import ServerError, ServerGone
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.status import Observable

# The most separate sessions of one server: each may be a process. A further one closes the one that was idle longest.
MAX_SEPARATE = 32
# Seconds without a call after which a separate session is closed: as long as a client may take for an answer to a
# question with which a call has ended (`gateway.questions.STATE_SECONDS`).
SEPARATE_SECONDS = 600.0


class OwnedConnection(Protocol):
    """What a separate session needs of a connection."""

    def start(self, tasks: BackgroundTasks) -> None:
        """Start the task that owns the server."""

    async def wait_settled(self) -> bool:
        """Wait until the first start has ended."""

    def stop(self) -> None:
        """End the server."""

    async def wait_ended(self) -> None:
        """Wait until the server has ended."""


ConnectionT = TypeVar("ConnectionT", bound=OwnedConnection)


@dataclass(frozen=True, slots=True)
class Party:
    """Whom a session serves. Sessions of one person are never those of another one, whatever the client."""

    owner: str = ""
    """The person; empty if the server has no session per person, or the program names nobody."""
    client: str = ""
    """The id of the session of a gateway's client; empty if it is not for one client."""


@dataclass(eq=False, slots=True)
class _PartyOfCalls:
    """The one party of a session, as the client that the server may ask; a `hooks.call_context.Callers`.

    A request outside of calls goes to a call in progress: the first one, which has started the server, answers what the
    server asks at its start.
    """

    features: frozenset[Feature]
    """What the party had at its latest call: a client program may come back with other features, and a server that is
    restarted is told what the party has then."""
    calls: Observable[tuple[Caller | None, ...]]
    """The calls in progress; None for one of this program."""
    shared: Callers | None
    """The clients of the shared session."""

    @property
    def single(self) -> Caller | None:
        if self.calls.value:
            return self.calls.value[0]
        return self.shared.single if self.shared is not None else None


@dataclass(slots=True, eq=False)
class _Separate(Generic[ConnectionT]):
    """A session, and the calls that use it."""

    connection: ConnectionT
    party: _PartyOfCalls
    has_asked: bool = False
    """True if the latest call has ended with a question of the server: only this session accepts the answer, as the
    server may keep the state of a question in its process."""

    @property
    def calls(self) -> Observable[tuple[Caller | None, ...]]:
        """The calls in progress."""
        return self.party.calls


class SeparateSessions(Generic[ConnectionT]):
    """The separate sessions of one server, by their parties.

    Args:
        server: The server's name in the configuration.
        shared: The clients of the shared session.
    """

    def __init__(self, server: str, shared: Callers | None) -> None:
        self._server, self._shared = server, shared
        # Starts tasks; None before the server was started, and after it was stopped.
        self.tasks: BackgroundTasks | None = None
        # The sessions by the keys of their parties, the one that was used last at the end.
        self._open: OrderedDict[Party, _Separate[ConnectionT]] = OrderedDict()
        # The sessions of which the task that owns them has not ended.
        self._running: Observable[frozenset[_Separate[ConnectionT]]] = Observable(frozenset())

    @property
    def connections(self) -> tuple[ConnectionT, ...]:
        """The connections of all sessions."""
        return tuple(separate.connection for separate in self._open.values())

    @asynccontextmanager
    async def use(
        self, party: Party, caller: Caller | None, build: Callable[[Callers], ConnectionT]
    ) -> AsyncGenerator[ConnectionT]:
        """Within the ``with`` block, keep the session of a party open; the first use starts it, and waits for it.

        Args:
            party: Whom the session serves.
            caller: The client of a gateway that makes the call; None for a call of this program.
            build: Returns a connection that asks these clients, without starting it.

        Raises:
            ServerGone: The server was stopped.
            ServerError: All sessions that there may be are in use.
        """
        separate = self._open.get(party) or self._start(party, caller, build)
        self._open.move_to_end(party)
        if caller is not None:
            separate.party.features = caller.features
        separate.calls.set((*separate.calls.value, caller))
        has_asked = False
        try:
            await separate.connection.wait_settled()
            yield separate.connection
        except InputRequired:
            has_asked = True
            raise
        finally:
            separate.has_asked = has_asked
            # One request of a client may make several calls.
            remaining = list(separate.calls.value)
            remaining.remove(caller)
            separate.calls.set(tuple(remaining))

    def find(self, party: Party) -> ConnectionT | None:
        """Return the connection of a party's session; None if it has none now."""
        separate = self._open.get(party)
        return separate.connection if separate is not None else None

    def _start(
        self, party: Party, caller: Caller | None, build: Callable[[Callers], ConnectionT]
    ) -> _Separate[ConnectionT]:
        if self.tasks is None:
            raise ServerGone(self._server, "it was stopped")
        if len(self._open) >= MAX_SEPARATE:
            self._end_one()
        features = caller.features if caller is not None else self._shared.features if self._shared else frozenset()
        of_calls = _PartyOfCalls(features, Observable(()), self._shared)
        separate = _Separate(build(of_calls), of_calls)
        self._open[party] = separate
        self._running.set(self._running.value | {separate})
        with call_context.set_current(None):  # tasks inherit the context of the call, and this one outlives the call
            separate.connection.start(self.tasks)
            self.tasks.start_soon(self._own, party, separate)
        return separate

    def _end_one(self) -> None:
        """Close the session that was idle longest; one that waits for an answer only if there is no other.

        Clients that never answer must not keep all sessions for themselves.
        """
        idle = [key for key, separate in self._open.items() if not separate.calls.value]
        if not idle:
            problem = f"its {MAX_SEPARATE} separate sessions are all in use: make the call again later"
            raise ServerError(self._server, problem)
        self._end(next((key for key in idle if not self._open[key].has_asked), idle[0]))

    async def _own(self, party: Party, separate: _Separate[ConnectionT]) -> None:
        """Close a session when it is idle; forget it when it has ended for whatever reason."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._end_idle, party, separate)
                await separate.connection.wait_ended()
                group.cancel_scope.cancel()
        finally:
            self._forget(party, separate)
            self._running.set(self._running.value - {separate})

    async def _end_idle(self, party: Party, separate: _Separate[ConnectionT]) -> None:
        while True:
            await separate.calls.wait_until(lambda calls: not calls)
            await separate.calls.wait_until(bool, SEPARATE_SECONDS)
            if not separate.calls.value:
                break
        self._forget(party, separate)
        separate.connection.stop()

    def _forget(self, party: Party, separate: _Separate[ConnectionT]) -> None:
        if self._open.get(party) is separate:
            del self._open[party]

    def end(self, *, owner: str | None = None, client: str | None = None) -> None:
        """Close all sessions of a person, or of a client that is gone; calls in flight fail."""
        for party in tuple(self._open):
            if party.client == client or party.owner == owner:
                self._end(party)

    def _end(self, party: Party) -> None:
        separate = self._open.pop(party, None)
        if separate is not None:
            separate.connection.stop()

    def stop(self) -> None:
        """Close all sessions, and open no further one."""
        self.tasks = None
        for party in tuple(self._open):
            self._end(party)

    async def wait_ended(self) -> None:
        """Wait until all sessions have ended."""
        await self._running.wait_until(lambda running: not running)

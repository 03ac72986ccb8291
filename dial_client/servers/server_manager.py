"""All servers of a client: started side by side, each by the task that owns it, and leaving nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import anyio

from dial_client.background_tasks import BackgroundTasks
from dial_client.errors import ConfigError, ServerStartError
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.session import Target
from dial_client.servers.session_calls import FRESH_SECONDS
from dial_client.servers.status import ServerState, ServerStatus

Connect = Callable[[str, Target, ClientCapabilities], Connection]
"""Makes the connection to one server; it is not started yet."""


class ServerManager(Mapping[str, Connection]):
    """All servers of a client, by their names in the configuration."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        host: ClientCapabilities = ClientCapabilities(),  # noqa: B008 - frozen
        connect: Connect = Connection,
    ) -> None:
        self.targets = dict(targets)
        """How each server is reached."""
        self._host = host
        self._connect = connect
        self._connections = {name: connect(name, target, host) for name, target in targets.items()}
        self._nursery: BackgroundTasks | None = None
        self._comings_and_goings = 0

    def __getitem__(self, name: str) -> Connection:
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def start(self, nursery: BackgroundTasks) -> None:
        """Start all servers side by side, without waiting for any."""
        self._nursery = nursery
        for connection in self.values():
            connection.start(nursery)

    @property
    def revision(self) -> tuple[int, ...]:
        """Another one after each change of what servers there are, and of the tools of any."""
        return (self._comings_and_goings, *(connection.revision for connection in self.values()))

    async def add(self, name: str, target: Target) -> ServerStatus:
        """Start one more server, and wait until it is known whether it can be used. Being cancelled takes it back.

        Raises:
            ConfigError: there is one of this name already.
        """
        if name in self._connections:
            raise ConfigError(f"there is a server {name!r} already", hint="remove that one, or restart it")
        return await self._begin(name, target)

    async def remove(self, name: str) -> None:
        """Take a server away: calls in flight fail, and nothing of it is left behind.

        Raises:
            ConfigError: there is none of this name.
        """
        connection = self._known(name)
        del self._connections[name], self.targets[name]
        self._comings_and_goings += 1
        await _end(connection)

    async def restart(self, name: str) -> ServerStatus:
        """Stop a server and start it anew, whatever state it is in, and wait until it is known whether it can be used.

        Raises:
            ConfigError: there is none of this name.
        """
        before = self._known(name)
        return await self._begin(name, self.targets[name], before)

    async def _begin(self, name: str, target: Target, before: Connection | None = None) -> ServerStatus:
        """Put a connection in its place at once, so that nobody takes the name meanwhile, and start it."""
        connection = self._connect(name, target, self._host)
        self._connections[name], self.targets[name] = connection, target
        self._comings_and_goings += 1
        try:
            if before is not None:
                await _end(before)
            if self._nursery is not None:
                connection.start(self._nursery)
                await connection.wait_settled()
                if before is not None:
                    await connection.wake()
        except BaseException:
            if before is None and self._connections.get(name) is connection:
                await self.remove(name)
            raise
        return connection.status

    def _known(self, name: str) -> Connection:
        if name not in self._connections:
            raise ConfigError(f"there is no server {name!r}", hint=f"there are: {', '.join(self)}" if self else "")
        return self._connections[name]

    async def wait_settled(self) -> None:
        """Wait until of every server it is known whether it can be used."""
        for connection in tuple(self.values()):
            await connection.wait_settled()

    def require(self) -> None:
        """Insist on the servers without which there is no conversation.

        Raises:
            ServerStartError: one of them did not start.
        """
        for connection in self.values():
            settings, status = connection.settings, connection.status
            if settings is not None and settings.required and status.state is ServerState.FAILED:
                raise ServerStartError(connection.name, status.error or "it did not start")

    async def wait_for_tools(self) -> None:
        """Wait until announced changes of tools are in, at most `FRESH_SECONDS`: good to do before a round."""
        with anyio.move_on_after(FRESH_SECONDS):
            for connection in tuple(self.values()):
                await connection.wait_for_tools()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be, a line each: why a server is not there, what is odd about one."""
        said: list[str] = []
        for status in (connection.status for connection in self.values()):
            if status.state is ServerState.FAILED:
                said.append(f"server {status.name!r} is not available: {status.error}")
            elif status.state is ServerState.RESTARTING:
                said.append(f"server {status.name!r} is being restarted: {status.error}")
            said += [f"server {status.name!r}: {note}" for note in status.notes]
        return tuple(said)

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often each server was started again."""
        return {name: connection.status.restarts for name, connection in self.items()}

    def notes_since(self, restarts: Mapping[str, int]) -> tuple[str, ...]:
        """Say, a line each, which servers have died since there were so many `restarts`, and are up again."""
        now = (connection.status for connection in self.values())
        back = (s for s in now if s.state is ServerState.READY and s.restarts > restarts.get(s.name, 0))
        return tuple(f"server {s.name!r} died and was started again: {s.error}" for s in back)

    async def aclose(self) -> None:
        """Stop all servers side by side, and wait until nothing of them is left. May be called twice, from any task."""
        self._nursery = None
        for connection in self.values():
            connection.stop()
        with anyio.CancelScope(shield=True):
            for connection in tuple(self.values()):
                await connection.wait_ended()


class AutoApproved(Mapping[str, tuple[str, ...]]):
    """For each server, with or without any, the patterns of its tools that its configuration approves."""

    def __init__(self, servers: Mapping[str, Connection]) -> None:
        self._servers = servers

    def __getitem__(self, name: str) -> tuple[str, ...]:
        settings = self._servers[name].settings
        return settings.auto_approve if settings is not None else ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)


async def _end(connection: Connection) -> None:
    connection.stop()
    with anyio.CancelScope(shield=True):
        await connection.wait_ended()

"""All servers of a client: started side by side, each by its own task, and stopped together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import anyio

from dial_client.errors import ConfigError, ServerStartError
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.observable import Observable
from dial_client.servers.session import Target
from dial_client.servers.session_calls import FRESH_SECONDS
from dial_client.servers.start_patience import STARTUP_PATIENCE, StartPatience
from dial_client.servers.status import OnChange, ServerState, ServerStatus

Connect = Callable[[str, Target, ClientCapabilities], Connection]
"""Creates the connection to one server; it is not started yet."""


class ServerManager(Mapping[str, Connection]):
    """All servers of a client, by their names in the configuration."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        capabilities: ClientCapabilities = ClientCapabilities(),  # noqa: B008 - frozen
        connect: Connect = Connection,
        startup_patience: float = STARTUP_PATIENCE,
    ) -> None:
        self.targets = dict(targets)
        """How each server is reached."""
        self.announcements = Observable(0)
        """How often a server has announced a change of its state or its tools."""
        self._capabilities = replace(capabilities, on_change=_counted(self.announcements, capabilities.on_change))
        self._connect = connect
        self._connections = {name: connect(name, target, self._capabilities) for name, target in targets.items()}
        self._tasks: BackgroundTasks | None = None
        self._changes = 0
        self._is_closed = False
        self.patience = StartPatience(startup_patience, self._connections, self.announcements)
        """How long turns wait for servers that are starting."""

    def __getitem__(self, name: str) -> Connection:
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def start(self, tasks: BackgroundTasks) -> None:
        """Start all servers side by side, without waiting for any: anew after `aclose`."""
        self._tasks = tasks
        if self._is_closed:  # a connection runs once
            self._is_closed = False
            self._connections.update(
                {name: self._connect(name, self.targets[name], self._capabilities) for name in self}
            )
            self._changes += 1
        for connection in self.values():
            self._start(connection, tasks)

    def _start(self, connection: Connection, tasks: BackgroundTasks) -> None:
        connection.start(tasks)
        tasks.start_soon(self.patience.limit, connection)

    @property
    def revision(self) -> tuple[int, ...]:
        """A value that differs after each change of the servers, and of the tools of any."""
        return (self._changes, *(connection.revision for connection in self.values()))

    async def add(self, name: str, target: Target) -> ServerStatus:
        """Add a server, start it, and wait until it is known whether it can be used. Cancellation removes it again.

        Raises:
            ConfigError: there is a server of this name already.
        """
        if name in self._connections:
            raise ConfigError(f"there is a server {name!r} already", hint="remove that server, or restart it")
        return await self._connect_and_start(name, target)

    async def remove(self, name: str) -> None:
        """Stop and remove a server: calls in flight fail.

        Raises:
            ConfigError: there is no server of this name.
        """
        connection = self._find(name)
        del self._connections[name], self.targets[name]
        self._changes += 1
        await _stop(connection)

    async def restart(self, name: str) -> ServerStatus:
        """Stop a server and start it again, in whatever state it is, and wait until it is known whether it can be used.

        Raises:
            ConfigError: there is no server of this name.
        """
        before = self._find(name)
        return await self._connect_and_start(name, self.targets[name], before)

    async def _connect_and_start(self, name: str, target: Target, before: Connection | None = None) -> ServerStatus:
        """Register a connection at once, so that the name is taken meanwhile, and start it."""
        connection = self._connect(name, target, self._capabilities)
        self._connections[name], self.targets[name] = connection, target
        self._changes += 1
        try:
            if before is not None:
                await _stop(before)
            if self._tasks is not None:
                self._start(connection, self._tasks)
                await connection.wait_settled()
                if before is not None:
                    await connection.wake()
        except BaseException:
            if before is None and self._connections.get(name) is connection:
                await self.remove(name)
            raise
        return connection.status

    def _find(self, name: str) -> Connection:
        if name not in self._connections:
            raise ConfigError(f"there is no server {name!r}", hint=f"there are: {', '.join(self)}" if self else "")
        return self._connections[name]

    async def wait_settled(self) -> None:
        """Wait until it is known of every server whether it can be used."""
        for connection in tuple(self.values()):
            await connection.wait_settled()

    def require(self) -> None:
        """Check the servers that are marked ``required``.

        Raises:
            ServerStartError: a required server did not start.
        """
        for connection in self.values():
            settings, status = connection.settings, connection.status
            if settings is not None and settings.required and status.state is ServerState.FAILED:
                raise ServerStartError(connection.name, status.error or "it did not start")

    async def wait_for_tools(self) -> None:
        """Wait until announced changes of tools are read, at most `FRESH_SECONDS`; to be called before a round."""
        with anyio.move_on_after(FRESH_SECONDS):
            for connection in tuple(self.values()):
                await connection.wait_for_tools()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong, a line each: why a server is not available, and the oddities of servers."""
        lines: list[str] = []
        left_out = self.patience.left_out
        for status in (connection.status for connection in self.values()):
            if status.state is ServerState.FAILED:
                lines.append(f"server {status.name!r} is not available: {status.error}")
            elif status.state is ServerState.RESTARTING:
                lines.append(f"server {status.name!r} is being restarted: {status.error}")
            elif status.name in left_out:
                download = f" ({left_out[status.name]})" if left_out[status.name] else ""
                lines.append(f"server {status.name!r} is still starting{download}: the turn goes on without it")
            lines += [f"server {status.name!r}: {note}" for note in status.notes]
        return tuple(lines)

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often each server was restarted."""
        return {name: connection.status.restarts for name, connection in self.items()}

    def notes_since(self, restarts: Mapping[str, int]) -> tuple[str, ...]:
        """Return, a line each, which servers have died and were restarted since there were so many `restarts`."""
        statuses = (connection.status for connection in self.values())
        return tuple(
            f"server {status.name!r} died and was restarted: {status.error}"
            for status in statuses
            if status.state is ServerState.READY and status.restarts > restarts.get(status.name, 0)
        )

    async def aclose(self) -> None:
        """Stop all servers side by side, and wait until they have ended. May be called twice, from any task."""
        self._tasks, self._is_closed = None, True
        for connection in self.values():
            connection.stop()
        with anyio.CancelScope(shield=True):
            for connection in tuple(self.values()):
                await connection.wait_ended()


class AutoApproved(Mapping[str, tuple[str, ...]]):
    """For each server, the patterns of tools that its configuration approves; possibly none."""

    def __init__(self, servers: Mapping[str, Connection]) -> None:
        self._servers = servers

    def __getitem__(self, name: str) -> tuple[str, ...]:
        settings = self._servers[name].settings
        return settings.auto_approve if settings is not None else ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)


def _counted(announcements: Observable[int], on_change: OnChange | None) -> OnChange:
    """Return what counts an announcement, and passes it on."""

    def announce(name: str, status: ServerStatus) -> None:
        announcements.set(announcements.value + 1)
        if on_change is not None:
            on_change(name, status)

    return announce


async def _stop(connection: Connection) -> None:
    connection.stop()
    with anyio.CancelScope(shield=True):
        await connection.wait_ended()

"""All servers of a client: started concurrently, each by its own task, and stopped together.

ServerManager    the servers by their names: add, remove, restart, replace
StartPatience    how long turns wait for servers that are starting
OwnerViews       what is built from the servers, for each person whose servers differ
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import Generic, TypeVar

import anyio

from dial_client.hooks.owners import CredentialProvider, find_owner
from dial_client.messages.errors import ConfigError, ServerStartError
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import suggest_name
from dial_client.servers.connection import Connection
from dial_client.servers.owner_connection import OwnerConnection
from dial_client.servers.server_notes import describe_failure
from dial_client.servers.server_requests import ClientCapabilities, LogMessage
from dial_client.servers.session import FRESH_SECONDS, Target
from dial_client.servers.status import Observable, ServerState, ServerStatus
from dial_client.settings.user_variables import fill_from_environment, serves_persons

# Seconds a turn waits for a server that is starting, counted from the server's start.
STARTUP_PATIENCE = 10.0
# Seconds after a server's start when the cached tools of the last run are offered.
CACHED_TOOLS_SECONDS = 1.0
# Seconds between two checks of whether a download is still running.
_POLL_SECONDS = 0.5
# Persons of whom it is remembered what their servers offer; those without a session are forgotten first.
MAX_OWNERS = 1_000
# Persons for whom what was built from their servers is kept.
_MAX_VIEWS = 100
# The states of servers whose tools may come later, or would be there without a fault.
_MISSING = (ServerState.STARTING, ServerState.FAILED, ServerState.STOPPED, ServerState.NEEDS_CREDENTIALS)
# Maximum characters of the reason why a server is not available.
_MAX_REASON = 200

ValueT = TypeVar("ValueT")


def find_absence(connection: Connection) -> str:
    """Return why a server, which is wanted, cannot be used now; empty if it can."""
    return connection.summary.why_unavailable if connection.state in _MISSING else ""


# Creates the connection to one server, without starting it.
Connect = Callable[[str, Target, ClientCapabilities], Connection]


class StartPatience:
    """Decides which servers turns wait for.

    A turn waits for a server marked ``required`` until the server is ready or has failed. For other servers it waits
    at most `seconds` after their start, and at most `CACHED_TOOLS_SECONDS` if tools are cached. If a server's package
    is recognizably being downloaded, and no server has tools yet, the turn waits for the download.

    Args:
        seconds: The time limit in seconds; infinite to wait for every server.
        connections: The servers by name. The mapping may change.
        announcements: A counter that is increased when turns stop waiting for a server.
    """

    def __init__(self, seconds: float, connections: Mapping[str, Connection], announcements: Observable[int]) -> None:
        self._seconds = seconds
        self._connections = connections
        self._announcements = announcements
        self._skipped: set[Connection] = set()

    async def wait(self) -> None:
        """Wait until a turn may begin."""
        await self._announcements.wait_until(lambda _: not self.awaited)

    @property
    def awaited(self) -> Mapping[str, str]:
        """The names of the servers that a turn waits for now, each with its download, if one is running."""
        return {
            name: _describe_download(connection)
            for name, connection in self._connections.items()
            if not connection.is_settled and connection not in self._skipped
        }

    def find_left_out(self) -> Mapping[str, str]:
        """Return the servers that are still starting but that turns no longer wait for, in the form of `awaited`."""
        return {
            name: _describe_download(connection)
            for name, connection in self._connections.items()
            if connection in self._skipped and not connection.tools and connection.state is ServerState.STARTING
        }

    def skip_starting(self) -> tuple[str, ...]:
        """Stop waiting for the servers that are still starting, and return their names."""
        starting = [known for known in self._connections.values() if known.state is ServerState.STARTING]
        self._skip(starting)
        return tuple(connection.name for connection in starting)

    async def limit(self, connection: Connection) -> None:
        """Wait for the first start of a server; after the time limit let turns begin without it."""
        if connection.settings is not None and connection.settings.required:
            return
        if await connection.wait_settled(min(CACHED_TOOLS_SECONDS, self._seconds)):
            return
        if not connection.offer_cached_tools():
            if await connection.wait_settled(self._seconds - CACHED_TOOLS_SECONDS):
                return
            while _describe_download(connection) and not any(known.tools for known in self._connections.values()):
                if await connection.wait_settled(_POLL_SECONDS):
                    return
        self._skip((connection,))

    def _skip(self, connections: Iterable[Connection]) -> None:
        self._skipped.update(connections)
        self._announcements.set(self._announcements.value + 1)


def _describe_download(connection: Connection) -> str:
    if not connection.status.stderr or connection.state is not ServerState.STARTING:
        return ""
    from dial_client.servers.package_downloads import describe_download

    return describe_download(connection.settings, connection.status.stderr)


class ServerManager(Mapping[str, Connection]):
    """All servers of a client, by their names in the configuration.

    A server with ``perUser`` is that of the person for whom the program acts (`hooks.owners`).
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        capabilities: ClientCapabilities = ClientCapabilities(),  # noqa: B008 - frozen
        connect: Connect = Connection,
        startup_patience: float = STARTUP_PATIENCE,
        credentials: CredentialProvider | None = None,
    ) -> None:
        self.targets = dict(targets)
        """How each server is reached."""
        self.announcements = Observable(0)
        """The number of changes of all servers together: of states, of tools, and of lists of resources and prompts."""
        self.on_log_message: Callable[[LogMessage], None] | None = None
        """Called with the log messages of all servers."""
        self.may_use: Callable[[str, str], bool] | None = None
        """Whether a person, named first, may use a server; other servers are not there for this person."""
        self.find_tool_patterns: Callable[[str], tuple[str, ...] | None] | None = None
        """Returns the patterns ``server/tool`` of the tools that a person may use, None for all; None if everybody may
        use all tools."""
        on_change = capabilities.on_change

        def announce(name: str, status: ServerStatus) -> None:
            self.announcements.set(self.announcements.value + 1)
            if on_change is not None:
                on_change(name, status)

        def count_change() -> None:
            self._revision += 1

        def announce_list() -> None:
            self.announcements.set(self.announcements.value + 1)

        def pass_log(message: LogMessage) -> None:
            if self.on_log_message is not None:
                self.on_log_message(message)

        self._capabilities = replace(
            capabilities,
            on_change=announce,
            on_tools=count_change,
            on_list_change=announce_list,
            on_log_message=pass_log,
        )
        # Other persons learn neither the state of a person's server, nor what it logs outside of calls.
        self._capabilities_of_person = replace(
            self._capabilities,
            on_change=lambda *_: announce_list(),
            on_log_message=lambda message: pass_log(message) if message.origins else None,
        )
        self._connect, self._credentials = connect, credentials
        # The names of the servers with a session for each person.
        self._personal: dict[str, None] = {}
        self._connections = {name: self._create(name, target) for name, target in targets.items()}
        # The servers with sessions per person, by their names and persons, those that were used last at the end.
        self._owned: OrderedDict[tuple[str, str], OwnerConnection] = OrderedDict()
        self._tasks: BackgroundTasks | None = None
        self._revision = 0
        self._is_closed = False
        self.patience = StartPatience(startup_patience, self._connections, self.announcements)
        """How long turns wait for servers that are starting."""

    def _list_hidden(self) -> tuple[str, ...]:
        """Return the names of the servers that are not there for the person for whom the program acts."""
        may_use = self.may_use
        if may_use is None or not (owner := find_owner()):
            return ()
        return tuple(name for name in self._connections if not may_use(owner, name))

    def __getitem__(self, name: str) -> Connection:
        if name in self._list_hidden():
            raise KeyError(name)
        connection = self._connections[name]
        if name in self._personal:
            owner = find_owner()
            # Without a provider, an unnamed person is the only one, and the server is like any other.
            if owner or self._credentials is not None:
                return self._find_owned(connection, owner)
        return connection

    def _find_owned(self, base: Connection, owner: str) -> OwnerConnection:
        key = base.name, owner
        found = self._owned.get(key)
        if found is None:
            for known in tuple(self._owned) if len(self._owned) >= MAX_OWNERS else ():
                if not self._owned[known].has_session:
                    del self._owned[known]
                    break
            found = OwnerConnection(
                owner, self.targets[base.name], base, self._capabilities_of_person, self._credentials
            )
            self._owned[key] = found
        self._owned.move_to_end(key)
        return found

    @property
    def tool_patterns(self) -> tuple[str, ...] | None:
        """The patterns ``server/tool`` of what the person may use for whom the program acts; None for all tools."""
        return None if self.find_tool_patterns is None else self.find_tool_patterns(find_owner())

    @property
    def owned(self) -> tuple[OwnerConnection, ...]:
        """The servers with ``perUser`` of the person for whom the program acts."""
        if not self._personal:
            return ()
        found = (self[name] for name in self if name in self._personal)
        return tuple(connection for connection in found if isinstance(connection, OwnerConnection))

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The servers of all persons, for what is done in the background for all of them."""
        is_shared = self._credentials is None
        shared = (own for name, own in self._connections.items() if is_shared or name not in self._personal)
        return (*shared, *self._owned.values())

    @property
    def revision(self) -> tuple[str, tuple[int, ...]]:
        """Whose servers these are, and numbers that are others whenever a server comes, goes, or changes its tools.

        The servers are those of the person for whom the program acts; an empty text if all persons have the same
        sessions. A server that is restarted changes the numbers too.
        """
        if not self._personal and self.may_use is None:
            return "", (self._revision,)
        hidden = self._list_hidden()
        own = [number for own in self.owned for number in (id(own), own.revision)]
        owner = find_owner() if self._personal else ""
        return owner, (self._revision, *own, *((hash(hidden),) if hidden else ()))

    async def prepare_owner(self) -> None:
        """Start the servers of the person for whom the program acts whose tools are not known yet, as for a turn.

        At most `STARTUP_PATIENCE` seconds; the tools of a slower server are offered later.
        """
        if not (owned := self.owned):
            return
        with anyio.move_on_after(STARTUP_PATIENCE):
            async with anyio.create_task_group() as group:
                for connection in owned:
                    group.start_soon(connection.prepare)

    def describe_missing(self, find_reason: Callable[[Connection], str] | None = None) -> str:
        """Return a sentence on the servers that still start or cannot be used, and why; else empty.

        What is not found may be one of theirs.

        Args:
            find_reason: Returns why what a server has is not known, empty if it is; None for the tools of servers.
        """
        find_reason = find_reason or (lambda connection: "" if connection.tools else find_absence(connection))
        missing = [
            f"{name!r} ({to_one_line(reason, _MAX_REASON)})"
            for name, connection in self.items()
            if (reason := find_reason(connection))
        ]
        return f"These servers are not available: {', '.join(missing)}." if missing else ""

    # Each round reads all servers several times. Where they are the same for all persons, none is looked up by itself.
    def values(self) -> ValuesView[Connection]:
        """Return the servers of the person for whom the program acts."""
        return super().values() if self._personal or self.may_use is not None else self._connections.values()

    def items(self) -> ItemsView[str, Connection]:
        """Return these servers with their names."""
        return super().items() if self._personal or self.may_use is not None else self._connections.items()

    def __iter__(self) -> Iterator[str]:
        hidden = self._list_hidden()
        return (name for name in self._connections if name not in hidden) if hidden else iter(self._connections)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def start(self, tasks: BackgroundTasks) -> None:
        """Start all servers concurrently, without waiting for them. May be called again after `aclose`."""
        self._tasks = tasks
        if self._is_closed:  # a connection runs once
            self._is_closed = False
            for name in self._connections:
                self._connections[name] = self._create(name, self.targets[name])
            self._revision += 1
        for connection in self._connections.values():
            self._start(connection, tasks)

    def _create(self, name: str, target: Target) -> Connection:
        self._personal.pop(name, None)
        if serves_persons(target):
            self._personal[name] = None
            if self._credentials is None:
                target = fill_from_environment(target)
        return self._connect(name, target, self._capabilities)

    def _start(self, connection: Connection, tasks: BackgroundTasks) -> None:
        if self._credentials is not None and connection.name in self._personal:
            connection.separate.tasks = tasks  # each person's use starts a session
            connection.publish(ServerState.SLEEPING, None)
            return
        connection.start(tasks)
        tasks.start_soon(self.patience.limit, connection)

    async def add(self, name: str, target: Target) -> ServerStatus:
        """Add a server, start it, and wait until it is ready or has failed. Cancellation removes it again.

        Raises:
            ConfigError: A server of this name exists already.
        """
        if name in self._connections:
            raise ConfigError(f"there is a server {name!r} already", hint="remove that server, or restart it")
        return (await self._connect_and_start(name, target)).status

    async def remove(self, name: str) -> None:
        """Stop and remove a server. Calls in flight fail.

        Raises:
            ConfigError: There is no server of this name.
        """
        connection = self._find(name)
        self._forget_owned(name)
        self._personal.pop(name, None)
        del self._connections[name], self.targets[name]
        self._revision += 1
        await _stop(connection)
        # A server that had failed does not change its state when it is stopped.
        self.announcements.set(self.announcements.value + 1)

    async def restart(self, name: str) -> ServerStatus:
        """Stop a server in any state, start it again, and wait until it is ready or has failed.

        Of a server with ``perUser`` this is the session of the person for whom the program acts.

        Raises:
            ConfigError: There is no server of this name.
        """
        before = self._find(name)
        if isinstance(own := self[name], OwnerConnection):  # a person restarts no server of another one
            own.end_sessions()
            await own.wait_settled(STARTUP_PATIENCE)
            return own.status
        connection = await self._connect_and_start(name, self.targets[name], before)
        if self._tasks is not None:
            await connection.wake()
        return connection.status

    async def replace(self, name: str, target: Target) -> ServerStatus:
        """Stop a server, start another one under its name, and wait until that is ready or has failed.

        Raises:
            ConfigError: There is no server of this name.
        """
        return (await self._connect_and_start(name, target, self._find(name))).status

    async def _connect_and_start(self, name: str, target: Target, before: Connection | None = None) -> Connection:
        """Register a connection before any wait, so that no other task can take the name, and start it."""
        connection = self._create(name, target)
        self._forget_owned(name)
        self._connections[name], self.targets[name] = connection, target
        self._revision += 1
        try:
            if before is not None:
                await _stop(before)
            if self._tasks is not None:
                self._start(connection, self._tasks)
                await connection.wait_settled()
        except BaseException:
            if before is None and self._connections.get(name) is connection:
                await self.remove(name)
            raise
        return connection

    def _forget_owned(self, name: str) -> None:
        for key in [key for key in self._owned if key[0] == name]:
            del self._owned[key]

    def _find(self, name: str) -> Connection:
        if name not in self._connections:
            raise ConfigError(f"there is no server {name!r}", hint=suggest_name(name, self))
        return self._connections[name]

    async def wait_settled(self) -> None:
        """Wait until the first start of every server has ended, successfully or not."""
        for connection in tuple(self._connections.values()):
            await connection.wait_settled()

    def require(self) -> None:
        """Check the servers that are marked ``required``.

        Raises:
            ServerStartError: A required server did not start.
        """
        for connection in self._connections.values():
            is_required = connection.settings is not None and connection.settings.required
            if is_required and connection.state is ServerState.FAILED:
                raise ServerStartError(connection.name, connection.error or "it did not start")

    async def wait_for_tools(self) -> None:
        """Wait until announced tool changes, and expired lists, are read, at most `FRESH_SECONDS`.

        To be called before each model call.
        """
        connections = tuple(self.values())
        if not all(connection.has_current_tools for connection in connections):
            with anyio.move_on_after(FRESH_SECONDS):
                for connection in connections:
                    await connection.wait_for_tools()

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems, one line each: servers that are not available, and irregularities of servers."""
        lines: list[str] = []
        left_out = self.patience.find_left_out()
        for status in self.summaries:
            if failure := describe_failure(status):
                lines.append(failure)
            elif status.state is ServerState.RESTARTING:
                lines.append(_describe_restart(status.name, status.error))
            elif status.name in left_out:
                download = f" ({left_out[status.name]})" if left_out[status.name] else ""
                lines.append(f"server {status.name!r} is still starting{download}: the turn continues without it")
            lines += [f"server {status.name!r}: {note}" for note in status.notes]
        return tuple(lines)

    @property
    def summaries(self) -> tuple[ServerStatus, ...]:
        """The `Connection.summary` of each server."""
        return tuple(connection.summary for connection in self.values())

    @property
    def restarts(self) -> Mapping[str, int]:
        """The number of restarts of each server."""
        return {name: connection.summary.restarts for name, connection in self.items()}

    def describe_restarts(self, restarts: Mapping[str, int]) -> tuple[str, ...]:
        """Return one line for each server that died and was restarted since `restarts` was read.

        Args:
            restarts: An earlier value of `ServerManager.restarts`.
        """
        return tuple(
            _describe_restart(name, connection.error)
            for name, connection in self.items()
            if connection.state is ServerState.READY and connection.summary.restarts > restarts.get(name, 0)
        )

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that servers are asked for; None if each server decides."""
        return self._capabilities.callbacks.log_level

    async def set_log_level(self, level: str, seconds: float) -> None:
        """Request log messages from this level on, from all servers, and wait at most `seconds` until they confirm."""
        callbacks = replace(self._capabilities.callbacks, log_level=level)
        self._capabilities = replace(self._capabilities, callbacks=callbacks)
        self._capabilities_of_person = replace(self._capabilities_of_person, callbacks=callbacks)
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for connection in self._connections.values():
                    group.start_soon(connection.set_log_level, level)

    async def aclose(self) -> None:
        """Stop all servers concurrently, and wait until they have ended. May be called twice, from any task."""
        self._tasks, self._is_closed = None, True
        for connection in self._connections.values():
            connection.stop()
        with anyio.CancelScope(shield=True):
            for connection in tuple(self._connections.values()):
                await connection.wait_ended()
        self._owned.clear()


class OwnerViews(Generic[ValueT]):
    """What is built from the servers' tools: one value for each person whose servers differ, else one for all.

    Args:
        servers: The servers.
    """

    def __init__(self, servers: ServerManager) -> None:
        self._servers = servers
        self._views: OrderedDict[str, tuple[tuple[int, ...], ValueT, int]] = OrderedDict()

    def find(self) -> ValueT | None:
        """Return the value that was built last for the person for whom the program acts; None for none yet."""
        known = self._views.get(self._servers.revision[0])
        return known[1] if known is not None else None

    def get(self, build: Callable[[], ValueT], revision: int = 0) -> ValueT:
        """Return the value for the person for whom the program acts; it is built anew if something has changed.

        Args:
            build: Builds the value.
            revision: A number that grows when something besides the servers has changed.
        """
        owner, numbers = self._servers.revision
        known = self._views.get(owner)
        if known is not None and known[0] == numbers and known[2] == revision:
            return known[1]
        value = build()
        self._views[owner] = numbers, value, revision
        if len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return value


async def _stop(connection: Connection) -> None:
    connection.stop()
    with anyio.CancelScope(shield=True):
        await connection.wait_ended()


def _describe_restart(name: str, error: str | None) -> str:
    # The same words during the restart and after it: a turn has notes of its beginning and of its end.
    return f"server {name!r} died and is restarted: {error}" if error else f"server {name!r} is being restarted"

"""One task owns one server: it connects, lists the tools, serves calls from any task, and leaves nothing behind.

Connections.start   one owner task each, all side by side
  Connection.run    STARTING -> READY -> STOPPED, or FAILED with the reason
    links_to        a process or a URL; made first, so that a process boots while the SDK is imported
    mcp.Client      entered and left here and nowhere else
Connection.call     from anywhere; what goes wrong is a `ServerGone` or a `ServerError`, in words
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from dial_client.config import Protocol, ServerSettings
from dial_client.errors import ServerError, ServerGone, ServerStartError
from dial_client.listing import ToolWatch, has_changes_to_tell, is_modern
from dial_client.logs import get_logger
from dial_client.nursery import Nursery
from dial_client.server_status import OnChange, ServerState, ServerStatus, one_line
from dial_client.transports.links import Hooks, InProcessLink, Link, links_to

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, Tool

__all__ = ["Connection", "Connections", "OnChange", "OnProgress", "ServerState", "ServerStatus", "Target"]

log = get_logger(__name__)

STARTUP_SECONDS = 60.0
"""For a server in this process; the others have it in their settings."""
CLOSE_SECONDS = 3.0
"""Seconds for a server behind a URL to be told that its session ends."""
FRESH_SECONDS = 2.0
_FALL_BACK = (400, 404, 405)
"""What a URL that speaks only HTTP+SSE answers to streamable HTTP (MCP specification, "Backwards Compatibility")."""
MAX_NOTES = 50
MAX_INSTRUCTIONS = 20_000
"""Characters of a server's own instructions that are kept."""

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
Target = Any
"""A `ServerSettings`, or a server object of the SDK in this process (`mcp.server.MCPServer`, lowlevel `Server`)."""


class Connection:
    """One server: its owner task (`run`), and what everybody else may ask of it."""

    def __init__(self, name: str, target: Target, on_change: OnChange | None = None) -> None:
        self.name = name
        self.settings: ServerSettings | None = target if isinstance(target, ServerSettings) else None
        self.tools: tuple[Tool, ...] = ()
        """What it offers now; empty unless it is ready."""
        self.revision = 0
        """Grows with each change of `tools`."""
        self._target = target
        self._on_change = on_change
        enabled = self.settings is None or self.settings.enabled
        self._status = ServerStatus(name, ServerState.STARTING if enabled else ServerState.DISABLED)
        self._notes: dict[str, None] = {}
        self._link: Link | None = None
        self._client: Client | None = None
        self._calls: set[anyio.CancelScope] = set()
        self._watch = ToolWatch(self._note)
        self._stop = anyio.Event()
        self._over = anyio.Event()
        self._reason: str | None = None
        self._refused: str | None = None
        self._settled = anyio.Event()
        self._down = anyio.Event()
        self._ended = anyio.Event()
        self._running = False

    @property
    def status(self) -> ServerStatus:
        """What is known of it now."""
        stderr = self._link.stderr if self._link else ()
        names = tuple(tool.name for tool in self.tools)
        return replace(self._status, tools=names, notes=tuple(self._notes), stderr=stderr)

    def start(self, nursery: Nursery) -> None:
        """Start the owner task."""
        self._running = True
        nursery.start_soon(self.run)

    async def ready(self) -> None:
        """Wait until it is known whether it can be used: ready, failed, stopped or disabled.

        Its start-up timeout bounds this, once it was started.
        """
        if self._status.state is not ServerState.DISABLED:
            await self._settled.wait()

    async def fresh(self) -> None:
        """Wait until a change of the tools it has announced is in `tools`, at most `FRESH_SECONDS`."""
        if self._status.state is ServerState.READY:
            await self._watch.settled(FRESH_SECONDS)

    def stop(self) -> None:
        """Let `run` come to its end. Calls in flight fail at once."""
        self._stop.set()

    async def ended(self) -> None:
        """Wait until `run` has ended and left nothing behind; does not wait if it was never started."""
        if self._running:
            await self._ended.wait()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> CallToolResult:
        """Call a tool by its own name, from any task, any number at once. No timeout; cancelling it tells the server.

        Raises:
            ServerGone: the server is not ready, or its connection broke before the result was there.
            ServerError: it refused the call, has no such tool, or its result is not valid.
        """
        client = self._client
        if client is None:
            raise ServerGone(self.name, self._absence())
        if not any(known.name == tool for known in self.tools):
            # The SDK would let it run, and then ask for the list of tools to find its schema.
            raise ServerError(self.name, f"it has no tool {tool!r} any more")
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                return await client.call_tool(
                    tool, dict(arguments), progress_callback=cast("ProgressFnT | None", on_progress)
                )
            except Exception as error:
                raise await self._failure(error) from error
            finally:
                self._calls.discard(scope)
        raise ServerGone(self.name, self._absence())

    async def run(self) -> None:
        """Own the server, from its start to its end. Raises nothing but cancellation.

        Returns when `stop` was called or the server is gone. Starting a dead server again belongs around `_live`.
        """
        life = anyio.CancelScope()
        try:
            if self._status.state is ServerState.DISABLED or self._stop.is_set():
                return
            async with anyio.create_task_group() as group:
                group.start_soon(self._limit, life)
                group.start_soon(self._obey_stop, life)
                with life:
                    await self._live()
                group.cancel_scope.cancel()
        finally:
            self._set_down(ServerState.STOPPED)
            self._ended.set()

    async def _limit(self, life: anyio.CancelScope) -> None:
        """End a start that takes too long, and later a goodbye that does."""
        seconds = self.settings.startup_timeout if self.settings is not None else STARTUP_SECONDS
        with anyio.move_on_after(seconds) as start:
            await self._settled.wait()
        if start.cancelled_caught:
            said = self._link.stderr if self._link is not None else ()
            last = f"; it last said: {said[-1]}" if said else ""
            self._set_down(ServerState.FAILED, f"not ready within {seconds:g} seconds{last}")
            life.cancel()
        await self._down.wait()
        life.deadline = anyio.current_time() + CLOSE_SECONDS

    async def _obey_stop(self, life: anyio.CancelScope) -> None:
        await self._stop.wait()
        was_serving = self._client is not None
        self._set_down(ServerState.STOPPED)
        self._over.set()
        if not was_serving:
            life.cancel()

    async def _live(self) -> None:
        """Try the ways to the server one after the other, and serve over the first that works."""
        try:
            for link in self._links():
                self._link = link
                try:
                    # The other owners start their processes now, before importing the SDK stops them all.
                    await anyio.lowlevel.checkpoint()
                    await self._serve_over(link)
                # The star: on trio an error may come in one group with a cancellation, which has to go on.
                except* Exception as errors:  # noqa: BLE001 (whatever it is, it becomes the status)
                    await self._report(link, errors)
                finally:
                    await link.aclose()
                if self._status.state is not ServerState.STARTING:
                    return
        except ServerStartError as error:
            self._set_down(ServerState.FAILED, error.problem)

    def _links(self) -> Iterator[Link]:
        return iter((InProcessLink(self._target),)) if self.settings is None else links_to(self.settings)

    async def _serve_over(self, link: Link) -> None:
        async with self._client_over(link) as client, anyio.create_task_group() as group:
            if has_changes_to_tell(client):
                group.start_soon(self._watch.listen, client)
            self._set_up(client, await self._watch.read(client))
            group.start_soon(self._watch.refresh, client, self._offer)
            await self._over.wait()
            if not self._stop.is_set():
                self._set_down(ServerState.FAILED, self._reason or await link.last_words())
            group.cancel_scope.cancel()

    def _client_over(self, link: Link) -> Client:
        from mcp import Client
        from mcp_types import Implementation

        from dial_client import __version__

        async def leaving(error: BaseException) -> None:
            # Leaving may take seconds, when a process has to be ended: what is wrong is said before.
            if isinstance(error, Exception):
                await self._report(link, error)

        _silence_sdk()
        mode: Any = self.settings.protocol.value if self.settings is not None else Protocol.AUTO.value
        return Client(
            link.target(Hooks(self._note, self._end, leaving)),
            mode=mode,
            client_info=Implementation(name="dial-client", version=__version__),
            message_handler=self._on_message,
            cache=None,
        )

    async def _report(self, link: Link, error: Exception) -> None:
        """Make an error the reason why there is no server, unless another way to it is still to be tried."""
        if self._down.is_set():
            return
        from dial_client.transports import faults

        cause = faults.cause_of(error)
        # That the connection is closed says nothing: the link knows how it came to that.
        words = (self._reason or await link.last_words()) if faults.is_closed(cause) else faults.in_words(cause)
        if link.is_streamable_http and faults.http_status(cause) in _FALL_BACK and self._client is None:
            self._refused = words
        else:
            other = "" if self._refused in (None, words) else f"; as streamable HTTP: {self._refused}"
            self._set_down(ServerState.FAILED, words + other)

    def _set_up(self, client: Client, tools: tuple[Tool, ...]) -> None:
        if self._down.is_set():
            return
        self._client = client
        info, instructions = client.server_info, client.instructions
        self._status = replace(
            self._status,
            state=ServerState.READY,
            era=client.protocol_version,
            instructions=instructions[:MAX_INSTRUCTIONS] if instructions else None,
            server_name=info.name if info else None,
            server_version=info.version if info else None,
        )
        self.tools, self.revision = tools, self.revision + 1
        self._settled.set()
        log.debug("server_ready", server=self.name, era=self._status.era, tools=len(tools))
        self._changed()

    def _set_down(self, state: ServerState, error: str | None = None) -> None:
        """Make it unusable, once and for good: calls in flight fail at once."""
        if self._down.is_set() or self._status.state is ServerState.DISABLED:
            return
        self._client = None
        self.tools, self.revision = (), self.revision + 1
        self._status = replace(self._status, state=state, error=one_line(error) if error else None)
        self._down.set()
        self._settled.set()
        for call in self._calls:
            call.cancel()
        log.debug("server_down", server=self.name, state=state.value)
        self._changed()

    def _offer(self, tools: tuple[Tool, ...]) -> None:
        if tools != self.tools and not self._down.is_set():
            self.tools, self.revision = tools, self.revision + 1
            self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change(self.name, self.status)

    def _note(self, note: str) -> None:
        if len(self._notes) < MAX_NOTES and note not in self._notes:
            self._notes[note] = None
            log.debug("server_is_odd", server=self.name, note=note)

    def _end(self, reason: str | None) -> None:
        self._reason = self._reason or reason
        self._over.set()

    async def _on_message(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._watch.news()

    async def _failure(self, error: Exception) -> ServerError:
        from dial_client.transports import faults

        cause = faults.cause_of(error)
        has_session = self._link is not None and self._link.is_streamable_http and not is_modern(self._status.era)
        if has_session and faults.is_forgotten_session(cause):
            self._end("the server has forgotten the session; was it restarted?")
        if self._over.is_set() or faults.is_closed(cause):
            with anyio.move_on_after(FRESH_SECONDS):  # the owner finds out how the server ended
                await self._down.wait()
            return ServerGone(self.name, self._absence())
        words = faults.in_words(cause)
        return ServerGone(self.name, words) if faults.is_broken_off(cause) else ServerError(self.name, words)

    def _absence(self) -> str:
        match self._status.state:
            case ServerState.FAILED:
                return self._status.error or "it failed"
            case ServerState.STARTING:
                return "it is still starting"
            case ServerState.DISABLED:
                return "it is disabled"
            case ServerState.STOPPED:
                return "it was stopped"
            case ServerState.READY:
                return "the connection was closed"


Connect = Callable[[str, Target, OnChange | None], Connection]
"""Makes the connection to one server; it is not started yet."""


class Connections(Mapping[str, Connection]):
    """All servers of a client, by their names in the configuration."""

    def __init__(
        self, targets: Mapping[str, Target], on_change: OnChange | None = None, connect: Connect = Connection
    ) -> None:
        self._connections = {name: connect(name, target, on_change) for name, target in targets.items()}

    def __getitem__(self, name: str) -> Connection:
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def start(self, nursery: Nursery) -> None:
        """Start all servers side by side, without waiting for any."""
        for connection in self.values():
            connection.start(nursery)

    async def ready(self) -> None:
        """Wait until of every server it is known whether it can be used."""
        for connection in self.values():
            await connection.ready()

    async def fresh(self) -> None:
        """Wait until announced changes of tools are in, at most `FRESH_SECONDS`: good to do before a round."""
        with anyio.move_on_after(FRESH_SECONDS):
            for connection in self.values():
                await connection.fresh()

    async def aclose(self) -> None:
        """Stop all servers side by side, and wait until nothing of them is left. May be called twice, from any task."""
        for connection in self.values():
            connection.stop()
        with anyio.CancelScope(shield=True):
            for connection in self.values():
                await connection.ended()


def _silence_sdk() -> None:
    """Keep the SDK quiet where the user set no level: it logs tracebacks of what it recovers from, and arguments."""
    for name in ("mcp.client", "mcp.shared"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
    # The SDK's session logs under a name that may be the user's own.
    logging.getLogger("client").addFilter(_is_not_the_sdks)


def _is_not_the_sdks(record: logging.LogRecord) -> bool:
    return "mcp" not in Path(record.pathname).parts

"""One server: the task that owns it, and what everybody else may ask of it.

Connection.run      STARTING -> READY -> STOPPED, or FAILED with the reason; READY -> RESTARTING -> READY;
                    SLEEPING -> STARTING where it is lazy
  Life.run          one life of the server, and then perhaps another
  Supervisor        whether, and after how long a pause
Connection.call     from anywhere; waits for a restart, and is repeated where that is safe
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from dial_client import call_context
from dial_client.background_tasks import BackgroundTasks
from dial_client.call_context import CallContext
from dial_client.callbacks.server_callbacks import ServerLog
from dial_client.deadline import Deadline
from dial_client.errors import ServerError, ServerGone
from dial_client.logs import get_logger
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.notifications import Listing, Notifications
from dial_client.servers.restart_policy import ExitKind, RestartPolicy, jittered
from dial_client.servers.server_cache import ServerCache
from dial_client.servers.session import (
    FRESH_SECONDS,
    Answer,
    NotRun,
    OnProgress,
    ServerSession,
    Target,
    startup_seconds,
)
from dial_client.servers.status import MAX_REASON_CHARS, ServerState, ServerStatus
from dial_client.servers.tool_listing import is_modern
from dial_client.settings.configuration import Protocol, ServerSettings
from dial_client.text.safe_text import one_line

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

log = get_logger(__name__)

MAX_NOTES = 50
MAX_LOGS = 100
"""Log messages of a server that are kept: the last ones."""
MAX_INSTRUCTIONS = 20_000
"""Characters of a server's own instructions that are kept."""
REPEAT_PAUSES = (0.2, 0.5)
"""Seconds before a call is made again; there are as many repetitions, and one at most of a call that may have run."""
_LINES_BEFORE = 3
"""Lines of standard error, besides the last, that say why a server was given up."""


class Connection:
    """One server: its owner task (`run`), and what everybody else may ask of it."""

    def __init__(self, name: str, target: Target, host: ClientCapabilities = ClientCapabilities()) -> None:  # noqa: B008 - frozen
        self.name = name
        self.settings: ServerSettings | None = target if isinstance(target, ServerSettings) else None
        self.tools: tuple[Tool, ...] = ()
        """What it offers now; while it sleeps or is started again, what it offered before; else empty unless ready."""
        self.revision = 0
        """Grows with each change of `tools`."""
        self.news = Notifications(name)
        """What it says of changes of its resources and prompts."""
        self._target = target
        self._host = host
        self._memory = ServerCache(self.settings, host.memory)
        self._pushes: bool | None = None
        """Whether it pushes its questions, which only the older protocol has; False where it would not be opened so."""
        enabled = self.settings is None or self.settings.enabled
        self._status = ServerStatus(name, ServerState.STARTING if enabled else ServerState.DISABLED)
        self._notes: dict[str, None] = {}
        self._logs: deque[ServerLog] = deque(maxlen=MAX_LOGS)
        self._callbacks = host.callbacks_for(self.settings, self._logs)
        self._life: ServerSession | None = None
        self._supervisor = RestartPolicy()
        self._pause: float | None = None
        self._stop = anyio.Event()
        self._wake = anyio.Event()
        self._settled = anyio.Event()
        self._moved = anyio.Event()
        self._ended = anyio.Event()
        self._running = False

    @property
    def status(self) -> ServerStatus:
        """What is known of it now."""
        stderr = self._life.stderr if self._life is not None else ()
        names = tuple(tool.name for tool in self.tools)
        return replace(self._status, tools=names, notes=tuple(self._notes), stderr=stderr, logs=tuple(self._logs))

    def start(self, nursery: BackgroundTasks) -> None:
        """Start the owner task."""
        self._running = True
        nursery.start_soon(self.run)

    async def ready(self) -> None:
        """Wait until it is known whether it can be used: ready, sleeping, failed, stopped or disabled.

        Its start-up timeout bounds this. One that was ready before is not waited for again, and one that was never
        started not at all.
        """
        if self._running and self._status.state is not ServerState.DISABLED:
            await self._settled.wait()

    async def fresh(self) -> None:
        """Wait until a change of the tools it has announced is in `tools`, at most `FRESH_SECONDS`.

        So is one it need not announce: a server that is being started again now may come back with other tools.
        """
        with anyio.move_on_after(FRESH_SECONDS):
            while self._is_coming_back():
                await self._moved.wait()
            if self._life is not None and self._life.is_serving:
                await self._life.watch.settled(FRESH_SECONDS)

    def stop(self) -> None:
        """Let `run` come to its end. Calls in flight, and those that wait for a restart, fail at once."""
        self._stop.set()
        self._wake.set()

    async def ended(self) -> None:
        """Wait until `run` has ended and left nothing behind; does not wait if it was never started."""
        if self._running:
            await self._ended.wait()

    async def awake(self) -> None:
        """Start it where it sleeps, and wait for that; `call` says what came of it, and `tools` may be others."""
        self._wake.set()
        with anyio.move_on_after(startup_seconds(self.settings)):
            while self._is_waking():
                await self._moved.wait()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> CallToolResult:
        """Call a tool by its own name, from any task, any number at once. No timeout; cancelling it tells the server.

        A server that is being started again is waited for, as long as its start may take. A call that is lost is made
        once more where it did not reach the server, or where a server marked ``trusted`` says of the tool that it
        changes nothing or may be repeated (MCP specification, "Tool Annotations").

        Raises:
            ServerGone: the server is not ready, or its connection broke before the result was there.
            ServerError: it refused the call, has no such tool, or its result is not valid.
        """
        first: ServerSession | None = None
        may_repeat: bool | None = None
        for pause in (*REPEAT_PAUSES, None):
            life = await self._serving(tool)
            first = first or life
            may_repeat = self._is_repeatable(tool) if may_repeat is None else may_repeat
            try:
                return await life.call(tool, arguments, on_progress, is_new_for_it=life is not first)
            except ServerGone as gone:
                was_run = not isinstance(gone, NotRun)
                if pause is None or (was_run and not may_repeat):
                    raise
                may_repeat = may_repeat and not was_run
                log.debug("call_repeated", server=self.name, tool=tool)
            await anyio.sleep(jittered(pause))
        raise ServerGone(self.name, self._absence())

    async def ask(self, request: Callable[[Client], Awaitable[Answer]], seconds: float) -> Answer:
        """Ask what changes nothing and may be asked again: for a list, a resource, a prompt, completions.

        Args:
            request: is given the SDK's client.
            seconds: for all of it, a restart that is waited for included; waiting for a person does not count. On the
                errand of a tool call it is that one's time that counts.

        Raises:
            ServerGone: the server is not ready, or its connection broke twice.
            ServerError: it refused, its answer is not valid, or it gave none in time.
        """
        if call_context.current() is not None:
            return await self._ask(request)
        own = Deadline(seconds)
        with own.scope(), call_context.on(CallContext(own, own)):
            return await self._ask(request)
        raise ServerError(self.name, f"no answer within {seconds:g} seconds")

    async def _ask(self, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
        life = first = await self.up()
        try:
            return await life.ask(request)
        except ServerGone:
            await anyio.sleep(jittered(REPEAT_PAUSES[0]))
        life = await self.up()
        return await life.ask(request, is_new_for_it=life is not first)

    async def _serving(self, tool: str) -> ServerSession:
        """Give the life to call a tool of, waiting for a restart.

        Raises:
            ServerGone: there is none, or not soon enough.
            ServerError: it has no such tool.
        """
        life = await self.up()
        if not any(known.name == tool for known in self.tools):
            # The SDK would let it run, and then ask for the list of tools to find its schema.
            raise ServerError(self.name, f"it has no tool {tool!r} any more")
        return life

    async def up(self) -> ServerSession:
        """Give the life to ask, waiting for its start where it sleeps, and for a restart.

        Raises:
            ServerGone: there is none, or not soon enough.
        """
        await self.awake()
        with anyio.move_on_after(startup_seconds(self.settings)):
            while self._is_restarting():
                await self._moved.wait()
        life = self._life
        if life is None or not life.is_serving:
            raise ServerGone(self.name, self._absence())
        return life

    def _is_repeatable(self, tool: str) -> bool:
        if self.settings is None or not self.settings.trusted:
            return False
        hints = next((known.annotations for known in self.tools if known.name == tool), None)
        return bool(hints and (hints.read_only_hint or hints.idempotent_hint))

    def _is_waking(self) -> bool:
        return self._settled.is_set() and self._status.state in (ServerState.SLEEPING, ServerState.STARTING)

    def _is_restarting(self) -> bool:
        is_up = self._life is not None and self._life.is_serving
        return self._status.state is ServerState.RESTARTING or (self._status.state is ServerState.READY and not is_up)

    def _is_coming_back(self) -> bool:
        """Whether it is being started again now, and not only after a pause."""
        is_pausing = bool(self._pause) and self._life is not None and self._life.ending is not None
        return self._is_restarting() and not is_pausing

    async def run(self) -> None:
        """Own the server, from its first start to its end. Raises nothing but cancellation.

        Returns when `stop` was called or the server is given up.
        """
        try:
            if self._status.state is ServerState.DISABLED or self._stop.is_set():
                return
            async with anyio.create_task_group() as group:
                group.start_soon(self._obey_stop)
                await self._live()
                group.cancel_scope.cancel()
        finally:
            if self._status.state is not ServerState.FAILED:
                self._become(ServerState.STOPPED, self._status.error)
            self._ended.set()

    async def _sleep(self) -> None:
        """Offer the tools it had the last time until somebody calls one, if it is lazy and they are known."""
        is_lazy = self.settings is not None and self.settings.lazy
        if is_lazy and (tools := self._memory.tools()) is not None:
            self._offer(tools)
            self._become(ServerState.SLEEPING, None)
            await self._wake.wait()
            if not self._stop.is_set():
                self._become(ServerState.STARTING, None)

    async def _live(self) -> None:
        await self._sleep()
        while not self._stop.is_set() and (pause := await self._live_once()) is not None:
            with anyio.move_on_after(pause):
                await self._stop.wait()
            if self._stop.is_set():
                return
            if self._status.state not in (ServerState.STARTING, ServerState.READY):
                self._status = replace(self._status, restarts=self._status.restarts + 1)

    async def _live_once(self) -> float | None:
        """Give the seconds until the next life; None where there is none."""
        self._pause = None
        protocol = self.settings.protocol if self.settings is not None else Protocol.AUTO
        was_legacy = bool(self._pushes) or (self._life is not None and self._life.is_legacy)
        if protocol is Protocol.AUTO and (was_legacy or (self._life is None and self._memory.guess())):
            # Asking for the newer era again can cost ten seconds: servers may ignore what they do not know.
            protocol = Protocol.LEGACY
        self._life = ServerSession(self.name, self._target, self, protocol, self._callbacks)
        self._life.can_be_reopened = self._pushes is None
        await self._life.run()
        return self._pause

    async def _obey_stop(self) -> None:
        await self._stop.wait()
        if self._life is not None:
            self._life.leave()
        if self._status.state is ServerState.RESTARTING:
            self._become(ServerState.STOPPED, self._status.error)

    def came_up(self, life: ServerSession) -> None:
        """Take note that it is ready."""
        self._supervisor.came_up(anyio.current_time())
        client = life.client
        assert client is not None
        info, instructions = client.server_info, client.instructions
        self._status = replace(
            self._status,
            era=client.protocol_version,
            instructions=instructions[:MAX_INSTRUCTIONS] if instructions else None,
            server_name=info.name if info else None,
            server_version=info.version if info else None,
        )
        self.news.listed(Listing.RESOURCES, Listing.PROMPTS)
        self._offer(life.tools)
        self._remember(life)
        self._become(ServerState.READY, self._status.error)

    def went_down(self, life: ServerSession) -> None:
        """Find out what follows from the end of a life."""
        assert life.ending is not None
        if life.ending.kind is ExitKind.STOPPED and self._status.state is ServerState.FAILED:
            return
        if life.ending.kind is ExitKind.DIED and self._memory.was_wrong(startup_seconds(self.settings)):
            self._pause = 0.0
            return
        if life.ending.kind is ExitKind.REOPENED:
            self._pushes, self._pause = True, 0.0
            return
        if self._pushes and is_modern(self._status.era):
            self._pushes = False  # it has not come up in the older protocol
        verdict = self._supervisor.after(life.ending, anyio.current_time())
        error, before = verdict.error, life.stderr[-_LINES_BEFORE - 1 : -1]
        if verdict.state is ServerState.FAILED and self._status.restarts and before:
            error = f"{error} (before that: {' / '.join(before)})"
        self._pause = verdict.pause
        self._become(verdict.state, error)

    def tools_changed(self, life: ServerSession) -> None:
        """Offer other tools."""
        if self._offer(life.tools):
            self._remember(life)
            self._changed()

    def _remember(self, life: ServerSession) -> None:
        version = f"{self._status.server_name} {self._status.server_version}"
        self._memory.met(life.tools, version=version, is_legacy=life.is_legacy)

    def note(self, note: str) -> None:
        """Keep what is odd but harms nothing."""
        if len(self._notes) < MAX_NOTES and note not in self._notes:
            self._notes[note] = None
            log.debug("server_is_odd", server=self.name, note=note)

    def _offer(self, tools: tuple[Tool, ...]) -> bool:
        if tools == self.tools:
            return False
        self.tools, self.revision = tools, self.revision + 1
        return True

    def _become(self, state: ServerState, error: str | None) -> None:
        error = one_line(error, MAX_REASON_CHARS) if error else None
        self._moved.set()
        self._moved = anyio.Event()
        if self._status.state is ServerState.DISABLED or (state, error) == (self._status.state, self._status.error):
            return
        if state in (ServerState.FAILED, ServerState.STOPPED):
            self._offer(())
            self.news.over(error or "it was stopped")
        self._status = replace(self._status, state=state, error=error)
        self._settled.set()
        event = "server_ready" if state is ServerState.READY else "server_down"
        log.debug(event, server=self.name, state=state.value, era=self._status.era, tools=len(self.tools))
        self._changed()

    def _changed(self) -> None:
        if self._host.on_change is not None:
            self._host.on_change(self.name, self.status)

    def _absence(self) -> str:
        match self._status.state:
            case ServerState.FAILED:
                return self._status.error or "it failed"
            case ServerState.RESTARTING:
                return f"it is being started again: {self._status.error or 'it died'}"
            case ServerState.STARTING:
                return "it is still starting"
            case ServerState.SLEEPING:
                return "it was not started yet"
            case ServerState.DISABLED:
                return "it is disabled"
            case ServerState.STOPPED:
                return "it was stopped"
            case ServerState.READY:
                return "the connection was closed"

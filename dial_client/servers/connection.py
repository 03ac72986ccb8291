"""One server as seen by the rest of the program: the task that owns it, its status, and calls that survive a restart.

Connection.run      owns the server, and runs one session after another, as the restart policy decides:
                    STARTING -> READY -> STOPPED, or FAILED with the reason; READY -> RESTARTING -> READY;
                    SLEEPING -> STARTING for a lazy server
Connection.call     calls a tool, from any task; waits for a restart, and repeats a lost call where that is safe
Connection.status   returns a snapshot of the server's status
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.call_context import CallContext, Caller, Callers, CallTask
from dial_client.hooks.server_callbacks import ServerLog
from dial_client.hooks.telemetry.instrument_lookup import record_restart
from dial_client.messages.errors import ServerError, ServerGone
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.servers.notifications import Notifications
from dial_client.servers.oauth.login_stores import is_of_dial_chat
from dial_client.servers.restart_policy import Exit, ExitKind, ProtocolChooser, RestartPolicy, add_jitter
from dial_client.servers.separate_sessions import Party, SeparateSessions
from dial_client.servers.server_cache import ServerCache
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import FRESH_SECONDS, Answer, CallNotRun, OnCallProgress, ServerSession, Target
from dial_client.servers.status import ServerState, ServerStatusWriter
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import matches_name

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

log = get_logger(__name__)

# Start-up timeout in seconds of a server object in this process; for other servers it is a setting.
STARTUP_SECONDS = 60.0
# Seconds before each repetition of a call. A call that may have run is repeated once at most.
REPEAT_PAUSES = (0.2, 0.5)
# Lines of standard error, before the last line, that the error of a server given up on quotes.
_STDERR_LINES = 3


@cache
def _find_request_type() -> Callable[..., Any]:
    from dial_client.servers.tasks import ToolRequest  # it imports the SDK, and an import costs something for each call

    return ToolRequest


class Connection(ServerStatusWriter):
    """One server: its tools, its status, and its calls.

    Args:
        name: The server's name in the configuration.
        target: How the server is reached.
        capabilities: The features and callbacks the client offers to its servers.
    """

    def __init__(self, name: str, target: Target, capabilities: ClientCapabilities) -> None:
        self.settings: ServerSettings | None = target if isinstance(target, ServerSettings) else None
        is_enabled = self.settings is None or self.settings.enabled
        super().__init__(name, capabilities.on_change, is_enabled=is_enabled, on_tools=capabilities.on_tools)
        self.notifications = Notifications(name, capabilities.on_list_change)
        """The changes of resources and prompts that the server announced."""
        self._target = target
        callbacks = capabilities.callbacks
        own_roots = self.settings.roots if self.settings is not None else None

        def log_message(message: ServerLog) -> None:
            self.logs.append(message)
            if callbacks.on_log is not None:
                callbacks.on_log(message)

        roots = callbacks.roots if own_roots is None else own_roots
        # The capabilities for this server: with its own roots, if configured; its log is kept in its status.
        self._capabilities = replace(capabilities, callbacks=replace(callbacks, roots=roots, on_log=log_message))
        # A server may offer each person other tools: those of a person who logs in are not kept for the next client.
        own = self.settings
        may_log_in = own is not None and bool(own.url) and (callbacks.login is not None or own.oauth is not None)
        is_personal = may_log_in and not is_of_dial_chat(capabilities.logins)
        self._cache = ServerCache(self.settings, None if is_personal else capabilities.cache)
        # The session opened last.
        self._session: ServerSession | None = None
        self._policy = RestartPolicy()
        self.startup_timeout = STARTUP_SECONDS if self.settings is None else self.settings.startup_timeout
        """Seconds within which the server must be ready after its start."""
        self._protocols = ProtocolChooser(self.settings, self._cache, self.startup_timeout)
        self.separate: SeparateSessions[Connection] = SeparateSessions(name, callbacks.callers)
        """The sessions that serve one client of a gateway each, or one person."""
        self._is_started = False
        self._woken = anyio.Event()
        self._stopped = anyio.Event()
        self._ended = anyio.Event()

    def _build_separate(self, callers: Callers) -> Connection:
        """Return another connection to the same server, for a session that asks these clients only."""
        assert self.settings is not None
        callbacks = replace(self._capabilities.callbacks, callers=callers, elicit=None)
        offered = replace(self._capabilities, callbacks=callbacks, on_change=None, on_tools=None, on_list_change=None)
        return Connection(self.name, replace(self.settings, per_client=False), offered)

    @property
    def has_skills(self) -> bool:
        """True if the server declares that it has skills, and its entry does not turn them off."""
        return self.declares_skills and (self.settings is None or self.settings.skills)

    @property
    def is_settled(self) -> bool:
        """True if `wait_settled` does not wait."""
        return not self._is_started or self.state is ServerState.DISABLED or self.was_settled

    def start(self, tasks: BackgroundTasks) -> None:
        """Start the task that owns the server."""
        self._is_started = True
        self.separate.tasks = tasks
        tasks.start_soon(self.run)

    async def run(self) -> None:
        """Own the server, from its first start to its end: until `stop`, or until the server is given up.

        Raises:
            Exception: An unexpected error, which ends the server; the server's status names the error.
        """
        try:
            if self.state is not ServerState.DISABLED:
                await self._sleep()
                await self._run_sessions()
        except Exception as error:
            from dial_client.servers.transports.transport_errors import find_cause

            cause = find_cause(error)
            # Texts of errors that are no OSError may quote values of the configuration.
            text = f": {cause}" if isinstance(cause, OSError) else ""
            problem = f"it failed with an unexpected {type(cause).__name__}{text}; the log has the traceback"
            self._publish(ServerState.FAILED, problem)
            raise
        finally:
            if self.state is not ServerState.FAILED:
                self._publish(ServerState.STOPPED, self.error or "")
            self._ended.set()

    def stop(self) -> None:
        """Make `run` return. Calls in flight, and calls waiting for a restart, fail at once."""
        self._stopped.set()
        self._woken.set()
        self.separate.stop()
        if self._session is not None:
            self._session.stop()
        if self.state is ServerState.RESTARTING:
            self._publish(ServerState.STOPPED, self.error or "")

    async def wait_ended(self) -> None:
        """Wait until `run` has returned, if it was started, and all separate sessions have ended."""
        if self._is_started:
            await self._ended.wait()
        await self.separate.wait_ended()

    async def wait_settled(self, seconds: float = math.inf) -> bool:
        """Wait until the server's first start has ended: it is ready, sleeping, failed, stopped or disabled.

        The server's start-up timeout bounds the wait. Returns at once if the server was ready before, or was never
        started.

        Returns:
            False if it has not ended within `seconds`.
        """
        await self.wait_until(lambda _: self.is_settled, seconds)
        return self.is_settled

    def offer_cached_tools(self) -> bool:
        """Offer the cached tools of the last run before the server has started; a call waits for the start.

        Returns:
            False if the server has started already, or no tools are cached.
        """
        is_over = self.was_settled or self.state is ServerState.DISABLED
        if is_over or not (tools := self._cache.read_tools()):
            return False
        self.set_tools(tools)
        self.notify()
        return True

    @property
    def has_current_tools(self) -> bool:
        """Whether `wait_for_tools` has nothing to wait for."""
        return not self._is_restarting() and (self._session is None or self._session.has_current_tools)

    async def wait_for_tools(self) -> None:
        """Wait until `tools` includes the changes the server has announced, at most `FRESH_SECONDS` after each.

        A restart in progress is waited for before that, also at most `FRESH_SECONDS`: the server may have other tools.
        """
        await self.wait_until(lambda _: not self._is_restarting() or bool(self.restart_delay), FRESH_SECONDS)
        if self._session is not None:
            await self._session.wait_for_tools(FRESH_SECONDS)

    async def wake(self) -> None:
        """Start a sleeping server, and wait until it has started; `tools` may have changed afterwards."""
        if self.state is ServerState.READY:
            return
        self._woken.set()
        if self.was_settled or self.tools:  # its tools are on offer
            starting = (ServerState.SLEEPING, ServerState.STARTING)
            await self.wait_until(lambda status: status.state not in starting, self.startup_timeout)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress | None = None
    ) -> CallToolResult:
        """Call a tool by the server's own name for it, from any task.

        There is no timeout; cancelling the call notifies the server. The call waits for a restart in progress, at most
        the server's start-up timeout. A lost call is repeated if it did not reach the server, or if the server is
        marked ``trusted`` and annotates the tool as read-only or idempotent (MCP specification, "Tool Annotations"). A
        call that the server has answered with a task is not repeated: the task is polled on in the next session.

        Raises:
            InputRequired: The client of a gateway has to answer the server first.
            ServerGone: The server is not ready, or the connection broke before the result arrived.
            ServerError: The server refused the call, has no such tool, or sent an invalid result.
        """
        context = call_context.find_current()
        if (party := self._find_party(context)) is not None:
            async with self.separate.use(*party, self._build_separate) as own:
                return await own.call(tool, arguments, on_progress)
        meta, caller = (None, None) if context is None else (context.meta, context.caller)
        given = None if caller is None else caller.take_input(self.name)
        task = CallTask() if context is None or context.task is None else context.task
        request = _find_request_type()(tool, dict(arguments), on_progress, meta, caller, given, task)
        first: ServerSession | None = None
        may_repeat: bool | None = None
        for pause in (*REPEAT_PAUSES, None):
            session = await self.open_session()
            if (known := self.find_tool(tool)) is None:
                # The SDK would send the call, and then list the tools to find the output schema.
                raise ServerError(self.name, f"it has no tool {tool!r} any more")
            first = first or session
            if may_repeat is None:
                # Annotations are claims of the server: they count only if the user trusts it.
                hints = known.annotations if self.settings is not None and self.settings.trusted else None
                may_repeat = bool(hints and (hints.read_only_hint or hints.idempotent_hint))

            async def send(client: Client, session: ServerSession = session) -> CallToolResult:
                result: CallToolResult = await request.send(client, lambda: session.is_serving, session.call_directly)
                return result

            try:
                return await session.ask(send, tool=tool, is_own_session=session is not first)
            except ServerGone as gone:
                may_have_run = not isinstance(gone, CallNotRun)
                if pause is None or (may_have_run and not may_repeat and not task.id):
                    raise
                may_repeat = may_repeat and not may_have_run
                log.debug("call_repeated", server=self.name, tool=tool)
            await anyio.sleep(add_jitter(pause))
        raise ServerGone(self.name, self.summary.why_unavailable)

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return ``server/tool`` if the entry of the server marks the results of this tool as untrusted."""
        is_marked = self.settings is not None and matches_name(self.settings.untrusted, tool)
        return f"{self.name}/{tool}" if is_marked else ""

    async def ask(self, request: Callable[[Client], Awaitable[Answer]], seconds: float) -> Answer:
        """Send a request that has no side effects: for a list, a resource, a prompt or completions.

        The request is repeated once if the connection breaks.

        Args:
            request: Sends the request with the SDK's client.
            seconds: Timeout for everything, including a restart; time spent waiting for the user does not count.
                During a tool call the timeout of that call applies instead.

        Raises:
            ServerGone: The server is not ready, or the connection broke twice.
            ServerError: The server refused, sent an invalid answer, or did not answer in time.
        """
        context = call_context.find_current()
        if (party := self._find_party(context)) is not None:
            async with self.separate.use(*party, self._build_separate) as own:
                return await own.ask(request, seconds)
        if context is not None:
            return await self._ask(request)
        deadline = Deadline(seconds)
        with deadline.scope(), call_context.set_current(CallContext(deadline, deadline)):
            return await self._ask(request)
        raise ServerError(self.name, f"no answer within {seconds:g} seconds")

    async def _ask(self, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
        first = await self.open_session()
        try:
            return await first.ask(request)
        except ServerGone:
            await anyio.sleep(add_jitter(REPEAT_PAUSES[0]))
        session = await self.open_session()
        return await session.ask(request, is_own_session=session is not first)

    def _find_party(self, context: CallContext | None) -> tuple[Party, Caller] | None:
        """Return the client of a gateway whose call has a session of its own, with its key; None for the shared one."""
        if context is None or context.caller is None or self.settings is None or not self.settings.per_client:
            return None
        return Party(client=context.origin.conversation), context.caller

    async def set_log_level(self, level: str) -> None:
        """Request log messages from this level on, now and in later sessions; waits until the server has confirmed.

        In a current session of 2026-07-28 or later nothing changes: there each request names its level.
        """
        callbacks = replace(self._capabilities.callbacks, log_level=level)
        self._capabilities = replace(self._capabilities, callbacks=callbacks)
        if self._session is not None:
            await self._session.set_log_level(level)
        for connection in self.separate.connections:
            await connection.set_log_level(level)

    async def open_session(self) -> ServerSession:
        """Return the session that serves calls; starts a sleeping server, and waits for a restart in progress.

        Raises:
            ServerGone: The server has no session, or got none within its start-up timeout.
        """
        if self.state is not ServerState.READY or self._is_restarting():
            await self.wake()
            await self.wait_until(lambda _: not self._is_restarting(), self.startup_timeout)
        if self._session is None or not self._session.is_serving:
            raise ServerGone(self.name, self.summary.why_unavailable)
        return self._session

    async def announce_roots(self) -> None:
        """Tell the server that the folders of the only client of a gateway have changed, if it has a session."""
        if self._session is not None:
            await self._session.announce_roots()
        for connection in self.separate.connections:
            await connection.announce_roots()

    def _is_restarting(self) -> bool:
        """Return True if the server was ready before, and a new session is not ready yet."""
        is_serving = self._session is not None and self._session.is_serving
        state = self.state
        return state is ServerState.RESTARTING or (state is ServerState.READY and not is_serving)

    async def _sleep(self) -> None:
        """For a lazy server with cached tools: offer these tools, and wait until one is called."""
        if self.settings is None or not self.settings.lazy or self._stopped.is_set():
            return
        if (tools := self._cache.read_tools()) is not None:
            self.set_tools(tools)
            self.publish(ServerState.SLEEPING, None)
            await self._woken.wait()
            if not self._stopped.is_set():
                self.publish(ServerState.STARTING, None)

    async def _run_sessions(self) -> None:
        while not self._stopped.is_set() and (pause := await self._run_session()) is not None:
            with anyio.move_on_after(pause):
                await self._stopped.wait()
            if not self._stopped.is_set() and self.state not in (ServerState.STARTING, ServerState.READY):
                self.set(replace(self.summary, restarts=self.summary.restarts + 1))
                record_restart(self.name)

    async def _run_session(self) -> float | None:
        """Run one session; return the seconds until the next session begins, or None for no further session."""
        session = self._session = ServerSession(
            self._target,
            self,
            self.notifications,
            self._capabilities,
            self._cache,
            self._protocols,
            self.startup_timeout,
        )
        self.restart_delay = None
        self.read_stderr = lambda: session.stderr
        async with anyio.create_task_group() as group:
            session_exit = Exit(ExitKind.STOPPED)
            try:
                session_exit = await session.run(group)
            finally:
                pause = self._settle(session_exit)
                session.fail_calls()
        return pause

    def _settle(self, session_exit: Exit) -> float | None:
        """Publish the status after the end of a session; return the seconds until the next session, or None."""
        if session_exit.kind is ExitKind.STOPPED and self.state is ServerState.FAILED:
            return None
        if self._protocols.record_exit(session_exit):
            self._policy.record_ready(session_exit)
            return 0.0
        decision = self._policy.decide(session_exit, anyio.current_time())
        self._publish(decision.state, decision.error, decision.pause)
        return decision.pause

    def _publish(self, state: ServerState, error: str, pause: float | None = None) -> None:
        if state is ServerState.FAILED and self.summary.restarts and self._session is not None:
            before = self._session.stderr[-_STDERR_LINES - 1 : -1]
            error += f" (before that: {' / '.join(before)})" if before else ""
        if self.publish(state, error, pause) and state in (ServerState.FAILED, ServerState.STOPPED):
            self.notifications.end(error or "it was stopped")

"""One server as seen by the rest of the program: its status, its tools, and calls that survive a restart.

Connection.run      runs the task that owns the server (`Supervisor`)
Connection.call     calls a tool, from any task; waits for a restart, and repeats a lost call where that is safe
Connection.status   returns a snapshot of the server's status
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.call_context import CallContext
from dial_client.messages.errors import ServerError, ServerGone
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.notifications import Notifications
from dial_client.servers.observable_status import ObservableStatus
from dial_client.servers.restart_policy import add_jitter
from dial_client.servers.server_cache import ServerCache
from dial_client.servers.session import ServerContext, ServerSession, Target, find_startup_seconds
from dial_client.servers.session_calls import FRESH_SECONDS, Answer, OnCallProgress
from dial_client.servers.session_errors import CallNotRun
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.servers.supervisor import Supervisor
from dial_client.settings.config_types import ServerSettings

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

log = get_logger(__name__)

REPEAT_PAUSES = (0.2, 0.5)
"""Seconds before each repetition of a call. A call that may have run is repeated once at most."""


class Connection:
    """One server: its tools, its status, and its calls.

    Args:
        name: The server's name in the configuration.
        target: How the server is reached.
        capabilities: The features and callbacks the client offers to its servers.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        capabilities: ClientCapabilities = ClientCapabilities(),  # noqa: B008 - frozen
    ) -> None:
        self.name = name
        self.settings: ServerSettings | None = target if isinstance(target, ServerSettings) else None
        self.notifications = Notifications(name)
        """The changes of resources and prompts that the server announced."""
        is_enabled = self.settings is None or self.settings.enabled
        self._status = ObservableStatus(name, capabilities.on_change, is_enabled=is_enabled)
        features = capabilities.build_features(self.settings, self._status.logs)
        cache = ServerCache(self.settings, capabilities.cache)
        self._supervisor = Supervisor(ServerContext(target, self._status, self.notifications, features, cache))
        self._cache = cache
        self._is_started = False

    @property
    def status(self) -> ServerStatus:
        """A snapshot of the server's status."""
        return self._status.snapshot()

    @property
    def summary(self) -> ServerStatus:
        """The server's status without its tools, logs and lines of standard error: reading it copies nothing."""
        return self._status.summary

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools the model can be offered.

        While the server sleeps, or is restarted, these are the last known tools. A server that failed, or
        is starting without cached tools, has none.
        """
        return self._status.tools

    @property
    def revision(self) -> int:
        """A number that grows with each change of `tools`."""
        return self._status.revision

    @property
    def is_settled(self) -> bool:
        """True if `wait_settled` does not wait."""
        return not self._is_started or self._status.state is ServerState.DISABLED or self._status.is_settled

    def start(self, tasks: BackgroundTasks) -> None:
        """Start the task that owns the server."""
        self._is_started = True
        tasks.start_soon(self.run)

    async def run(self) -> None:
        """Own the server, from its first start to its end: until `stop`, or until the server is given up.

        Raises:
            Exception: An unexpected error, which ends the server; the server's status names the error.
        """
        await self._supervisor.run()

    def stop(self) -> None:
        """Make `run` return. Calls in flight, and calls waiting for a restart, fail at once."""
        self._supervisor.stop()

    async def wait_ended(self) -> None:
        """Wait until `run` has returned; return at once if it was never started."""
        if self._is_started:
            await self._supervisor.wait_ended()

    async def wait_settled(self) -> None:
        """Wait until the server's first start has ended: it is ready, sleeping, failed, stopped or disabled.

        The server's start-up timeout bounds the wait. Returns at once if the server was ready before, or was never
        started.
        """
        await self._status.wait_until(lambda: self.is_settled)

    def offer_cached_tools(self) -> bool:
        """Offer the cached tools of the last run while the server starts; a call waits for the start.

        Returns:
            False if the server has started already, or no tools are cached.
        """
        if self.is_settled or not (tools := self._cache.read_tools()):
            return False
        self._status.set_tools(tools)
        self._status.notify()
        return True

    async def wait_for_tools(self) -> None:
        """Wait until `tools` includes the changes the server has announced, at most `FRESH_SECONDS` after each.

        A restart in progress is waited for before that, also at most `FRESH_SECONDS`: the server may have other tools.
        """
        await self._status.wait_until(lambda: not self._supervisor.is_restarting_now, FRESH_SECONDS)
        if self._supervisor.session is not None:
            await self._supervisor.session.wait_for_tools(FRESH_SECONDS)

    async def wake(self) -> None:
        """Start a sleeping server, and wait until it has started; `tools` may have changed afterwards."""
        self._supervisor.wake()
        await self._status.wait_until(lambda: not self._status.is_waking, find_startup_seconds(self.settings))

    def add_note(self, note: str) -> None:
        """Add a note about a harmless irregularity of the server."""
        self._status.add_note(note)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress | None = None
    ) -> CallToolResult:
        """Call a tool by the server's own name for it, from any task.

        There is no timeout; cancelling the call notifies the server. The call waits for a restart in progress, at most
        the server's start-up timeout. A lost call is repeated if it did not reach the server, or if the server is
        marked ``trusted`` and annotates the tool as read-only or idempotent (MCP specification, "Tool Annotations").

        Raises:
            ServerGone: The server is not ready, or the connection broke before the result arrived.
            ServerError: The server refused the call, has no such tool, or sent an invalid result.
        """
        first: ServerSession | None = None
        may_repeat: bool | None = None
        for pause in (*REPEAT_PAUSES, None):
            session = await self._open_session_with(tool)
            first = first or session
            may_repeat = _is_repeatable(self, tool) if may_repeat is None else may_repeat
            try:
                return await session.calls.call(tool, arguments, on_progress, is_own_session=session is not first)
            except ServerGone as gone:
                may_have_run = not isinstance(gone, CallNotRun)
                if pause is None or (may_have_run and not may_repeat):
                    raise
                may_repeat = may_repeat and not may_have_run
                log.debug("call_repeated", server=self.name, tool=tool)
            await anyio.sleep(add_jitter(pause))
        raise ServerGone(self.name, self.summary.why_unavailable)

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
        if call_context.find_current() is not None:
            return await self._ask(request)
        deadline = Deadline(seconds)
        with deadline.scope(), call_context.set_current(CallContext(deadline, deadline)):
            return await self._ask(request)
        raise ServerError(self.name, f"no answer within {seconds:g} seconds")

    async def _ask(self, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
        session = first = await self.open_session()
        try:
            return await session.calls.ask(request)
        except ServerGone:
            await anyio.sleep(add_jitter(REPEAT_PAUSES[0]))
        session = await self.open_session()
        return await session.calls.ask(request, is_own_session=session is not first)

    async def open_session(self) -> ServerSession:
        """Return the session that serves calls; starts a sleeping server, and waits for a restart in progress.

        Raises:
            ServerGone: The server has no session, or got none within its start-up timeout.
        """
        await self.wake()
        await self._status.wait_until(lambda: not self._supervisor.is_restarting, find_startup_seconds(self.settings))
        session = self._supervisor.session
        if session is None or not session.is_serving:
            raise ServerGone(self.name, self.summary.why_unavailable)
        return session

    async def _open_session_with(self, tool: str) -> ServerSession:
        """Return the session to call a tool with.

        Raises:
            ServerGone: As `open_session`.
            ServerError: The server has no such tool.
        """
        session = await self.open_session()
        if not any(known.name == tool for known in self.tools):
            # The SDK would send the call, and then list the tools to find the output schema.
            raise ServerError(self.name, f"it has no tool {tool!r} any more")
        return session


def _is_repeatable(server: Connection, tool: str) -> bool:
    """Return True if a lost call of the tool may be repeated: a trusted server says that this has no further effect."""
    if server.settings is None or not server.settings.trusted:
        return False
    hints = next((known.annotations for known in server.tools if known.name == tool), None)
    return bool(hints and (hints.read_only_hint or hints.idempotent_hint))

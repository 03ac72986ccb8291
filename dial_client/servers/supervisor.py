"""The task that owns one server: it runs sessions one after another; a restart policy decides on each next one.

Supervisor.run    STARTING -> READY -> STOPPED, or FAILED with the reason; READY -> RESTARTING -> READY;
                  SLEEPING -> STARTING for a lazy server
"""

from __future__ import annotations

import anyio

from dial_client.hooks.telemetry.instrument_lookup import record_restart
from dial_client.servers.observable_status import ObservableStatus
from dial_client.servers.protocol_choice import ProtocolChooser
from dial_client.servers.restart_policy import Exit, ExitKind, RestartDecision, RestartPolicy
from dial_client.servers.session import ServerContext, ServerSession, find_startup_seconds
from dial_client.servers.status import ServerState

_STDERR_LINES = 3
"""Lines of standard error, before the last line, that the error of a server given up on quotes."""
_TERMINAL = (ServerState.FAILED, ServerState.STOPPED)


class Supervisor:
    """Owns one server from its first start to its end.

    Args:
        context: The objects shared by the server's sessions.
    """

    def __init__(self, context: ServerContext) -> None:
        self.session: ServerSession | None = None
        """The session opened last."""
        self._context = context
        self._policy = RestartPolicy()
        self._protocols = ProtocolChooser(context.settings, context.cache, find_startup_seconds(context.settings))
        self._woken = anyio.Event()
        self._stopped = anyio.Event()
        self._ended = anyio.Event()

    @property
    def _status(self) -> ObservableStatus:
        return self._context.status

    @property
    def is_restarting(self) -> bool:
        """True if the server was ready before, and a new session is not ready yet."""
        is_serving = self.session is not None and self.session.is_serving
        state = self._status.state
        return state is ServerState.RESTARTING or (state is ServerState.READY and not is_serving)

    @property
    def is_restarting_now(self) -> bool:
        """True if the server is being restarted without a pause."""
        return self.is_restarting and not self._status.restart_delay

    def wake(self) -> None:
        """Start a sleeping server; no effect in other states."""
        self._woken.set()

    def stop(self) -> None:
        """Make `run` return. Calls in flight, and calls waiting for a restart, fail at once."""
        self._stopped.set()
        self._woken.set()
        if self.session is not None:
            self.session.stop()
        if self._status.state is ServerState.RESTARTING:
            self._publish(RestartDecision(ServerState.STOPPED, self._status.error or ""))

    @property
    def has_ended(self) -> bool:
        """True if `run` has returned."""
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Wait until `run` has returned."""
        await self._ended.wait()

    async def run(self) -> None:
        """Run the server's sessions. Returns after `stop`, or when the server is given up.

        Raises:
            Exception: An unexpected error, which ends the server; its status names the error.
        """
        try:
            if self._status.state is not ServerState.DISABLED:
                await self._sleep()
                await self._run_sessions()
        except Exception as error:
            from dial_client.servers.transports import transport_errors

            cause = transport_errors.find_cause(error)
            # Texts of errors that are no OSError may quote values of the configuration.
            text = f": {cause}" if isinstance(cause, OSError) else ""
            problem = f"it failed with an unexpected {type(cause).__name__}{text}; the log has the traceback"
            self._publish(RestartDecision(ServerState.FAILED, problem))
            raise
        finally:
            if self._status.state is not ServerState.FAILED:
                self._publish(RestartDecision(ServerState.STOPPED, self._status.error or ""))
            self._ended.set()

    async def _sleep(self) -> None:
        """For a lazy server with cached tools: offer these tools, and wait until one is called."""
        settings = self._context.settings
        if settings is None or not settings.lazy or self._stopped.is_set():
            return
        if (tools := self._context.cache.read_tools()) is not None:
            self._status.set_tools(tools)
            self._status.publish(ServerState.SLEEPING, None)
            await self._woken.wait()
            if not self._stopped.is_set():
                self._status.publish(ServerState.STARTING, None)

    async def _run_sessions(self) -> None:
        while not self._stopped.is_set() and (pause := await self._run_session()) is not None:
            with anyio.move_on_after(pause):
                await self._stopped.wait()
            if not self._stopped.is_set() and self._status.state not in (ServerState.STARTING, ServerState.READY):
                self._status.count_restart()
                record_restart(self._status.name)

    async def _run_session(self) -> float | None:
        """Run one session; return the seconds until the next session begins, or None for no further session."""
        session = self.session = ServerSession(self._context, self._protocols.choose())
        self._status.start_session(lambda: session.stderr)
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
        if session_exit.kind is ExitKind.STOPPED and self._status.state is ServerState.FAILED:
            return None
        if self._protocols.record_exit(session_exit):
            self._policy.record_ready(session_exit)
            return 0.0
        decision = self._policy.decide(session_exit, anyio.current_time())
        self._publish(decision)
        return decision.pause

    def _publish(self, decision: RestartDecision) -> None:
        error = decision.error
        if decision.state is ServerState.FAILED and self._status.summary.restarts and self.session is not None:
            before = self.session.stderr[-_STDERR_LINES - 1 : -1]
            error += f" (before that: {' / '.join(before)})" if before else ""
        if self._status.publish(decision.state, error, decision.pause) and decision.state in _TERMINAL:
            self._context.notifications.end(error or "it was stopped")

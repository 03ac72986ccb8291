"""One session with a server: opening the transport, listing tools, serving calls, and closing everything.

ServerSession.run          returns an `Exit` as soon as it is known; closing the transport may take some seconds more
ServerSession.calls        makes calls, from any task
ServerSession.fail_calls   fails the calls in flight, after the server's status was updated
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from dial_client.hooks.server_callbacks import ClientFeatures
from dial_client.messages.errors import ServerStartError
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers import sdk_client, session_errors
from dial_client.servers.notifications import Listing, Notifications
from dial_client.servers.observable_status import ObservableStatus
from dial_client.servers.protocol_choice import ProtocolChoice
from dial_client.servers.restart_policy import Exit, ExitKind
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.server_cache import ServerCache
from dial_client.servers.server_requests import ServerRequests
from dial_client.servers.session_calls import SessionCalls
from dial_client.servers.session_state import ObservableState
from dial_client.servers.status import MAX_REASON_CHARS, ServerState
from dial_client.servers.tool_listing import ToolWatch, has_list_changes
from dial_client.servers.transports.transport_factory import (
    InProcessTransportFactory,
    TransportFactory,
    TransportHooks,
    list_transports,
)
from dial_client.settings.config_types import Protocol, ServerSettings

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp import Client
    from mcp_types import Tool

STARTUP_SECONDS = 60.0
"""Start-up timeout in seconds of a server object in this process; for other servers it is a setting."""
CLOSE_SECONDS = 3.0
"""Timeout in seconds for closing a session, which tells a server behind a URL that the session ends."""
DRAIN_SECONDS = 2.0
"""Seconds the calls in flight have to finish or fail after the session was lost or the server is gone: a result that
arrived before the end must not be lost."""
REOPEN_SECONDS = 30.0
"""Seconds the other calls in flight have to finish before the session is reopened with the older protocol."""

Target = Any
"""A `ServerSettings`, or a server object of the SDK in this process (`mcp.server.MCPServer`, lowlevel `Server`)."""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Objects that all sessions of one server share."""

    target: Target
    """How the server is reached."""
    status: ObservableStatus
    """The server's status; a session sets its tools, adds notes, and publishes that it is ready."""
    notifications: Notifications
    """The server's notifications and subscriptions; a session records changes of resources and prompts in them."""
    features: ClientFeatures
    """The features the client offers to the server: elicitation, sampling, roots and logging."""
    cache: ServerCache
    """Stores the server's tools and protocol for the next run of the program."""

    @property
    def settings(self) -> ServerSettings | None:
        """The server's settings; None for a server object in this process."""
        return self.target if isinstance(self.target, ServerSettings) else None


class ServerSession:
    """One session with a server, over the first transport that works.

    Args:
        context: The objects shared by the server's sessions.
        choice: The protocol to open the session with.
    """

    def __init__(self, context: ServerContext, choice: ProtocolChoice) -> None:
        self._context = context
        self._choice = choice
        self._mask = SecretMask() if context.settings is None else SecretMask.from_settings(context.settings)
        self._requests = ServerRequests(context.status.name, context.features)
        self._tool_watch = ToolWatch(context.status.add_note, context.notifications)
        self._transport: TransportFactory | None = None
        self._refusal: str | None = None
        """The endpoint's error answer to streamable HTTP."""
        self._state = ObservableState()
        self._scope = anyio.CancelScope()
        self.calls = SessionCalls(context.status.name, self._state, self._requests, self._mask)

    @property
    def is_serving(self) -> bool:
        """True if calls may be made: the session is ready, and no problem with it is known."""
        return self._state.value.is_serving

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines on the server's standard error."""
        return self._transport.stderr if self._transport is not None else ()

    async def wait_for_tools(self, seconds: float) -> None:
        """Wait until the tool list is read again after an announced change, at most `seconds` after the announcement.

        Returns at once if the session is not ready.
        """
        if self.is_serving:
            await self._tool_watch.wait_until_read(seconds)

    async def run(self, group: TaskGroup) -> Exit:
        """Open the session in a task of `group`, and return its `Exit` as soon as that is known.

        Calls in flight wait for `fail_calls`. The task ends when the transport is closed, which may take some seconds
        more.
        """
        group.start_soon(self._own_client)
        try:
            await self._state.wait_until(lambda state: state.exit is not None)
        finally:
            self._exit(ExitKind.STOPPED)
        assert self._state.value.exit is not None
        return self._state.value.exit

    def stop(self) -> None:
        """End the session: `run` returns."""
        was_ready = self._state.value.client is not None
        self._exit(ExitKind.STOPPED)
        if not was_ready:
            self._scope.cancel()

    def fail_calls(self) -> None:
        """Fail all calls in flight; to be called after the server's status was updated."""
        self._state.announce()
        self.calls.fail_all()

    async def _own_client(self) -> None:
        """Enter and leave the SDK's client. Raises nothing but cancellation."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._limit_duration)
                with self._scope:
                    await self._try_transports()
                group.cancel_scope.cancel()
        finally:
            self._exit(ExitKind.STOPPED)

    async def _limit_duration(self) -> None:
        """Enforce the start-up timeout, and later the timeout for closing."""
        seconds = find_startup_seconds(self._context.settings)
        with anyio.move_on_after(seconds) as start:
            await self._state.wait_until(lambda state: state.is_started)
        if start.cancelled_caught:
            from dial_client.runtime.error_lines import find_error_line
            from dial_client.servers.package_downloads import describe_download

            last = f"it last said: {find_error_line(self.stderr)}" if self.stderr else ""
            reason = describe_download(self._context.settings, self.stderr) or last
            self._exit(ExitKind.DIED, "; ".join(filter(None, (f"not ready within {seconds:g} seconds", reason))))
            self._scope.cancel()
        await self._state.wait_until(lambda state: state.exit is not None)
        self._scope.deadline = anyio.current_time() + CLOSE_SECONDS

    async def _try_transports(self) -> None:
        """Try the transports in order, and serve calls over the first that works."""
        try:
            for transport in self._list_transports():
                self._transport = transport
                try:
                    # Let the tasks of other servers start their processes first: importing the SDK blocks the loop.
                    await anyio.lowlevel.checkpoint()
                    await self._serve(transport)
                # except*: on trio one group may hold both an error and a cancellation, which must propagate.
                except* Exception as errors:  # noqa: BLE001 (every error becomes the server's status)
                    await self._report(transport, errors)
                finally:
                    await transport.aclose()
                if self._state.value.is_started:
                    return
        except ServerStartError as error:
            self._exit(ExitKind.MISCONFIGURED, error.problem)

    def _list_transports(self) -> Iterator[TransportFactory]:
        settings = self._context.settings
        if settings is None:
            return iter((InProcessTransportFactory(self._context.target),))
        return list_transports(settings, self._context.features.login, self._mask)

    async def _serve(self, transport: TransportFactory) -> None:
        async with self._create_client(transport) as client, anyio.create_task_group() as group:
            if has_list_changes(client):
                group.start_soon(self._tool_watch.listen, client)
            self._become_ready(client, transport, await self._tool_watch.read(client))
            group.start_soon(self._tool_watch.refresh, client, self._set_tools)
            if self._state.value.is_legacy and (level := self._context.features.log_level):
                group.start_soon(sdk_client.set_log_level, client, level)
            group.start_soon(self._context.notifications.follow, client)
            await self._state.wait_until(lambda state: state.ending is not None)
            await self._wind_down(transport)
            group.cancel_scope.cancel()

    async def _wind_down(self, transport: TransportFactory) -> None:
        """Wait for calls in flight, for a limited time, and find out how the session ended."""
        ending = self._state.value.ending
        assert ending is not None
        await self.calls.drain(REOPEN_SECONDS if ending.kind is ExitKind.REOPENED else DRAIN_SECONDS)
        ending = self._state.value.ending or ending
        if self._state.value.exit is None:
            self._exit(ending.kind, ending.why or await transport.explain_end())

    def _create_client(self, transport: TransportFactory) -> Client:
        async def report(error: BaseException) -> None:
            # Report the error before the transport is closed: ending a process may take seconds.
            if isinstance(error, Exception):
                await self._report(transport, error)

        def end(reason: str | None) -> None:
            self._state.end(Exit(ExitKind.DIED, reason or ""))

        target = transport.create(TransportHooks(self._context.status.add_note, end, report))
        return sdk_client.create_client(target, self._choice.protocol, self._on_message, self._requests)

    async def _report(self, transport: TransportFactory, error: Exception) -> None:
        """End the session with this error, unless another transport is left to try."""
        state = self._state.value
        if state.exit is not None:
            return
        settings = self._context.settings
        failure = session_errors.classify_start_error(error, has_url=settings is not None and settings.url is not None)
        reason = state.ending.why if state.ending is not None else ""
        message = failure.message or reason or await transport.explain_end()
        if transport.is_streamable_http and failure.is_other_transport and state.client is None:
            self._refusal = message
            return
        refusal = "" if self._refusal in (None, message) else f"; as streamable HTTP: {self._refusal}"
        self._exit(failure.kind, message + refusal)

    def _become_ready(self, client: Client, transport: TransportFactory, tools: tuple[Tool, ...]) -> None:
        if self._state.value.exit is not None:
            return
        sdk_client.accept_results_unchecked(client)
        self._state.become_ready(client, is_streamable_http=transport.is_streamable_http)
        is_newer = self._choice.protocol is Protocol.AUTO and not self._state.value.is_legacy
        self._requests.can_be_reopened = self._choice.can_be_reopened and is_newer
        status = self._context.status
        self._context.notifications.mark_changed(Listing.RESOURCES, Listing.PROMPTS)
        status.set_server(client)
        status.set_tools(tools)
        self._save()
        status.publish(ServerState.READY, status.error)

    def _set_tools(self, tools: tuple[Tool, ...]) -> None:
        if self._state.value.exit is None and self._context.status.set_tools(tools):
            self._save()
            self._context.status.notify()

    def _save(self) -> None:
        status = self._context.status.summary
        version = f"{status.server_name} {status.server_version}"
        self._context.cache.save(self._context.status.tools, version=version, is_legacy=self._state.value.is_legacy)

    def _exit(self, kind: ExitKind, why: str = "") -> None:
        self._state.exit(kind, to_one_line(self._mask.mask_text(why), MAX_REASON_CHARS))

    async def _on_message(self, message: object) -> None:
        from mcp_types import ElicitCompleteNotification, ResourceUpdatedNotification

        self._tool_watch.on_message(message)
        if isinstance(message, ElicitCompleteNotification):
            self._requests.complete_elicitation(message.params.elicitation_id)
        if isinstance(message, ResourceUpdatedNotification) and self._state.value.is_legacy:
            self._context.notifications.mark_updated(message.params.uri)


def find_startup_seconds(settings: ServerSettings | None) -> float:
    """Return the seconds within which a server must be ready after its start."""
    return STARTUP_SECONDS if settings is None else settings.startup_timeout

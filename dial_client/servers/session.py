"""One session with a server: opening the transport, listing tools, making calls, and closing everything.

ServerSession.run          returns an `Exit` as soon as it is known; closing the transport may take some seconds more
ServerSession.ask          sends a request, from any task; it fails when the session ends
ServerSession.fail_calls   fails the calls in flight, after the server's status was updated
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel

from dial_client.hooks import call_context
from dial_client.hooks.call_context import InputRequired
from dial_client.hooks.telemetry.instrument_lookup import find_instruments
from dial_client.messages import mcp_apps
from dial_client.messages.errors import ServerError, ServerGone, ServerStartError
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.notifications import Listing, Notifications, ToolWatch, has_list_changes
from dial_client.servers.restart_policy import Exit, ExitKind, ProtocolChooser, is_modern
from dial_client.servers.secret_masking import SecretMask, mask_log_record
from dial_client.servers.server_cache import ServerCache
from dial_client.servers.server_requests import ClientCapabilities, ServerRequests
from dial_client.servers.status import MAX_REASON_CHARS, Observable, ServerState, ServerStatusWriter
from dial_client.servers.transports.transport_factory import TransportFactory, list_transports
from dial_client.settings.config_types import Protocol, ServerSettings
from dial_client.settings.user_variables import describe_missing, find_user_variables

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp import Client
    from mcp_types import CallToolResult, Tool

log = get_logger(__name__)

# Timeout in seconds for closing a session, which tells a server behind a URL that the session ends.
CLOSE_SECONDS = 3.0
# Seconds the calls in flight have to finish or fail after the session was lost or the server is gone: a result that
# arrived before the end must not be lost.
DRAIN_SECONDS = 2.0
# Seconds the other calls in flight have to finish before the session is reopened with the older protocol.
REOPEN_SECONDS = 30.0
# Seconds to wait for news of a server: a tool list it announced, or the way its session ended.
FRESH_SECONDS = 2.0
# Seconds a server has to accept the news that roots have changed.
ROOTS_SECONDS = 5.0
# Seconds a server has to confirm the log level.
LOG_SECONDS = 10.0
_REOPENED = "it sends requests of its own, which only the older protocol has: the session is reopened with that one"
# The member of a request's ``_meta`` that says what the client can do, since 2026-07-28.
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_SESSION_LOST = "the server no longer knows the session; was it restarted?"

Answer = TypeVar("Answer")
OnCallProgress = Callable[[float, float | None, str | None], Awaitable[None]]
# A `ServerSettings`, or a server object of the SDK in this process (`mcp.server.MCPServer`, lowlevel `Server`).
Target = Any


class CallNotRun(ServerGone):
    """The call did not reach the server, or was rejected before it ran: it is safe to repeat."""


@dataclass(eq=False)
class ServerSession:
    """One session with a server, over the first transport that works."""

    _target: Target
    # The server's status; the session sets its tools, adds notes, and publishes that it is ready.
    _status: ServerStatusWriter
    # The server's notifications and subscriptions; the session records changes of lists in them.
    _notifications: Notifications
    # What the client offers to this server.
    _capabilities: ClientCapabilities
    # Stores the server's tools and protocol for the next run of the program.
    _cache: ServerCache
    _protocols: ProtocolChooser
    # Seconds within which the server must be ready after its start.
    _startup_timeout: float

    def __post_init__(self) -> None:
        self._protocol = self._protocols.choose()
        self._settings = self._target if isinstance(self._target, ServerSettings) else None
        self._mask = SecretMask() if self._settings is None else SecretMask.from_settings(self._settings)
        self._requests = ServerRequests(self._status.name, self._capabilities)
        self._tool_watch = ToolWatch(self._status.add_note, self._notifications)
        # The SDK's client, which sends requests; None before the session is ready, and after its end.
        self._client: Client | None = None
        # The negotiated version; None before the session is ready.
        self._protocol_version: str | None = None
        # True if requests carry a session id, which a server may no longer know after its restart.
        self._has_session_id = False
        self._ready_at: float | None = None
        # Why the session is about to end; no new call may be made, and calls in flight may finish.
        self._ending: Exit | None = None
        # How the session ended; None before its end.
        self._exit: Exit | None = None
        # True once the server's status was updated after the end of the session.
        self._is_announced = False
        # Set after each change of the attributes above.
        self._changes = Observable(None)
        self._transport: TransportFactory | None = None
        # The endpoint's error answer to streamable HTTP.
        self._refusal: str | None = None
        self._scope = anyio.CancelScope()
        # The capabilities of requests, by the features of the client that calls; None for those of this program.
        self._stamped: dict[frozenset[str] | None, Mapping[str, Any]] = {}
        # Makes calls past the SDK; None before the session is ready, and if it makes all calls.
        self.call_directly: Callable[..., Awaitable[Any]] | None = None

    @property
    def is_serving(self) -> bool:
        """True if calls may be made: the session is ready, and no problem with it is known."""
        return self._client is not None and self._ending is None

    @property
    def _is_started(self) -> bool:
        """True if the start of the session is over: it became ready, or it ended."""
        return self._client is not None or self._exit is not None

    @property
    def _is_legacy(self) -> bool:
        """True if the session became ready with a protocol version that has a handshake (before 2026-07-28)."""
        return self._protocol_version is not None and not is_modern(self._protocol_version)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines on the server's standard error."""
        return self._transport.stderr if self._transport is not None else ()

    async def run(self, group: TaskGroup) -> Exit:
        """Open the session in a task of `group`, and return its `Exit` as soon as that is known.

        Calls in flight wait for `fail_calls`. The task ends when the transport is closed, which may take some seconds
        more.
        """
        group.start_soon(self._own_client)
        try:
            await self._changes.wait_until(lambda _: self._exit is not None)
        finally:
            self._finish(ExitKind.STOPPED)
        assert self._exit is not None
        return self._exit

    def stop(self) -> None:
        """End the session: `run` returns."""
        was_ready = self._client is not None
        self._finish(ExitKind.STOPPED)
        if not was_ready:
            self._scope.cancel()

    @property
    def has_current_tools(self) -> bool:
        """Whether `wait_for_tools` has nothing to wait for."""
        return not self.is_serving or self._tool_watch.is_current

    async def wait_for_tools(self, seconds: float) -> None:
        """Wait until the tool list is read again after an announced change, at most `seconds` after the announcement.

        Returns at once if the session is not ready.
        """
        if self.is_serving:
            await self._tool_watch.wait_until_read(seconds)

    async def ask(
        self, request: Callable[[Client], Awaitable[Answer]], *, tool: str = "", is_own_session: bool = False
    ) -> Answer:
        """Send a request. There is no timeout; cancelling a call notifies the server.

        Args:
            request: Sends the request with the SDK's client.
            tool: The server's own name of the tool that the request calls; empty for other requests.
            is_own_session: The session was opened for this request. If the server does not know its session id, another
                session would not help: the request fails, and the session stays.

        Raises:
            InputRequired: The client of a gateway has to answer the server first.
            CallNotRun: The request did not reach the server.
            ServerGone: The connection broke before the result arrived.
            ServerError: The server refused, or sent an invalid result.
        """
        client = self._client
        if client is None:
            raise CallNotRun(self._status.name, self._describe_end())
        problem: Exception | None = None
        with type(self._scope)() as scope:  # `anyio.CancelScope` would find the event loop anew for each call
            try:
                return await self._requests.run_call(tool, partial(request, client), scope)
            except InputRequired:
                raise
            except Exception as error:  # noqa: BLE001 (every other error becomes a ServerError)
                problem = error
        if problem is None:  # `fail_calls` has cancelled the scope
            raise self._build_lost_error()
        # A traceback would print the cause unmasked: an error with a secret is not chained.
        cause = problem if self._mask.mask_text(str(problem)) == str(problem) else None
        raise await self._to_error(problem, is_own_session=is_own_session) from cause

    async def set_log_level(self, level: str) -> None:
        """Request log messages from this level on, and wait at most `LOG_SECONDS` until the server has confirmed it."""
        callbacks = replace(self._capabilities.callbacks, log_level=level)
        self._capabilities = replace(self._capabilities, callbacks=callbacks)
        if self._client is not None and self._is_legacy:
            try:
                await _set_log_level(self._client, level)
            except Exception as error:  # noqa: BLE001 (the session may be about to end, and the next one has the level)
                log.debug("log_level_not_set", server=self._status.name, error=type(error).__name__)

    async def announce_roots(self) -> None:
        """Tell the server that the folders of the only client of a gateway have changed.

        In the newer protocol, and if the folders are configured, there is nothing to tell.
        """
        from mcp import MCPError
        from mcp_types import RootsListChangedNotification

        client, callbacks = self._client, self._capabilities.callbacks
        if client is None or not self._is_legacy or callbacks.roots or not self._requests.has_feature("roots"):
            return
        with anyio.move_on_after(ROOTS_SECONDS), suppress(MCPError, anyio.BrokenResourceError):
            await client.session.send_notification(RootsListChangedNotification())

    def fail_calls(self) -> None:
        """Fail all calls in flight with `ServerGone`; to be called after the server's status was updated."""
        self._is_announced = True
        self._changes.set(None)
        for call in self._requests.calls.value:
            call.scope.cancel()

    async def _to_error(self, error: Exception, *, is_own_session: bool) -> ServerError:
        """Return the error for the caller, and end the session if the error requires it."""
        from dial_client.servers.transports.transport_errors import CallFailureKind, classify_call_error, to_message

        kind = classify_call_error(error, has_session_id=self._has_session_id)
        name, message = self._status.name, self._mask.mask_text(to_message(error))
        is_breaking = self._ending is not None and self._ending.kind is not ExitKind.REOPENED
        match kind:
            case CallFailureKind.NEEDS_OLDER_PROTOCOL:
                self._end(ExitKind.REOPENED, _REOPENED)
                return CallNotRun(name, _REOPENED)
            case CallFailureKind.SESSION_REJECTED | CallFailureKind.SESSION_UNKNOWN if is_own_session:
                return ServerError(name, message)
            case CallFailureKind.SESSION_REJECTED | CallFailureKind.SESSION_UNKNOWN:
                self._end(ExitKind.DIED, _SESSION_LOST)
                was_rejected = kind is CallFailureKind.SESSION_REJECTED
                return (CallNotRun if was_rejected else ServerGone)(name, _SESSION_LOST)
            case CallFailureKind.UNSENT:
                if not self._requests.calls.value:  # with calls in flight the server may only be busy: keep those calls
                    self._end(ExitKind.UNREACHABLE, message)
                return CallNotRun(name, message)
            case _ if kind is CallFailureKind.CONNECTION_CLOSED or is_breaking:
                # The session learns from other tasks how the server ended.
                await self._changes.wait_until(lambda _: self._is_announced, FRESH_SECONDS)
                return self._build_lost_error()
            case CallFailureKind.BROKEN_OFF:
                return ServerGone(name, message)
        return ServerError(name, message)

    def _build_lost_error(self) -> ServerGone:
        reason = self._describe_end()
        return ServerGone(self._status.name, f"the call was lost, and may have had its effect: {reason}")

    def _describe_end(self) -> str:
        """Return why there is no connection, in words."""
        return "the connection was closed" if self._exit is None else self._exit.why or "it was stopped"

    async def _own_client(self) -> None:
        """Enter and leave the SDK's client. Raises nothing but cancellation."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._limit_duration)
                with self._scope:
                    await self._try_transports()
                group.cancel_scope.cancel()
        finally:
            self._finish(ExitKind.STOPPED)

    async def _limit_duration(self) -> None:
        """Enforce the start-up timeout, and later the timeout for closing."""
        seconds = self._startup_timeout
        with anyio.move_on_after(seconds) as start:
            await self._changes.wait_until(lambda _: self._is_started)
        if start.cancelled_caught:
            from dial_client.runtime.error_lines import find_error_line
            from dial_client.servers.package_downloads import describe_download

            last = f"it last said: {find_error_line(self.stderr)}" if self.stderr else ""
            reason = describe_download(self._settings, self.stderr) or last
            self._finish(ExitKind.DIED, "; ".join(filter(None, (f"not ready within {seconds:g} seconds", reason))))
            self._scope.cancel()
        await self._changes.wait_until(lambda _: self._exit is not None)
        self._scope.deadline = anyio.current_time() + CLOSE_SECONDS

    async def _try_transports(self) -> None:
        """Try the transports in order, and serve calls over the first that works."""
        if self._settings is not None and find_user_variables(self._settings):
            # A reference must not be sent to a server in place of the secret.
            self._finish(ExitKind.MISCONFIGURED, describe_missing(self._settings))
            return
        try:
            for transport in list_transports(
                self._target, self._capabilities.callbacks.login, self._capabilities.logins, self._mask
            ):
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
                if self._is_started:
                    return
        except ServerStartError as error:
            self._finish(ExitKind.MISCONFIGURED, error.problem)

    async def _serve(self, transport: TransportFactory) -> None:
        end = partial(self._end, ExitKind.DIED)
        target = transport.create(self._status.add_note, end, partial(self._report, transport))
        async with self._create_client(target) as client, anyio.create_task_group() as group:
            if has_list_changes(client):
                group.start_soon(self._tool_watch.listen, client)
                await self._tool_watch.wait_until_open()
            self._become_ready(client, transport, await self._tool_watch.read(client))
            group.start_soon(self._tool_watch.refresh, client, self._set_tools)
            if self._is_legacy and (level := self._capabilities.callbacks.log_level):
                group.start_soon(_set_log_level, client, level)
            group.start_soon(self._notifications.follow, client)
            await self._changes.wait_until(lambda _: self._ending is not None)
            assert self._ending is not None
            # Wait for calls in flight, for a limited time, and find out how the session ended.
            seconds = REOPEN_SECONDS if self._ending.kind is ExitKind.REOPENED else DRAIN_SECONDS
            await self._requests.calls.wait_until(lambda calls: not calls, seconds)
            if self._exit is None:
                self._finish(self._ending.kind, self._ending.why or await transport.explain_end())
            group.cancel_scope.cancel()

    def _create_client(self, target: Any) -> Client:
        """Create the SDK's client for a transport, or a server object in this process, without entering it."""
        from mcp import Client
        from mcp.client.extension import advertise
        from mcp_types import Implementation, SamplingCapability, SamplingToolsCapability

        from dial_client import __version__
        from dial_client.servers.tasks import TaskExtension

        _silence_sdk()
        requests = self._requests
        apps = advertise(mcp_apps.EXTENSION, {"mimeTypes": [mcp_apps.MIME_TYPE]})
        # A callback declares its feature to the server.
        features = filter(requests.has_feature, ("elicitation", "sampling", "roots"))
        answers: dict[str, Any] = {feature: partial(requests.answer, feature) for feature in features}
        return Client(
            target,
            mode=cast("Any", self._protocol.value),
            client_info=Implementation(name="dial-client", version=__version__),
            message_handler=self._on_message,
            elicitation_callback=answers.get("elicitation"),
            sampling_callback=answers.get("sampling"),
            sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability())
            if requests.has_feature("sampling.tools")
            else None,
            list_roots_callback=answers.get("roots"),
            logging_callback=requests.handle_log,
            log_level=cast("Any", self._capabilities.callbacks.log_level),
            extensions=[TaskExtension(), *([apps] if self._capabilities.callbacks.apps else [])],
            cache=None,
        )

    def _intercept(self, dispatcher: object, listen: Any, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take a notification in the order of messages; return whether the SDK needs not hand it on."""
        return self._requests.intercept_log(dispatcher, method, params) or bool(listen and listen(method, params))

    def _stamp_for_caller(self, stamp: Callable[[dict[str, Any], Any], None], data: dict[str, Any], opts: Any) -> None:
        """Add to a request of MCP 2026-07-28 what each request has, with the capabilities of whoever calls.

        A server then never asks for what the client of a gateway lacks, or this program, and may do without.
        """
        stamp(data, opts)
        context = call_context.find_current()
        if context is None:  # a list is for all
            return
        meta, has = data["params"]["_meta"], None if context.caller is None else context.caller.features
        if has not in self._stamped:
            all_of = dict(meta.get(_CAPABILITIES_KEY) or {})
            features = self._requests.list_features(context.caller)
            self._stamped[has] = _select_capabilities(all_of, features, has_apps=has is None or "apps" in has)
        meta[_CAPABILITIES_KEY] = self._stamped[has]

    async def _report(self, transport: TransportFactory, error: Exception) -> None:
        """End the session with this error, unless another transport is left to try."""
        from dial_client.servers.transports.transport_errors import classify_start_error

        if self._exit is not None:
            return
        has_url = self._settings is not None and self._settings.url is not None
        failure = classify_start_error(error, has_url=has_url)
        reason = self._ending.why if self._ending is not None else ""
        message = failure.message or reason or await transport.explain_end()
        if transport.is_streamable_http and failure.is_other_transport and self._client is None:
            self._refusal = message
            return
        refusal = "" if self._refusal in (None, message) else f"; as streamable HTTP: {self._refusal}"
        self._finish(failure.kind, message + refusal)

    def _become_ready(self, client: Client, transport: TransportFactory, tools: tuple[Tool, ...]) -> None:
        from dial_client.servers.input_rounds import resolve_rounds

        if self._exit is not None:
            return
        # The SDK would list all tools to validate each result against its output schema. The code that reads results
        # reports invalid parts, and uses the valid ones.
        client.session.validate_tool_result = _accept  # type: ignore[method-assign]
        client._relist_tool = self._tool_watch.read_again  # type: ignore[method-assign]  # noqa: SLF001 - no option
        dispatcher: Any = client.session._dispatcher  # noqa: SLF001 - no option
        listen = dispatcher._on_notify_intercept  # noqa: SLF001
        dispatcher._on_notify_intercept = partial(self._intercept, dispatcher, listen)  # noqa: SLF001
        if is_modern(client.protocol_version) and self._capabilities.callbacks.callers is not None:
            stamp = partial(self._stamp_for_caller, client.session._stamp)  # noqa: SLF001 - no option
            client.session._stamp = stamp  # noqa: SLF001
            resolve: Any = partial(resolve_rounds, client.session, self._status.name, self._requests.answer_one)
            client._drive_input_required = resolve  # type: ignore[method-assign]  # noqa: SLF001
        if transport.direct is not None and find_instruments() is None:  # the SDK's spans would be recorded
            transport.direct.connect(client.session)
            self.call_directly = transport.direct.call
        self._client, self._protocol_version = client, client.protocol_version
        self._has_session_id = transport.is_streamable_http and self._is_legacy
        self._ready_at = anyio.current_time()
        self._changes.set(None)
        is_newer = self._protocol is Protocol.AUTO and not self._is_legacy
        self._requests.can_be_reopened = self._protocols.can_be_reopened and is_newer
        self._requests.is_legacy = self._is_legacy
        self._notifications.mark_changed(Listing.RESOURCES, Listing.PROMPTS)
        self._status.set_server(client)
        self._status.set_tools(tools)
        self._save()
        self._status.publish(ServerState.READY, self._status.error)

    def _set_tools(self, tools: tuple[Tool, ...]) -> None:
        if self._exit is None and self._status.set_tools(tools):
            self._save()
            self._status.notify()

    def _save(self) -> None:
        version = f"{self._status.value.server_name} {self._status.value.server_version}"
        self._cache.save(self._status.tools, version=version, is_legacy=self._is_legacy)

    def _end(self, kind: ExitKind, why: str = "") -> None:
        """Begin to end the session.

        Of several calls, the first non-empty reason is kept, and the last kind other than `ExitKind.DIED`.
        """
        before = self._ending
        if before is not None:
            kind = before.kind if kind is ExitKind.DIED else kind
            why = before.why or why
        self._ending = Exit(kind, why)
        self._changes.set(None)

    def _finish(self, kind: ExitKind, why: str = "") -> None:
        """Set how the session ended; later calls have no effect."""
        if self._exit is None:
            why = to_one_line(self._mask.mask_text(why), MAX_REASON_CHARS)
            self._exit = Exit(kind, why, self._ready_at, self._protocol_version)
            self._client, self._ending = None, self._ending or self._exit
            self._changes.set(None)

    async def _on_message(self, message: object) -> None:
        from mcp_types import ElicitCompleteNotification, ResourceUpdatedNotification

        self._tool_watch.on_message(message)
        if isinstance(message, ElicitCompleteNotification):
            await self._requests.complete_elicitation(message.params.elicitation_id)
        if isinstance(message, ResourceUpdatedNotification) and self._is_legacy:
            self._notifications.mark_updated(message.params.uri)


def _select_capabilities(
    capabilities: dict[str, Any], features: frozenset[str], *, has_apps: bool
) -> Mapping[str, Any]:
    """Return the capabilities of a request, without what whoever calls does not have."""
    for name, parts in (("elicitation", ("url",)), ("sampling", ("tools",)), ("roots", ())):
        if name not in features:
            capabilities.pop(name, None)
        elif any(f"{name}.{part}" not in features for part in parts):
            kept = {key: value for key, value in capabilities.get(name, {}).items() if key not in parts}
            capabilities[name] = kept
    if not has_apps and (extensions := capabilities.get("extensions")):
        # A server may say less in a result that an app shows.
        capabilities["extensions"] = {key: value for key, value in extensions.items() if key != mcp_apps.EXTENSION}
    return capabilities


def _silence_sdk() -> None:
    """Silence the SDK's loggers that have no level set: they log arguments, and tracebacks of handled errors."""
    for name in ("mcp.client", "mcp.shared"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
    # The SDK's session uses the logger "client", which the user's program may use, too.
    logging.getLogger("client").addFilter(_is_not_from_sdk)
    logging.getLogger("httpx2").addFilter(mask_log_record)  # httpx2 logs the whole URL of each request


def _is_not_from_sdk(record: logging.LogRecord) -> bool:
    return "mcp" not in Path(record.pathname).parts


async def _accept(name: str, result: CallToolResult) -> None:
    pass


async def _set_log_level(client: Client, level: str) -> None:
    """Set the log level of a server that speaks the older protocol; errors are ignored."""
    from mcp import MCPError
    from mcp_types import EmptyResult, SetLevelRequest, SetLevelRequestParams

    if client.server_capabilities.logging is not None:
        request = SetLevelRequest(params=SetLevelRequestParams(level=cast("Any", level)))
        with anyio.move_on_after(LOG_SECONDS), suppress(MCPError, ValueError):
            await client.session.send_request(request, EmptyResult)


def to_tool_error(error: ServerError) -> str:
    """Return the error text for the model, for a call that raised this error."""
    if isinstance(error, ServerGone):
        return f"The server {error.server!r} is not available: {error.problem}"
    return f"The call failed: {error.problem}"

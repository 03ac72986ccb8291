"""One life of a server: it is reached, lists its tools, serves calls, and leaves nothing behind.

Life.run      in the task of the server's owner: mcp.Client is entered and left here and nowhere else
Life.call     from any task; what goes wrong is a `ServerGone` or a `ServerError`, in words
Life.ending   how it ended, as soon as that is known: leaving may take seconds more
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import anyio
import anyio.lowlevel

from dial_client.callbacks.server_callbacks import ClientFeatures
from dial_client.errors import ServerError, ServerGone, ServerStartError
from dial_client.servers import sdk_client
from dial_client.servers.notifications import Notifications
from dial_client.servers.restart_policy import Exit, ExitKind
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.server_requests import NoWayBack, ServerRequests
from dial_client.servers.status import MAX_REASON_CHARS
from dial_client.servers.tool_listing import ToolWatch, has_changes_to_tell, is_modern
from dial_client.servers.transports.stderr_tail import telling_line
from dial_client.servers.transports.transport_factory import (
    InProcessTransportFactory,
    TransportFactory,
    TransportHooks,
    links_to,
)
from dial_client.settings.config_types import Protocol as Era
from dial_client.settings.config_types import ServerSettings
from dial_client.text.safe_text import one_line

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, Tool

STARTUP_SECONDS = 60.0
"""For a server in this process; the others have it in their settings."""
CLOSE_SECONDS = 3.0
"""Seconds for a server behind a URL to be told that its session ends."""
FRESH_SECONDS = 2.0
DRAIN_SECONDS = 2.0
"""Seconds for the other calls to a server behind a URL that has forgotten the session, or is gone, to find out."""
REOPEN_SECONDS = 30.0
"""Seconds for the other calls to a server that is to be reopened to come to their end."""
_FALL_BACK = (400, 404, 405)
"""What a URL that speaks only HTTP+SSE answers to streamable HTTP (MCP specification, "Backwards Compatibility")."""
_REOPENED = "it pushes its questions, which needs the older protocol: it is reopened with that"
_FORGOTTEN = "the server has forgotten the session; was it restarted?"

Answer = TypeVar("Answer")
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
Target = Any
"""A `ServerSettings`, or a server object of the SDK in this process (`mcp.server.MCPServer`, lowlevel `Server`)."""


class NotRun(ServerGone):
    """The call did not reach the server, or was turned away unread: making it again is safe."""


class Owner(Protocol):
    """Whom a life tells how it goes, from within the owner's task or a call's."""

    news: Notifications
    """What is wanted and known of changes."""

    def came_up(self, life: ServerSession) -> None:
        """It is ready: it has a client and tools."""

    def went_down(self, life: ServerSession) -> None:
        """It has an `ending`, and no client any more."""

    def tools_changed(self, life: ServerSession) -> None:
        """Its tools are others than before."""

    def note(self, note: str) -> None:
        """Something is odd but harms nothing."""


class ServerSession:
    """One life of a server, over the first way to it that works. Made by its owner's task.

    Args:
        name: in the configuration.
        target: how it is reached.
        owner: hears how it goes.
        protocol: the era to speak.
        callbacks: what the host does for its servers.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        owner: Owner,
        protocol: Era = Era.AUTO,
        callbacks: ClientFeatures = ClientFeatures(),  # noqa: B008 - frozen
    ) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.client: Client | None = None
        """None unless it is ready."""
        self.ending: Exit | None = None
        self.watch = ToolWatch(owner.note, owner.news)
        self._requests = ServerRequests(name, callbacks)
        self.can_be_reopened = True
        """Whether the older protocol may be tried where the newer one has no way for its questions."""
        self._name = name
        self._target = target
        self._settings = target if isinstance(target, ServerSettings) else None
        self._mask = SecretMask() if self._settings is None else SecretMask.of(self._settings)
        self._owner = owner
        self._protocol = protocol
        self._link: TransportFactory | None = None
        self._has_session = False
        self._era: str | None = None
        self._reason: str | None = None
        self._kind = ExitKind.DIED
        self._refused: str | None = None
        self._calls: set[anyio.CancelScope] = set()
        self._scope = anyio.CancelScope()
        self._settled = anyio.Event()
        self._over = anyio.Event()
        self._quiet = anyio.Event()
        self._down = anyio.Event()

    @property
    def is_serving(self) -> bool:
        """Whether a call may be made: it is ready, and nothing is known to be wrong with the connection."""
        return self.client is not None and not self._over.is_set()

    @property
    def is_legacy(self) -> bool:
        """Whether it was ready, and spoke a protocol with a handshake."""
        return self._era is not None and not is_modern(self._era)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines on its standard error."""
        return self._link.stderr if self._link is not None else ()

    def leave(self) -> None:
        """Let `run` come to its end. Calls in flight fail at once."""
        was_ready = self.client is not None
        self._set_down(Exit(ExitKind.STOPPED))
        self._over.set()
        if not was_ready:
            self._scope.cancel()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None, *, is_new_for_it: bool = False
    ) -> CallToolResult:
        """Call a tool it has. No timeout; cancelling it tells the server.

        Args:
            tool: by its own name.
            arguments: for it.
            on_progress: is told how far the call is.
            is_new_for_it: this life began for this call's sake: a session that is not known now never will be.

        Raises:
            NotRun: the server has not seen it.
            ServerGone: the connection broke before the result was there.
            ServerError: it refused the call, or its result is not valid.
        """

        async def request(client: Client) -> CallToolResult:
            return await client.call_tool(
                tool, dict(arguments), progress_callback=cast("ProgressFnT | None", on_progress)
            )

        return await self.ask(request, tool=tool, is_new_for_it=is_new_for_it)

    async def ask(
        self, request: Callable[[Client], Awaitable[Answer]], *, tool: str = "", is_new_for_it: bool = False
    ) -> Answer:
        """Ask the server anything, as `call` does."""
        client = self.client
        if client is None:
            raise NotRun(self._name, self._why())
        problem: Exception | None = None
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                return await self._requests.carried_out(tool, partial(request, client))
            except Exception as error:  # noqa: BLE001 (whatever it is, it is told in words)
                problem = error
            finally:
                self._calls.discard(scope)
                if not self._calls and self._over.is_set():
                    self._quiet.set()
        if problem is None:
            raise self._lost()
        # A traceback shows what the error was made of, too: what came from the network is masked nowhere else.
        cause = problem if self._mask.text(str(problem)) == str(problem) else None
        raise await self._failure(problem, is_new_for_it=is_new_for_it) from cause

    async def run(self) -> None:
        """Live, from the start to the end. Raises nothing but cancellation."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._limit)
                with self._scope:
                    await self._live()
                group.cancel_scope.cancel()
        finally:
            self._set_down(Exit(ExitKind.STOPPED))

    async def _limit(self) -> None:
        """End a start that takes too long, and later a goodbye that does."""
        seconds = startup_seconds(self._settings)
        with anyio.move_on_after(seconds) as start:
            await self._settled.wait()
        if start.cancelled_caught:
            last = f"; it last said: {telling_line(self.stderr)}" if self.stderr else ""
            self._set_down(Exit(ExitKind.DIED, f"not ready within {seconds:g} seconds{last}"))
            self._scope.cancel()
        await self._down.wait()
        self._scope.deadline = anyio.current_time() + CLOSE_SECONDS

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
                if self._settled.is_set():
                    return
        except ServerStartError as error:
            self._set_down(Exit(ExitKind.MISCONFIGURED, error.problem))

    def _links(self) -> Iterator[TransportFactory]:
        if self._settings is None:
            return iter((InProcessTransportFactory(self._target),))
        return links_to(self._settings, self._requests.callbacks.login, self._mask)

    async def _serve_over(self, link: TransportFactory) -> None:
        async with self._client_over(link) as client, anyio.create_task_group() as group:
            if has_changes_to_tell(client):
                group.start_soon(self.watch.listen, client)
            self._set_up(client, link, await self.watch.read(client))
            group.start_soon(self.watch.refresh, client, self._offer)
            if self.is_legacy and (level := self._requests.callbacks.log_level):
                group.start_soon(sdk_client.ask_for_logs, client, level)
            group.start_soon(self._owner.news.follow, client)
            await self._over.wait()
            if self._calls and (seconds := self._seconds_for_others(link)):
                with anyio.move_on_after(seconds):
                    await self._quiet.wait()
            if not self._down.is_set():
                self._set_down(Exit(self._kind, self._reason or await link.last_words()))
            group.cancel_scope.cancel()

    def _seconds_for_others(self, link: TransportFactory) -> float:
        if self._kind is ExitKind.REOPENED:
            return REOPEN_SECONDS
        return DRAIN_SECONDS if link.is_streamable_http else 0.0

    def _client_over(self, link: TransportFactory) -> Client:
        async def leaving(error: BaseException) -> None:
            # Leaving may take seconds, when a process has to be ended: what is wrong is said before.
            if isinstance(error, Exception):
                await self._report(link, error)

        target = link.target(TransportHooks(self._owner.note, self._end, leaving))
        return sdk_client.client_over(target, self._protocol, self._on_message, self._requests)

    async def _report(self, link: TransportFactory, error: Exception) -> None:
        """Make an error the reason why there is no server, unless another way to it is still to be tried."""
        if self._down.is_set():
            return
        from dial_client.servers.transports import transport_errors

        cause = transport_errors.cause_of(error)
        # That the connection is closed says nothing: the link knows how it came to that.
        words = (
            (self._reason or await link.last_words())
            if transport_errors.is_closed(cause)
            else transport_errors.in_words(cause)
        )
        if link.is_streamable_http and transport_errors.http_status(cause) in _FALL_BACK and self.client is None:
            self._refused = words
            return
        has_url = self._settings is not None and self._settings.url is not None
        kind = ExitKind.UNREACHABLE if has_url and transport_errors.is_unreachable(cause) else ExitKind.DIED
        if transport_errors.http_status(cause) == 401:  # only a person can do something about it
            kind = ExitKind.MISCONFIGURED
        other = "" if self._refused in (None, words) else f"; as streamable HTTP: {self._refused}"
        self._set_down(Exit(kind, words + other))

    def _set_up(self, client: Client, link: TransportFactory, tools: tuple[Tool, ...]) -> None:
        if self._down.is_set():
            return
        sdk_client.take_results_as_they_are(client)
        self.client, self.tools = client, tools
        self._era = client.protocol_version
        self._has_session = link.is_streamable_http and self.is_legacy
        is_newer = self._protocol is Era.AUTO and not self.is_legacy
        self._requests.can_be_reopened = self.can_be_reopened and is_newer
        self._settled.set()
        self._owner.came_up(self)

    def _set_down(self, ending: Exit) -> None:
        """Make it unusable, once and for good: calls in flight fail at once."""
        if self._down.is_set():
            return
        self.client = None
        self.ending = Exit(ending.kind, one_line(self._mask.text(ending.why), MAX_REASON_CHARS))
        self._down.set()
        self._settled.set()
        for call in self._calls:
            call.cancel()
        self._owner.went_down(self)

    def _offer(self, tools: tuple[Tool, ...]) -> None:
        if tools != self.tools and not self._down.is_set():
            self.tools = tools
            self._owner.tools_changed(self)

    def _end(self, reason: str | None) -> None:
        self._reason = self._reason or reason
        self._over.set()

    async def _on_message(self, message: object) -> None:
        from mcp_types import ElicitCompleteNotification, ResourceUpdatedNotification

        self.watch.heard(message)
        if isinstance(message, ElicitCompleteNotification):
            self._requests.completed(message.params.elicitation_id)
        if isinstance(message, ResourceUpdatedNotification) and self.is_legacy:
            self._owner.news.updated(message.params.uri)

    async def _failure(self, error: Exception, *, is_new_for_it: bool) -> ServerError:
        from dial_client.servers.transports import transport_errors

        cause = transport_errors.cause_of(error)
        words = self._mask.text(transport_errors.in_words(cause))
        if isinstance(cause, NoWayBack):
            self._kind = ExitKind.REOPENED
            self._end(_REOPENED)
            return NotRun(self._name, _REOPENED)
        if self._has_session and transport_errors.is_forgotten_session(cause):
            if is_new_for_it:
                return ServerError(self._name, words)
            self._end(_FORGOTTEN)
            return (NotRun if transport_errors.was_turned_away(cause) else ServerGone)(self._name, _FORGOTTEN)
        if transport_errors.was_unsent(cause):
            if not self._calls:  # else the server may be there and busy: nobody else's call is to be lost
                self._kind = ExitKind.UNREACHABLE
                self._end(words)
            return NotRun(self._name, words)
        if (self._over.is_set() and self._kind is not ExitKind.REOPENED) or transport_errors.is_closed(cause):
            with anyio.move_on_after(FRESH_SECONDS):  # the owner finds out how the server ended
                await self._down.wait()
            return self._lost()
        return (
            ServerGone(self._name, words) if transport_errors.is_broken_off(cause) else ServerError(self._name, words)
        )

    def _lost(self) -> ServerGone:
        return ServerGone(self._name, f"the call was lost, and may have had its effect: {self._why()}")

    def _why(self) -> str:
        if self.ending is None:
            return "the connection was closed"
        return self.ending.why or "it was stopped"


def startup_seconds(entry: ServerSettings | None) -> float:
    """Give the seconds a server has until it must be ready."""
    return STARTUP_SECONDS if entry is None else entry.startup_timeout

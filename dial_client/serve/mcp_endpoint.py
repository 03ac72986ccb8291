"""``/mcp``: all servers of the client as one MCP server over Streamable HTTP, in both revisions of the protocol.

`security` has decided who sends a request before it arrives here. The SDK's session manager speaks the protocol; it
runs in a task of the service, which begins with the first request: a service without MCP clients imports nothing more.
Up to 2025-11-25 a client has a session. Since 2026-07-28 each request stands alone, and any process may answer it.

A session that nobody uses ends after a while, and one more than there may be ends the one that was idle longest:
clients that open a session for each call, and never end one, would lock out all others. The id of a session that has
ended gets 404, and its client has to begin another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial_client.client.dial_client import DialClient
from dial_client.gateway.tool_listing import parse_tool_listing
from dial_client.serve.http_messages import HttpError, build_json_response, build_preflight_response
from dial_client.serve.people.authentication import MCP, METADATA, METADATA_OF_MCP, Authenticator, Person
from dial_client.serve.security import PERSON
from dial_client.serve.turns.human_input import HumanInputBroker
from dial_client.serve.turns.turn_registry import TurnRegistry, build_stopping_error
from dial_client.servers.sdk_import import import_sdk

# Bytes of the body of a request: arguments of tools may contain images in base64.
MAX_MCP_BODY = 8 * 1024 * 1024
# Maximum number of sessions.
MAX_SESSIONS = 1_000
# Seconds without a request, and without a stream of notifications, after which a session ends.
IDLE_SECONDS = 1_800.0

_SESSION_HEADER = "mcp-session-id"
# The header that names the method of a request since 2026-07-28, and the method whose response does not end.
_METHOD_HEADER, _LISTEN = "mcp-method", "subscriptions/listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """How ``/mcp`` serves the servers' tools to other MCP hosts."""

    origins: tuple[str, ...] = ()
    """The origins of other pages that may use it: ``http://localhost:6274``, or ``vscode-webview://*`` for all of a
    scheme whose names an IDE makes up."""
    authenticator: Authenticator | None = None
    """Decides who sends a request; None for the token of the service."""
    tools: str = "all"
    """Which tools clients see: all; with ``search`` three tools that find, describe and call the others; ``auto`` is
    ``search`` if the definitions are larger than `Limits.max_tool_bytes`; ``code`` is ``search``, and ``run_code`` if
    the extra ``code`` is installed."""
    max_result_chars: int | None = None
    """Maximum characters of the texts of a result; the tool ``read_result`` reads on. None to hand results on whole."""
    calls_per_minute: int = 6_000
    """The most calls of one client in a minute."""
    grants_command: str = "dial-chat grants"
    """The command that changes grants, as denials of calls name it, with the options that name the configuration."""
    grants_folder: str = ""
    """The folder to run that command in, on which grants of programs depend; empty if any folder will do."""
    max_sessions: int = MAX_SESSIONS
    """Maximum number of sessions; a further one ends the one that was idle longest."""
    idle_seconds: float = IDLE_SECONDS
    """Seconds without a request after which a session ends."""


class McpEndpoint:
    """The routes of ``/mcp``; an ASGI application, which works while `run` does.

    Args:
        dial: The client, which is open when the first request arrives.
        turns: The running turns, whose registry says when the service stops.
        human_input: Asks the person at the page about calls that no client of ``/mcp`` makes.
        options: Limits, and who may use it.
        authenticator: Who may use it if the options do not say so: whoever may use the service.

    Raises:
        ConfigError: An option is wrong.
    """

    def __init__(
        self,
        dial: DialClient,
        turns: TurnRegistry,
        human_input: HumanInputBroker,
        options: McpOptions,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._dial, self._turns, self._human_input, self._options = dial, turns, human_input, options
        self._authenticator = options.authenticator or authenticator
        self._listing = parse_tool_listing(options.tools, "McpOptions.tools")
        self.sessions = McpSessions(
            self._end_session, max_sessions=options.max_sessions, idle_seconds=options.idle_seconds
        )
        """The sessions of clients up to revision 2025-11-25."""
        self.clients: Iterable[Any] = ()
        """The clients of the gateway (`gateway.client_session.ClientSession`); none before the first request."""
        self._forget_client: Callable[[object], None] = lambda _: None
        # Answers requests; None before the first request, and when the service stops.
        self._respond: ASGIApp | None = None
        self._requested, self._started = anyio.Event(), anyio.Event()

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        routes = [Route(MCP, self, methods=["POST", "GET", "DELETE", "OPTIONS"])]
        if self._authenticator is not None and self._authenticator.metadata is not None:
            routes += [Route(path, self._send_metadata) for path in (METADATA, METADATA_OF_MCP)]
        return routes

    async def _send_metadata(self, request: Request) -> Response:  # noqa: ARG002 - the same for every request
        metadata = self._authenticator.metadata if self._authenticator is not None else None
        if metadata is None:
            raise HttpError(404, "this service has no authorization servers", "not_found")
        return build_json_response(metadata.to_dict())

    async def run(self) -> None:
        """Serve from the first request on, until the service stops."""
        await self._requested.wait()
        try:
            await anyio.to_thread.run_sync(import_sdk)
            await anyio.to_thread.run_sync(import_module, "dial_client.gateway.gateway")
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from dial_client.gateway.client_session import ClientSessions
            from dial_client.gateway.denials import Denials
            from dial_client.gateway.gateway import Gateway, GatewayOptions
            from dial_client.gateway.questions import Questions

            options = GatewayOptions(
                listing=self._listing,
                max_result_chars=self._options.max_result_chars,
                calls_per_minute=self._options.calls_per_minute,
                denials=Denials(self._options.grants_command, self._options.grants_folder),
            )
            # The clients of `/mcp` answer for their own calls; the person at the page is asked about all others.
            questions = Questions(options.denials.deny, self._human_input.ask_person)
            gateway = Gateway(self._dial, ClientSessions(_find_person), options, questions)
            self._human_input.ask_client = questions
            manager = StreamableHTTPSessionManager(
                gateway.server,
                session_idle_timeout=None,  # `McpSessions` ends them, and tells the gateway
                max_sessions=2 * self._options.max_sessions,
                max_request_body_size=MAX_MCP_BODY,
            )
            async with manager.run(), anyio.create_task_group() as group:
                group.start_soon(gateway.run)
                group.start_soon(self.sessions.run)
                self.clients, self._forget_client = gateway.sessions, gateway.sessions.end
                self._respond = manager.handle_request
                self._started.set()
                await self._turns.ended.wait()
                group.cancel_scope.cancel()
        finally:
            self._respond = None
            self._started.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS":
            await build_preflight_response(headers)(scope, receive, send)
            return
        self._requested.set()
        await self._started.wait()
        respond, person = self._respond, scope["state"][PERSON]
        if respond is None:
            raise build_stopping_error()
        id_ = headers.get(_SESSION_HEADER)
        is_call = scope["method"] == "POST" and headers.get(_METHOD_HEADER) != _LISTEN
        with self._turns.hold() if is_call else nullcontext(), self.sessions.use(id_):
            watch = self._watch_sessions(scope["method"], id_, person, send)
            await respond({**scope, "user": _build_user(person)}, receive, watch)

    def _watch_sessions(self, method: str, id_: str | None, person: Person, send: Send) -> Send:
        """Return the function that sends a response, and notices which session it opens or ends."""

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                opened = Headers(raw=message["headers"]).get(_SESSION_HEADER)
                if id_ is None and opened is not None:
                    await self.sessions.add(opened, person)
                elif id_ is not None and method == "DELETE":
                    self.sessions.remove(id_)
                    self._forget_client((person.name, id_))
            await send(message)

        return watch

    async def _end_session(self, session: McpSession) -> None:
        """End a session as its client would."""
        if self._respond is None:
            return
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": MCP,
            "query_string": b"",
            "headers": [(_SESSION_HEADER.encode(), session.id.encode())],
            "user": _build_user(session.person),
        }
        await self._respond(scope, _receive_nothing, _send_nowhere)
        self._forget_client((session.person.name, session.id))


def _find_person(context: Any) -> str:
    person: Person = context.request.scope["state"][PERSON]
    return person.name


def _build_user(person: Person) -> Any:
    """Return a person as the SDK knows persons: it refuses the session of one to all others."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id="", scopes=[], subject=person.name))


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_nowhere(_: Message) -> None:
    pass


# How often in `idle_seconds` sessions are checked.
_CHECKS = 4


@dataclass(eq=False, slots=True)
class McpSession:
    """A session, and its use."""

    id: str
    person: Person
    used_at: float
    """When its last request ended, or began."""
    requests: int = 0
    """The requests and streams in progress."""


class McpSessions:
    """The open sessions of clients up to revision 2025-11-25.

    Args:
        end: Ends a session that is not used any more; the session is forgotten already.
        max_sessions: Maximum number of sessions.
        idle_seconds: Seconds without a request after which a session ends.
    """

    def __init__(
        self,
        end: Callable[[McpSession], Awaitable[None]],
        *,
        max_sessions: int = MAX_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._end = end
        self._max_sessions, self._idle_seconds = max_sessions, idle_seconds
        # The sessions by their ids, the one that was used last at the end.
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._sessions

    async def add(self, id_: str, person: Person) -> None:
        """Add a session; end another one if there are too many."""
        self._sessions[id_] = McpSession(id_, person, anyio.current_time())
        if len(self._sessions) > self._max_sessions:
            earlier = [session for session in self._sessions.values() if session.id != id_]
            # All may be in use: streams of notifications stay open for days.
            idle = next((session for session in earlier if not session.requests), earlier[0])
            await self._close(idle)

    def remove(self, id_: str) -> McpSession | None:
        """Forget a session that its client has ended, and return it; None if it is unknown."""
        return self._sessions.pop(id_, None)

    @contextmanager
    def use(self, id_: str | None) -> Iterator[None]:
        """Count a request of a session while it is answered; an unknown session is ignored."""
        session = self._sessions.get(id_) if id_ else None
        if session is None:
            yield
            return
        session.requests += 1
        self._touch(session)
        try:
            yield
        finally:
            session.requests -= 1
            self._touch(session)

    def _touch(self, session: McpSession) -> None:
        session.used_at = anyio.current_time()
        if session.id in self._sessions:
            self._sessions.move_to_end(session.id)

    async def run(self) -> None:
        """End idle sessions until cancelled."""
        while True:
            await anyio.sleep(self._idle_seconds / _CHECKS)
            limit = anyio.current_time() - self._idle_seconds
            for session in list(self._sessions.values()):
                if not session.requests and session.used_at <= limit and session.id in self._sessions:
                    await self._close(session)

    async def _close(self, session: McpSession) -> None:
        del self._sessions[session.id]
        await self._end(session)

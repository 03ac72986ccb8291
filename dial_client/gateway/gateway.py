"""All servers of a `DialClient` as one MCP server, on the SDK's low-level server.

`Gateway.build_server` connects the parts: each answers the requests that it lists (`handlers.GatewayPart`). The same
server object serves both revisions of the protocol, on standard input and output (`serve_stdio`), and over HTTP where
`dial-chat serve` mounts it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_dual_era_loop
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCRequest,
    NotificationParams,
    ServerCapabilities,
    Tool,
)

from dial_client import __version__
from dial_client.client.client_options import Logins
from dial_client.client.dial_client import DialClient
from dial_client.gateway.client_dispatcher import serve_handshake
from dial_client.gateway.client_logs import ClientLogs
from dial_client.gateway.client_session import CALLS_PER_MINUTE, ClientSession, ClientSessions
from dial_client.gateway.client_tasks import TASK_SECONDS, ClientTasks
from dial_client.gateway.code_calls import CodeCalls
from dial_client.gateway.definitions import Definitions, ToolDefinitions, is_unknown
from dial_client.gateway.denials import Denials
from dial_client.gateway.early_answers import FirstAnswers
from dial_client.gateway.handlers import GatewayPart, Handler
from dial_client.gateway.list_changes import ListChanges
from dial_client.gateway.login_tool import LoginTool
from dial_client.gateway.long_results import LongResults
from dial_client.gateway.meta_tools import MetaTools
from dial_client.gateway.modern_requests import CAN_SERVE, ModernRequests
from dial_client.gateway.plain_calls import PlainCalls
from dial_client.gateway.questions import Questions, build_boundary
from dial_client.gateway.resource_subscriptions import ResourceSubscriptions
from dial_client.gateway.server_lists import ServerLists
from dial_client.gateway.server_prompts import ServerPrompts
from dial_client.gateway.server_resources import ResourceAddresses, ServerResources
from dial_client.gateway.skill_checks import SkillChecks
from dial_client.gateway.skill_entries import SkillEntries
from dial_client.gateway.standard_files import StandardFiles
from dial_client.gateway.standard_streams import (
    ANSWERED_BEFORE,
    StandardInput,
    StandardOutput,
    StartSignal,
    open_streams,
)
from dial_client.gateway.tool_calls import ToolCalls
from dial_client.gateway.tool_listing import ToolListing
from dial_client.hooks.owners import act_for
from dial_client.hooks.telemetry.instrument_lookup import find_instruments
from dial_client.messages.errors import ServerStartError
from dial_client.messages.mcp_apps import EXTENSION, MIME_TYPE, parse_app_uri
from dial_client.servers.connection import Connection
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import SKILLS, ServerState
from dial_client.servers.tasks import EXTENSION as TASKS
from dial_client.tools.snippets.sandbox import is_installed

# The requests that list what all servers have.
LISTS = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))
# The most seconds that the first lists wait for servers: `claude mcp list` gives up after five, other hosts after ten.
FIRST_LIST_SECONDS = 4.0
# The most seconds from the first answer to the start of the servers, for a client that has not listed the tools before.
START_SECONDS = 1.0


def _ignore_notes(_: Iterable[str]) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """What a gateway tells its clients about itself, and its limits."""

    name: str = "dial-client"
    """The name of the server in the protocol."""
    instructions: str | None = None
    """Instructions for the model of the client; None for none."""
    denials: Denials = field(default_factory=Denials)
    """Writes what a caller reads about calls that were not allowed."""
    report: Callable[[Iterable[str]], None] = _ignore_notes
    """Gets the problems with servers and tools, one line each, once all servers of a program have started."""
    listing: ToolListing = ToolListing.ALL
    """Which tools clients see."""
    max_result_chars: int | None = None
    """Maximum characters of the texts of a result; the tool ``read_result`` reads on. None to hand results on whole."""
    calls_per_minute: int = CALLS_PER_MINUTE
    """The most calls of one client in a minute."""
    logins: Logins = True
    """Where logins at clients are stored, as `DialClient` takes it: by default where `dial-chat` stores them."""
    task_seconds: float = TASK_SECONDS
    """Seconds until a call that has no result yet becomes a task, for clients that have tasks."""
    state_folder: Path | None = None
    """The folder of the key that seals questions to clients; None for the user's."""


class GatewayServer(Server[Any]):
    """The SDK's server, which announces changes of all lists also to clients of the older revision."""

    find_extensions: Callable[[], dict[str, dict[str, Any]]] | None = None
    """Returns the extensions of the servers."""

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """The name and the version that each result of 2026-07-28 has; the SDK copies them deeply for each."""
        return {"name": self.name, "version": self.version}

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the capabilities, with `listChanged` for each list: the SDK's transports do not pass it."""
        changes = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(changes, experimental_capabilities, extensions)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """Return the capabilities, with MCP Apps unless the servers are known to have none, and with tasks.

        Tasks are an extension of revision 2026-07-28; those of the revision before were another, experimental protocol.
        """
        if not extensions and self.find_extensions is not None:
            own: dict[str, dict[str, Any]] = (
                {TASKS: {}} if protocol_version is not None and is_modern(protocol_version) else {}
            )
            extensions = (self.find_extensions() | own) or None
        return super().get_capabilities(
            notification_options, experimental_capabilities, extensions or None, protocol_version=protocol_version
        )


@dataclass(eq=False, slots=True)
class FirstList:
    """Lets the first lists wait for servers that are starting: that of the tools only if these are not known already.

    Programs that list once and then leave, or take no notice of changed lists, would never see these tools. A server
    that takes longer is announced by a changed list, as `initialize` never waits.
    """

    _ends_at: float | None = None

    async def wait(self, servers: ServerManager, is_open: Callable[[Connection], bool]) -> None:
        """Wait while a server `is_open`, at most `FIRST_LIST_SECONDS` from the first request for a list on."""
        if self._ends_at is None:
            self._ends_at = anyio.current_time() + FIRST_LIST_SECONDS
        seconds = max(0.0, self._ends_at - anyio.current_time())
        await servers.announcements.wait_until(lambda _: not any(map(is_open, servers.values())), seconds)


class GatewayConnection:
    """One connection of a client, as the lifespan of the server; it tells the sessions without HTTP apart."""


class Gateway:
    """The servers of a client as one MCP server.

    Args:
        dial: The client, which is open.
        sessions: The clients of the gateway.
        options: Names and limits.
        questions: Asks the clients. It is the approver of `dial`, and its `Callbacks.callers`; without it the clients
            are asked nothing.
    """

    def __init__(
        self,
        dial: DialClient,
        sessions: ClientSessions | None = None,
        options: GatewayOptions | None = None,
        questions: Questions | None = None,
    ) -> None:
        self.dial, self.options = dial, options or GatewayOptions()
        self.questions = questions or Questions(self.options.denials.deny)
        self.sessions = sessions or ClientSessions()
        self.sessions.calls_per_minute = self.options.calls_per_minute
        self.sessions.on_end = self._end_separate_sessions
        self.bus = InMemorySubscriptionBus()
        """Delivers events to the clients of revision 2026-07-28 that listen for them."""
        parts = dial.parts
        self.definitions = ToolDefinitions(parts.servers, dial.approvals.pins)
        self.tasks = ClientTasks(self.sessions, self.options.task_seconds)
        self.questions.connect(parts, self.tasks)
        long_results = LongResults(self.options.max_result_chars) if self.options.max_result_chars else None
        logins = LoginTool(parts, self.options.logins)
        self.tools = ToolCalls(
            *(parts, self.definitions, self.sessions, self.questions, self.options.denials, logins, long_results)
        )
        listing, max_bytes = self.options.listing, dial.limits.max_tool_bytes
        has_code = listing is ToolListing.CODE and is_installed()
        code = CodeCalls(parts.open_sandbox, self.definitions, self.tools) if has_code else None
        self.meta_tools = MetaTools(self.tools, self.definitions, parts.servers, listing, max_bytes, code)
        self._first_list = FirstList()
        self.lists = ServerLists(parts.servers)
        self.list_changes = ListChanges(
            parts.servers, self.definitions, self.lists, self.sessions, self.bus, logins, self._select_tools
        )
        addresses = ResourceAddresses(parts.servers, self.lists)
        checks = SkillChecks(lambda: dial.skills)
        self.skills = SkillEntries(parts.servers, checks, addresses, self.sessions, self.questions)
        self.subscriptions = ResourceSubscriptions(parts.servers, self.lists, addresses, self.sessions, self.bus)
        self.logs = ClientLogs(parts, self.sessions, self.questions, self.tasks)
        self.parts: list[GatewayPart] = [
            self.tools if listing is ToolListing.ALL else self.meta_tools,
            self.tasks,
            ServerResources(self.lists, addresses, self.sessions, self.questions, checks),
            self.skills,
            ServerPrompts(parts.servers, self.lists, addresses, self.sessions, self.questions),
            self.subscriptions,
            self.logs,
        ]
        """The parts that answer requests, in the order of their use."""
        # Set when the client is open; None if it is open before the gateway serves.
        self._opened: anyio.Event | None = None

    @cached_property
    def server(self) -> GatewayServer:
        """The SDK's server, which a transport serves; `run` runs beside it."""
        server = GatewayServer(
            self.options.name,
            version=__version__,
            instructions=self._build_instructions(),
            lifespan=self._hold_connection,
            # Without it, the SDK lists all tools for each call over HTTP, to compare headers with the arguments.
            get_tool_input_schema=self._find_input_schema,
        )
        if find_instruments() is None:
            server.middleware.clear()  # the SDK's spans, which nobody would record
        for part in self.parts:
            for method, (params, handler) in part.list_handlers().items():
                server.add_request_handler(method, params, self._with_servers(method, handler))
        server.middleware.append(self.logs.follow_request)
        server.add_notification_handler("notifications/roots/list_changed", NotificationParams, self._announce_roots)
        server.middleware.append(self._observe)
        server.middleware.append(build_boundary(self.options.name, self.sessions, self.options.state_folder))
        server.middleware.append(PlainCalls(server).answer)
        server.find_extensions = self.find_extensions
        return server

    def _select_tools(self, definitions: Definitions) -> Sequence[Tool]:
        """Return the tools that clients see."""
        if self.options.listing is ToolListing.ALL:
            return definitions.tools
        return self.meta_tools.select(definitions.tools, definitions)

    def _build_instructions(self) -> str | None:
        return "\n\n".join(filter(None, (self.options.instructions, self.meta_tools.instructions))) or None

    def _find_input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool as clients know it, by which the headers of a call are checked (2026-07-28)."""
        if self.options.listing is ToolListing.ALL:
            return self.definitions.find_input_schema(name)
        return self.meta_tools.find_input_schema(name)

    def find_extensions(self) -> dict[str, dict[str, Any]]:
        """Return the extensions that the servers have, or may have: MCP Apps and skills.

        A client asks once, at its start, when nothing may be known yet of servers that start for the first time.
        """
        has_apps = any(parse_app_uri(known.tool.meta) for known in self.definitions.current.listed.values())
        may_have = has_apps or any(map(is_unknown, self.dial.parts.servers.values()))
        skills = self.skills.find_extension()
        found: dict[str, dict[str, Any]] = {} if skills is None else {SKILLS: skills}
        return found | ({EXTENSION: {"mimeTypes": [MIME_TYPE]}} if may_have else {})

    def _end_separate_sessions(self, session: ClientSession) -> None:
        for connection in self.dial.parts.servers.values():
            connection.separate.end(client=session.id)

    async def _announce_roots(self, _: object, __: NotificationParams) -> None:
        """Tell the servers that the folders of the only client have changed."""
        if self.questions.single is None:
            return
        async with anyio.create_task_group() as group:
            for connection in self.dial.parts.servers.values():
                group.start_soon(connection.announce_roots)

    async def _observe(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.meta and PROTOCOL_VERSION_META_KEY in ctx.meta and not is_modern(ctx.protocol_version):
            raise MCPError(INVALID_REQUEST, "This connection has begun with `initialize`, in an older revision")
        if self._opened is not None and ctx.method not in ANSWERED_BEFORE:
            # The request itself has let the servers start, in another task, which may not have run yet.
            await self._opened.wait()
        self.questions.observe(ctx.session)
        # Whatever answers the request finds the servers of its person: the task may be that of a connection, or of all.
        with act_for(self.sessions.find_person(ctx)):
            return await call_next(ctx)

    @asynccontextmanager
    async def _hold_connection(self, _: Server[Any]) -> AsyncGenerator[GatewayConnection]:
        connection = GatewayConnection()
        try:
            yield connection
        finally:
            self.sessions.end(connection)

    def _with_servers(self, method: str, handler: Handler) -> Handler:
        """Return a handler, which for a list waits for the first start of servers of which nothing is known yet."""
        if method not in LISTS:
            return handler
        is_open = is_unknown if method == "tools/list" else _is_starting

        async def answer(context: ServerRequestContext[Any, Any], params: Any) -> HandlerResult:
            await self._first_list.wait(self.dial.parts.servers, is_open)
            await self.dial.parts.servers.prepare_owner()
            return await handler(context, params)

        return answer

    async def run(self) -> None:
        """Announce changes of the servers to the clients, until cancelled."""
        self._offer_cached_tools()
        async with anyio.create_task_group() as group:
            group.start_soon(self.lists.run)
            group.start_soon(self.subscriptions.run)
            group.start_soon(self.list_changes.run)

    async def serve_stdio(self, files: StandardFiles, first: FirstAnswers | None = None) -> None:
        """Serve one client on standard input and output, until it closes standard input.

        Args:
            files: The descriptors, from `standard_files.claim_standard_files`.
            first: The answers that the client has got already, which are kept for the next start; None for none.
        """
        self._offer_cached_tools()  # the first answer names the extensions that the servers have
        self._opened = anyio.Event()
        signal = StartSignal(not any(map(is_unknown, self.dial.parts.servers.values())))
        first = first or FirstAnswers()
        first.on_list = partial(self._keep_answers, first)
        async with anyio.create_task_group() as group:
            group.start_soon(self._run_servers, signal, first)
            async with open_streams(files, signal, first) as (incoming, outgoing):
                options = self.server.create_initialization_options()
                serve = _select_loop(await incoming.find_first_request())
                async with self.server.lifespan(self.server) as connection:
                    try:
                        await serve(self.server, incoming, outgoing, lifespan_state=connection, init_options=options)
                    finally:
                        self._keep_answers(first)  # calls may have pinned definitions, which answers depend on
            group.cancel_scope.cancel()

    async def _run_servers(self, signal: StartSignal, first: FirstAnswers) -> None:
        await signal.is_greeted.wait()
        with anyio.move_on_after(START_SECONDS):
            await signal.is_over.wait()
        await self.dial.open()
        assert self._opened is not None
        self._opened.set()
        self._opened = None
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            with suppress(ServerStartError):  # a server marked `required`: it is among the notes, the others serve
                await self.dial.ready()
            self.options.report(self.dial.notes)
            self._keep_answers(first)

    def _keep_answers(self, first: FirstAnswers) -> None:
        """Keep the first answers for the next start, if the client has listed the tools that there are."""
        sessions, servers = tuple(self.sessions), self.dial.parts.servers.values()
        if sessions and all(map(self.list_changes.is_listed, sessions)) and not any(map(is_unknown, servers)):
            first.keep()

    def _offer_cached_tools(self) -> None:
        for connection in self.dial.parts.servers.values():
            connection.offer_cached_tools()


def _is_starting(connection: Connection) -> bool:
    """Return whether a server starts: of resources and prompts, nothing is known from an earlier run."""
    return connection.state is ServerState.STARTING


def _select_loop(first: JSONRPCRequest | None) -> Callable[..., Awaitable[None]]:
    """Return the SDK's loop for the revision that a client begins with.

    The SDK's own loop for both revisions passes each message through a task more, as long as the connection lasts.
    """
    if first is not None and first.method == "initialize":
        return serve_handshake
    meta = (first.params or {}).get("_meta") if first is not None else None
    is_enveloped = isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
    return _serve_modern if is_enveloped and CAN_SERVE else serve_dual_era_loop


async def _serve_modern(
    server: Server[Any],
    incoming: StandardInput,
    outgoing: StandardOutput,
    *,
    lifespan_state: object,
    init_options: InitializationOptions,
) -> None:
    """Serve a client that begins with a request of 2026-07-28."""
    del init_options  # of `initialize`, which does not exist there
    await ModernRequests(server, lifespan_state, incoming, outgoing).run()

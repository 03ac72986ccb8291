"""The tools of all servers for the clients of the gateway: their list, and calls whose results are handed on unchanged.

A call runs in the same `ToolExecutor` as a call of a model: validation, policy, pins, grants, untrusted content, audit,
timeouts, restarts. Only the conversion of the result for a model is left out.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    SERVER_INFO_META_KEY,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from dial_client.client.client_setup import ClientParts
from dial_client.gateway.addresses import restore_arguments, rewrite_result
from dial_client.gateway.client_requests import ClientRequest
from dial_client.gateway.client_session import ClientSession, ClientSessions
from dial_client.gateway.definitions import ToolDefinitions
from dial_client.gateway.denials import Denials, explain_denial
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.login_tool import LOG_IN, LoginTool
from dial_client.gateway.long_results import LongResults
from dial_client.gateway.questions import GivenApproval, Questions
from dial_client.gateway.suspended_calls import CallLost
from dial_client.gateway.upstream_requests import select_meta
from dial_client.hooks.audit.entries import create_id
from dial_client.hooks.call_context import InputRequired
from dial_client.messages.errors import ServerGone
from dial_client.messages.events import Event, ToolCallProgress
from dial_client.messages.message import (
    Content,
    Failure,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
)
from dial_client.runtime.deadline import NoDeadline
from dial_client.tools.executor import CallScope, ReceiveToolResult, ToolExecutor
from dial_client.tools.result_content import READ_RESULT, to_content

# The most calls of one client that run at the same time: each holds a task, and a call of a server.
MAX_CALLS = 1_000
# Clients end calls themselves. It has no state that one call could change for another.
_NO_DEADLINE = NoDeadline()
# Makes the call of a request; gets what it needs to ask the client, and the approval that was asked for before.
MakeCall = Callable[[ClientRequest, GivenApproval | None], Awaitable[CallToolResult | InputRequiredResult]]


@dataclass(eq=False, slots=True)
class _Received:
    """The result of a call as the server sent it."""

    result: CallToolResult | None = None

    def receive(self, result: CallToolResult) -> None:
        self.result = result


class ToolCalls:
    """Answers ``tools/list`` and ``tools/call``.

    Args:
        parts: The servers, and the executor of calls.
        definitions: The tools of the servers.
        sessions: The clients.
        questions: Asks the clients.
        denials: Writes what a caller reads about calls that were not allowed.
        logins: Logs in to servers.
        long_results: Shortens results; None to hand them on whole.
    """

    def __init__(
        self,
        parts: ClientParts,
        definitions: ToolDefinitions,
        sessions: ClientSessions,
        questions: Questions,
        denials: Denials,
        logins: LoginTool,
        long_results: LongResults | None = None,
    ) -> None:
        self._servers, self._executor = parts.servers, parts.executor
        self._definitions, self._sessions = definitions, sessions
        self._questions, self._denials = questions, denials
        self._logins, self._long = logins, long_results

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "tools/list": (PaginatedRequestParams, self.list_tools),
            "tools/call": (CallToolRequestParams, self.call_tool),
        }

    async def list_tools(self, context: ServerRequestContext[Any, Any], _: PaginatedRequestParams) -> ListToolsResult:
        """Return all tools that are known now, on one page."""
        session = self._sessions.find(context)
        definitions = self._definitions.review_withheld()
        session.listed = definitions, self._logins.servers
        tools = (*(definitions.tools if session.shows_apps else definitions.model_tools), *self._logins.list_tools())
        return ListToolsResult(tools=list(tools) if self._long is None else self._long.list_tools(tools))

    async def call_tool(
        self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams, make: MakeCall | None = None
    ) -> CallToolResult | InputRequiredResult | dict[str, Any]:
        """Call a tool, and return the server's result, what the client has to answer first, or a task.

        Args:
            context: The SDK's context of the request.
            params: The parameters of the request.
            make: Makes the call; None to call the tool of a server.

        Raises:
            MCPError: There is no such tool, or the server answered with an error.
        """
        session = self._sessions.find(context)
        if problem := self._find_excess(session, params):
            return CallToolResult(content=[TextContent(text=problem)], is_error=True)
        make = make or partial(self.call, name=params.name, arguments=params.arguments or {})
        session.calls += 1
        try:
            if self._long is not None and params.name == READ_RESULT:
                return self._long.read(params.arguments or {}, session)
            return await self._questions.answer(session, context, params, make)
        except CallLost as lost:
            return CallToolResult(content=[TextContent(text=lost.message)], is_error=True)
        finally:
            session.calls -= 1

    def _find_excess(self, session: ClientSession, params: CallToolRequestParams) -> str:
        """Return why a client may not make a call now, as it has made too many; empty if it may. The call is counted.

        A call that the client repeats with an answer was counted before.
        """
        if session.calls >= MAX_CALLS:
            return f"This client has {MAX_CALLS:,} calls in flight. Make the call again when one of them has ended."
        if params.request_state is None and not session.calls_left.take():
            most = f"{session.calls_left.burst:,} calls a minute are allowed for one client"
            return f"Not called: {most}. Make the call again in {math.ceil(session.calls_left.seconds)} s."
        return ""

    async def call(
        self, request: ClientRequest, given: GivenApproval | None, *, name: str, arguments: Mapping[str, Any]
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool for a client.

        Args:
            request: The request of the client.
            given: The approval that the client has brought with it; None if there is none.
            name: The name of the tool in the gateway.
            arguments: The arguments of the call.

        Raises:
            InputRequired: The client has to answer the server first, and repeats its request.
            MCPError: There is no such tool, or the server answered with an error.
        """
        if name == LOG_IN:
            return await self._logins.log_in(request, arguments)
        received = _Received()
        executor = self.derive(request, received.receive)

        async def emit(event: Event) -> None:
            if isinstance(event, ToolCallProgress):
                await request.report(event.progress, event.total, event.message)

        if (listed := self._definitions.current.listed.get(name)) is None:
            await self._definitions.wait_for(name)
            listed = self._definitions.current.listed.get(name)
        if listed is not None:
            arguments = restore_arguments(listed.connection.name, arguments)
        call = ToolCallRequest(create_id(), name, arguments)
        waiting = {} if given is None else given.build_waiting(call)
        result = await executor.execute_here(call, emit, _NO_DEADLINE, waiting, tells_ends=False)
        if result.pending is not None:
            return self._questions.build_result(result.pending)
        if isinstance(result.exception, InputRequired):
            raise result.exception
        if name in self._definitions.current.withheld:
            result = self._review(name, result)
        answer = self._build_result(result, received.result, executor)
        if listed is not None:
            answer = rewrite_result(listed.connection.name, answer)
        return answer if self._long is None else self._long.shorten(answer, request.session)

    def derive(self, request: ClientRequest, receive: ReceiveToolResult | None = None) -> ToolExecutor:
        """Return an executor for the calls of a request.

        Args:
            request: The request.
            receive: Receives results as the servers sent them; None for results that are for a program.
        """
        scope = CallScope(
            taint=request.session.taint,
            receive=receive,
            explain_denial=explain_denial,
            meta=select_meta(request.session, request.context.meta),
            caller=request,
        )
        return self._executor.derive(self._definitions.get_catalog, scope, request.origin)

    def build_answer(self, request: ClientRequest, result: ToolCallResult) -> CallToolResult | InputRequiredResult:
        """Return the result of a program for its client, or what the client has to answer first."""
        if result.pending is not None:
            return self._questions.build_result(result.pending)
        answer = CallToolResult(content=_to_blocks(result.content), is_error=not result.success)
        return answer if self._long is None else self._long.shorten(answer, request.session)

    def _review(self, name: str, result: ToolCallResult) -> ToolCallResult:
        """Return the result of a call of a tool whose definition is withheld."""
        if not (change := self._definitions.describe_change(name)):
            self._definitions.review_withheld()  # the user has approved the definition
        elif result.failure is Failure.BAD_ARGUMENTS:
            # The client knows another schema, or none: what it needs to know is the change, not its mistake.
            spec = self._definitions.get_catalog().routes[name].spec
            return ToolCallResult.failed(
                result.tool_call_id, Failure.DENIED, self._denials.describe_change(spec, change)
            )
        return result

    def _build_result(
        self, result: ToolCallResult, received: CallToolResult | None, executor: ToolExecutor
    ) -> CallToolResult:
        if result.failure is Failure.UNKNOWN_TOOL:
            raise MCPError(INVALID_PARAMS, f"{result.error}{self.describe_missing_servers()}")
        cause = result.exception.__cause__ if result.exception is not None else None
        if isinstance(cause, MCPError) and not isinstance(result.exception, ServerGone):
            raise MCPError(cause.error.code, cause.error.message, cause.error.data)
        if received is None or result.failure not in (None, Failure.TOOL):
            return CallToolResult(content=_to_blocks(result.content), is_error=not result.success)
        middleware = executor.middleware
        # Nobody but a middleware makes a text empty: it is that of a result that was handed on.
        is_wrapped = middleware.changes_tool_calls or (bool(result.content) and middleware.wraps_tool_calls)
        if is_wrapped and not _is_content_of(result.content, received):
            return CallToolResult(content=_to_blocks(result.content), is_error=not result.success)
        if received.meta and SERVER_INFO_META_KEY in received.meta:
            # The server names itself in each result (2026-07-28); to the client of the gateway, the gateway is it.
            del received.meta[SERVER_INFO_META_KEY]
            received.meta = received.meta or None
        if result.content and not is_wrapped:
            # The note that the user has changed the arguments.
            note = TextContent(text=str(result.content).strip())
            return received.model_copy(update={"content": [note, *received.content]})
        return received

    def describe_missing_servers(self) -> str:
        """Return which servers have no tools now, and why: the tool may be one of theirs."""
        missing = self._servers.describe_missing()
        return f" {missing}" if missing else ""


def _is_content_of(content: Content, received: CallToolResult) -> bool:
    """Return whether a middleware has left a result as it was."""
    return content == to_content(received)


def _to_blocks(content: Content) -> list[ContentBlock]:
    """Return the content of a result that this program has written, or a middleware."""
    if isinstance(content, str):
        return [TextContent(text=content)]
    return [_to_block(part) for part in content]


def _to_block(part: Part) -> ContentBlock:
    match part:
        case TextPart():
            return TextContent(text=part.text)
        case ImagePart():
            return ImageContent(data=part.data, mime_type=part.mime_type)
        case FilePart():
            uri = f"file:///{quote(part.name or 'file')}"
            return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=part.data))

"""The tools of all servers for the clients of the gateway: their list, and calls whose results are handed on unchanged.

A call runs in the same `ToolExecutor` as a call of a model: validation, policy, pins, grants, untrusted content, audit,
timeouts, restarts. Only the conversion of the result for a model is left out.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
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
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from dial_client.client.client_parts import ClientParts
from dial_client.gateway.addresses import restore_arguments, rewrite_result
from dial_client.gateway.client_session import ClientSession, ClientSessions
from dial_client.gateway.definitions import ToolDefinitions
from dial_client.gateway.denials import Denials, explain_denial
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.long_results import LongResults
from dial_client.gateway.upstream_requests import select_meta
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
from dial_client.runtime.deadline import Deadline
from dial_client.servers.status import ServerState
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.result_content import READ_RESULT, to_content

# The most calls of one client that run at the same time: each holds a task, and a call of a server.
MAX_CALLS = 1_000


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
        denials: Writes what a caller reads about calls that were not allowed.
        long_results: Shortens results; None to hand them on whole.
    """

    def __init__(
        self,
        parts: ClientParts,
        definitions: ToolDefinitions,
        sessions: ClientSessions,
        denials: Denials,
        long_results: LongResults | None = None,
    ) -> None:
        self._servers, self._executor = parts.servers, parts.executor
        self._definitions, self._sessions, self._denials = definitions, sessions, denials
        self._long = long_results

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "tools/list": (PaginatedRequestParams, self.list_tools),
            "tools/call": (CallToolRequestParams, self.call_tool),
        }

    async def list_tools(self, context: ServerRequestContext[Any, Any], _: PaginatedRequestParams) -> ListToolsResult:
        """Return all tools that are known now, on one page."""
        session = self._sessions.find(context)
        session.listed = definitions = self._definitions.review_withheld()
        tools = definitions.tools if session.shows_apps else definitions.model_tools
        return ListToolsResult(tools=list(tools) if self._long is None else self._long.list_tools(tools))

    async def call_tool(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        """Call a tool, and return the server's result.

        Raises:
            MCPError: There is no such tool, or the server answered with an error.
        """
        session = self._sessions.find(context)
        if session.calls >= MAX_CALLS:
            problem = f"This client has {MAX_CALLS:,} calls in flight. Make the call again when one of them has ended."
            return CallToolResult(content=[TextContent(text=problem)], is_error=True)
        session.calls += 1
        try:
            if self._long is None:
                return await self.call(session, context, params.name, params.arguments or {})
            if params.name == READ_RESULT:
                return self._long.read(params.arguments or {}, session)
            return self._long.shorten(await self.call(session, context, params.name, params.arguments or {}), session)
        finally:
            session.calls -= 1

    async def call(
        self, session: ClientSession, context: ServerRequestContext[Any, Any], name: str, arguments: Mapping[str, Any]
    ) -> CallToolResult:
        """Call a tool for a client. Arguments are the session and the request of the client, and the call.

        Raises:
            MCPError: There is no such tool, or the server answered with an error.
        """
        received = _Received()
        scope = CallScope(
            taint=session.taint,
            receive=received.receive,
            explain_denial=explain_denial,
            meta=select_meta(session, context.meta),
        )
        executor = self._executor.derive(self._definitions.get_catalog, scope, session.build_origin(context.request_id))

        async def emit(event: Event) -> None:
            if isinstance(event, ToolCallProgress):
                await context.session.report_progress(event.progress, event.total, event.message)

        listed = self._definitions.current.listed.get(name)
        if listed is not None:
            arguments = restore_arguments(listed.connection.name, arguments)
        request = ToolCallRequest(secrets.token_hex(8), name, arguments)
        result = await executor.execute_here(request, emit, Deadline(math.inf))
        if name in self._definitions.current.withheld:
            result = self._review(name, result)
        answer = self._build_result(result, received.result, executor)
        return answer if listed is None else rewrite_result(listed.connection.name, answer)

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
            raise MCPError(INVALID_PARAMS, f"{result.error}{self._describe_missing_servers()}")
        cause = result.exception.__cause__ if result.exception is not None else None
        if isinstance(cause, MCPError) and not isinstance(result.exception, ServerGone):
            raise MCPError(cause.error.code, cause.error.message, cause.error.data)
        if received is None or result.failure not in (None, Failure.TOOL):
            return CallToolResult(content=_to_blocks(result.content), is_error=not result.success)
        if executor.middleware.wraps_tool_calls and not _is_content_of(result.content, received):
            return CallToolResult(content=_to_blocks(result.content), is_error=not result.success)
        if received.meta and SERVER_INFO_META_KEY in received.meta:
            # The server names itself in each result (2026-07-28); to the client of the gateway, the gateway is it.
            meta: Any = {key: value for key, value in received.meta.items() if key != SERVER_INFO_META_KEY}
            received = received.model_copy(update={"meta": meta or None})
        if result.content and not executor.middleware.wraps_tool_calls:
            # The note that the user has changed the arguments.
            note = TextContent(text=str(result.content).strip())
            return received.model_copy(update={"content": [note, *received.content]})
        return received

    def _describe_missing_servers(self) -> str:
        """Return which servers have no tools now, and why: the tool may be one of theirs."""
        states = (ServerState.STARTING, ServerState.FAILED, ServerState.STOPPED)
        missing = [
            f"{name!r} ({connection.summary.why_unavailable})"
            for name, connection in self._servers.items()
            if connection.state in states and not connection.tools
        ]
        return f" These servers are not available: {', '.join(missing)}." if missing else ""


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

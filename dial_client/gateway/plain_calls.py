"""Plain calls of tools, each of which is checked once: middleware of the SDK's server.

The SDK (mcp 2.3) checks the parameters of a request by the schema of its revision, and then by its own model; it makes
JSON of the result, checks that by the schema of the revision, and makes JSON of that once more. A call that has a name,
arguments and ``_meta`` alone has the same form in both, and the result of a call is one of the SDK's models already.
"""

from __future__ import annotations

from typing import Any

from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, SERVER_INFO_META_KEY, CallToolRequestParams, CallToolResult, methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dial_client.servers.transports.response_repair import repair_content

METHOD = "tools/call"
# The revisions that have every kind of content. In the older ones the SDK leaves out what a client does not know.
_REVISIONS = frozenset((LATEST_HANDSHAKE_VERSION, *MODERN_PROTOCOL_VERSIONS))
_MEMBERS = frozenset(("name", "arguments", "_meta"))


class PlainCalls:
    """Answers plain calls; leaves all other requests to the SDK.

    Args:
        server: The server, which has its handler of calls already.
    """

    def __init__(self, server: Server[Any]) -> None:
        entry = server.get_request_handler(METHOD)
        assert entry is not None
        self._server, self._handler = server, entry.handler
        # The revision and the ``_meta`` of the last call that was checked: those of a client are mostly the same.
        self._checked: tuple[str, dict[str, Any]] | None = None

    async def answer(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a call with its result as plain JSON."""
        if ctx.method != METHOD or not self._is_plain(ctx):
            return await call_next(ctx)
        self._check_meta(ctx)
        params = ctx.params
        if ctx.meta is not None:  # the SDK has read it already, and handlers take it from the context
            params = {name: value for name, value in (params or {}).items() if name != "_meta"}
        result = await self._handler(ctx, CallToolRequestParams.model_validate(params, by_name=False))
        return self._to_json(ctx.protocol_version, result)

    def _is_plain(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Return whether a call has no other members. Before the handshake the SDK refuses it."""
        version, params = ctx.protocol_version, ctx.params
        is_open = version in MODERN_PROTOCOL_VERSIONS or ctx.session.client_params is not None
        return is_open and version in _REVISIONS and params is not None and params.keys() <= _MEMBERS

    def _check_meta(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Check what a client says about itself with each request (2026-07-28), unless it has said the same before."""
        meta = {key: value for key, value in (ctx.meta or {}).items() if key != "progress_token"}
        if self._checked != (ctx.protocol_version, meta):
            methods.validate_client_request(METHOD, ctx.protocol_version, ctx.params)
            self._checked = ctx.protocol_version, meta

    def _to_json(self, version: str, result: Any) -> dict[str, Any]:
        if isinstance(result, dict):
            answer = dict(result)
        else:
            answer = result.model_dump(by_alias=True, mode="json", exclude_none=True)
            if not isinstance(result, CallToolResult):  # a question, which has a model for each revision
                answer = self._serialize(version, answer)
        if version in MODERN_PROTOCOL_VERSIONS:
            answer.setdefault("resultType", "complete")
            answer["_meta"] = {SERVER_INFO_META_KEY: self._server.server_info_stamp} | answer.get("_meta", {})
            return answer
        answer.pop("resultType", None)
        if not isinstance(answer.get("structuredContent", {}), dict):
            repair_content(answer, version)  # its server speaks a later revision than the client
        return answer

    def _serialize(self, version: str, answer: dict[str, Any]) -> dict[str, Any]:
        try:
            return methods.serialize_server_result(METHOD, version, answer)
        except ValidationError:
            raise MCPError(INTERNAL_ERROR, "the question is not valid in this revision of the protocol") from None

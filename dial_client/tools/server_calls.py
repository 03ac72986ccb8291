"""One call of a server's tool: its result, including failures of the server, and the MCP App that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dial_client.messages.errors import ServerError
from dial_client.messages.mcp_apps import App
from dial_client.messages.message import NO_OUTPUT, Failure, ToolCallRequest, ToolCallResult, extract_text
from dial_client.runtime.logs import get_logger
from dial_client.servers.session import OnCallProgress, to_tool_error
from dial_client.tools import result_content
from dial_client.tools.catalog import Route

if TYPE_CHECKING:
    from mcp_types import CallToolResult

log = get_logger(__name__)

_NO_REASON = "The tool failed without saying why."


def find_app(call: ToolCallRequest, route: Route) -> App | None:
    """Return the MCP App that shows a call; None if its tool has none."""
    spec = route.spec
    return App(call.id, spec.server, spec.tool, spec.app_uri, call.arguments) if spec.app_uri else None


async def make_call(
    call: ToolCallRequest, route: Route, on_progress: OnCallProgress, app: App | None = None
) -> ToolCallResult:
    """Return the result of a call; an error of the server or of its connection becomes a failed result."""
    try:
        answer = await route.connection.call(route.spec.tool, call.arguments, on_progress)
        if isinstance(answer, ToolCallResult):
            return replace(answer, tool_call_id=call.id)
        content = result_content.to_content(answer, _find_output_problem(answer, route))
        app = app and app.with_result(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
    except ServerError as error:
        return ToolCallResult.failed(call.id, Failure.SERVER, to_tool_error(error))
    except Exception as error:  # noqa: BLE001 - an unexpected error in one call must not end the others
        log.warning("tool_call_broke", tool=call.name, error=type(error).__name__)
        return ToolCallResult.failed(call.id, Failure.SERVER, f"The call failed: {type(error).__name__}.")
    if not answer.is_error:
        return ToolCallResult(call.id, success=True, content=content, app=app)
    if content == NO_OUTPUT:
        return replace(ToolCallResult.failed(call.id, Failure.TOOL, _NO_REASON), app=app)
    from dial_client.runtime.error_lines import summarize_error

    summary = summarize_error(extract_text(content)) or _NO_REASON
    return ToolCallResult(call.id, success=False, content=content, error=summary, failure=Failure.TOOL, app=app)


def _find_output_problem(answer: CallToolResult, route: Route) -> str:
    """Return a note if a structured result does not fit the tool's output schema; the result is used anyway."""
    structured = answer.structured_content
    if answer.is_error or structured is None or not route.spec.output_schema:
        return ""
    problems = route.output_check.find_problems(structured)
    return f"[The structured result does not fit what the tool promises: {'; '.join(problems)}]" if problems else ""

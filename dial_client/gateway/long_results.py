"""Results that are shortened on request (``--max-result-chars``), and the tool that reads what was left out.

Without this option results are handed on whole: many hosts shorten them themselves, in their own way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from dial_client.gateway.client_session import ClientSession
from dial_client.runtime.safe_text import sanitize
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.tools.result_content import READ_RESULT, ResultStore, shorten
from dial_client.tools.tool_selection import READ_RESULT_TOOL

_CHECK = ArgumentCheck(READ_RESULT_TOOL.input_schema)
_TOOL = Tool(
    name=READ_RESULT,
    description=READ_RESULT_TOOL.description,
    input_schema=dict(READ_RESULT_TOOL.input_schema),
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


@dataclass(eq=False, slots=True)
class LongResults:
    """Shortens results, and keeps their full texts in memory for the client that received them.

    Args:
        max_chars: Maximum characters of the texts of a result.
    """

    max_chars: int
    _store: ResultStore = field(default_factory=ResultStore, init=False)

    def list_tools(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return tools as they are listed, with the tool that reads on.

        They have no output schema: a result that was shortened has no structured content any more, and a client would
        take it for an invalid one.
        """
        return [*(tool.model_copy(update={"output_schema": None}) for tool in tools), _TOOL]

    def shorten(self, result: CallToolResult, session: ClientSession) -> CallToolResult:
        """Return a result whose texts have at most `max_chars` characters together; other content stays."""
        texts = [block for block in result.content if isinstance(block, TextContent)]
        structured = result.structured_content
        is_long = sum(len(block.text) for block in texts) > self.max_chars
        if not is_long and (structured is None or len(str(structured)) <= self.max_chars):
            return result
        if not texts:  # the structured content alone is too long
            texts = [TextContent(text=json.dumps(structured, ensure_ascii=False))]
        joined = "\n".join(block.text for block in texts)
        shown = str(shorten(joined, self.max_chars, lambda text: self._store.keep(text, session.id)))
        rest = [block for block in result.content if not isinstance(block, TextContent)]
        return result.model_copy(update={"content": [TextContent(text=shown), *rest], "structured_content": None})

    def read(self, arguments: Mapping[str, Any], session: ClientSession) -> CallToolResult:
        """Answer a call of the tool that reads on."""
        if problems := _CHECK.find_problems(arguments):
            return _build_error(f"The arguments do not fit: {'; '.join(problems)}.")
        text = self._store.read(arguments, self.max_chars, session.id)
        if text is None:
            return _build_error(f"There is no result {sanitize(arguments['id'][:40])!r} any more: call the tool again.")
        return CallToolResult(content=[TextContent(text=text)])


def _build_error(problem: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=problem)], is_error=True)

"""An MCP server of one toolkit: ``python -m benchmarks.fidelity.server NAME``.

``catalog COUNT`` has that many tools of `benchmarks.search_data`, which nobody needs.

Two further tools are for the benchmark, which does not offer them to the model: ``begin_NAME`` and ``state_NAME``.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from benchmarks.fidelity.toolkits import open_toolkit
from benchmarks.search import multiplied
from benchmarks.search_data import tools


async def serve_catalog(count: int) -> None:
    """Serve tools that do nothing."""
    offered = multiplied(tools(), count)
    listed = [
        types.Tool(name=each.name, description=each.description, input_schema=dict(each.input_schema))
        for each in offered
    ]

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="nothing")])

    await _run(Server("catalog", on_list_tools=list_tools, on_call_tool=call_tool))


async def serve(name: str) -> None:
    """Serve until standard input ends."""
    toolkit = open_toolkit(name)
    begin, state = f"begin_{name}", f"state_{name}"
    listed = [
        types.Tool(name=each.name, description=each.description, input_schema=each.schema)
        for each in toolkit.definitions()
    ]
    task = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}
    listed += [types.Tool(name=begin, input_schema=task), types.Tool(name=state, input_schema={"type": "object"})]

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == begin:
            toolkit.begin(arguments["task"])
            text, failed = "begun", False
        elif params.name == state:
            text, failed = toolkit.state(), False
        else:
            text, failed = toolkit.call(params.name, arguments)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    await _run(Server(name, on_list_tools=list_tools, on_call_tool=call_tool))


async def _run(server: Server[Any]) -> None:
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "catalog":
        anyio.run(serve_catalog, int(sys.argv[2]))
    else:
        anyio.run(serve, sys.argv[1])

"""What the SDK costs alone: ``python -m benchmarks.gateway_floor server``, or ``proxy COMMAND …`` in front of a server.

The proxy is the shortest gateway that can be written with the SDK: its low-level server, its client, one tool call
handed on. It checks, asks, records and restarts nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

Context = ServerRequestContext[Any, Any]


async def serve() -> None:
    """Answer calls with their own ``text``."""
    tool = Tool(name="echo", input_schema={"type": "object"})

    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(_: Context, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=(params.arguments or {})["text"])])

    await _run(Server("floor", on_list_tools=list_tools, on_call_tool=call_tool))


async def hand_on(*command: str) -> None:
    """Hand calls on to a server that is started with a command."""
    async with Client(StdioServerParameters(command=command[0], args=list(command[1:]))) as client:

        async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
            return await client.list_tools()

        async def call_tool(_: Context, params: CallToolRequestParams) -> CallToolResult:
            return await client.call_tool(params.name, params.arguments)

        await client.list_tools()
        await _run(Server("floor", on_list_tools=list_tools, on_call_tool=call_tool))


async def _run(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def main() -> None:
    """Run until the input ends."""
    kind, *command = sys.argv[1:]
    if kind == "server":
        anyio.run(serve)
    else:
        anyio.run(hand_on, *command)


if __name__ == "__main__":
    main()

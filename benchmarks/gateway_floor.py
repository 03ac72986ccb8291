"""What the SDK costs alone: ``python -m benchmarks.gateway_floor server``, or ``proxy COMMAND …`` in front of a server.

The proxy is the shortest gateway that can be written with the SDK: its low-level server, its client, one tool call
handed on. It checks, asks, records and restarts nothing. ``plain COMMAND …`` is the shortest without the SDK, with one
task for each request, and waits of anyio.
"""

from __future__ import annotations

import json
import os
import subprocess
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


async def hand_on_plainly(*command: str) -> None:
    """Hand all requests on to a server that is started with a command, with ids of their own."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220 - once
        assert process.stdin is not None and process.stdout is not None
        to_server, from_server = process.stdin.fileno(), process.stdout.fileno()
        waiting: dict[int, tuple[anyio.Event, list[Any]]] = {}
        async with anyio.create_task_group() as group:

            async def answer(request: dict[str, Any], number: int) -> None:
                event, answers = waiting[number] = anyio.Event(), []
                _write(to_server, request | {"id": number})
                await event.wait()
                _write(1, answers[0] | {"id": request["id"]})

            async def read_answers() -> None:
                while lines := await _read(from_server):
                    for response in map(json.loads, lines):
                        event, answers = waiting.pop(response["id"])
                        answers.append(response)
                        event.set()

            group.start_soon(read_answers)
            count = 0
            while lines := await _read(0):
                for message in map(json.loads, lines):
                    if "id" in message:
                        count += 1
                        group.start_soon(answer, message, count)
                    else:
                        _write(to_server, message)
            process.stdin.close()
            group.cancel_scope.cancel()


def _write(file: int, message: dict[str, Any]) -> None:
    os.write(file, json.dumps(message).encode() + b"\n")


async def _read(file: int) -> list[bytes]:
    """Return the next lines; a line is short enough to arrive as a whole."""
    await anyio.wait_readable(file)
    return os.read(file, 65_536).splitlines()


async def _run(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def main() -> None:
    """Run until the input ends."""
    kind, *command = sys.argv[1:]
    if kind == "server":
        anyio.run(serve)
    else:
        anyio.run({"proxy": hand_on, "plain": hand_on_plainly}[kind], *command)


if __name__ == "__main__":
    main()

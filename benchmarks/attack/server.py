"""A suite as an MCP server on standard input and output: ``python -m benchmarks.attack.server SUITE [PACKAGES]``.

PACKAGES is the folder with `agentdojo`, if it is not installed. Requests to set up and judge trials come over the
socket of `benchmarks.attack.control`, whose address and token are in ``ATTACK_CONTROL``: no offered tool can do that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.attack.suites import Suite
from benchmarks.attack.tool_annotations import EFFECTS

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


def build_server(suite: Suite) -> Server[Any]:
    """Return a server that offers the suite's tools."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    tools = []
    for tool in suite.tools():
        effect = EFFECTS[suite.name][tool["name"]]
        annotations = types.ToolAnnotations(
            read_only_hint=effect.read_only, destructive_hint=effect.destructive, open_world_hint=effect.open_world
        )
        tools.append(
            types.Tool(
                name=tool["name"], description=tool["description"], input_schema=tool["schema"], annotations=annotations
            )
        )

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, failed = suite.call(params.name, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    server: Server[Any] = Server(suite.name, on_list_tools=list_tools, on_call_tool=call_tool)
    add_skill(server, suite)
    return server


def add_skill(server: Server[Any], suite: Suite) -> None:
    """Let a server have the skill of the current trial, if it has one (SEP-2640)."""
    import mcp_types as types

    def build_document() -> str:
        return f"---\nname: {build_name()}\ndescription: How to work with this server.\n---\n{suite.skill}\n"

    def build_name() -> str:
        return f"how-to-{suite.trial_count}"

    async def list_skills(_context: Any, _params: types.PaginatedRequestParams | None) -> Any:
        uri, data = f"skill://{build_name()}/SKILL.md", build_document().encode()
        file = {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
        about = {"name": build_name(), "description": "How to work with this server."}
        skills = [{"uri": uri, "frontmatter": about, "resources": [file]}] if suite.skill else []
        return {"skills": skills, "ttlMs": 1, "cacheScope": "private"}

    async def read(_context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = build_document()
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])

    server.extensions["io.modelcontextprotocol/skills"] = {}
    server.add_request_handler("skills/list", types.PaginatedRequestParams, list_skills)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)


async def take_orders(suite: Suite, address: str) -> None:
    """Set up and judge trials on request of the benchmark, until it closes the socket."""
    host, port, token = address.split(",")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
    writer.write(json.dumps(token).encode() + b"\n")
    while line := await reader.readline():
        order = json.loads(line)
        answer = getattr(suite, order["do"])(*order["with"])
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


async def serve(name: str) -> None:
    """Serve until standard input ends."""
    from mcp.server.stdio import stdio_server

    suite = Suite(name)
    server = build_server(suite)
    orders = asyncio.create_task(take_orders(suite, os.environ["ATTACK_CONTROL"]))
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())
    orders.cancel()


if __name__ == "__main__":
    sys.path.extend(sys.argv[2:3])
    asyncio.run(serve(sys.argv[1]))

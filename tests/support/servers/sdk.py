"""A well-behaved MCP server of the SDK: ``python sdk.py stdio|http|sse [PORT]``. Over HTTP its first line is its port.

It speaks every version, and ends with its standard input.
"""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from tests.support.servers.listening import LIFETIME, end_in_time, listen

server = MCPServer("sdk", log_level="CRITICAL")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def big(size: int) -> str:
    """Say a lot."""
    return "x" * size


@server.tool()
async def grow(context: Context) -> str:
    """Have one more tool from now on, and tell those who listen."""
    server.add_tool(lambda: "new", name="grown", description="It is new.")
    await context.notify_tools_changed()
    return "done"


stopped: list[str] = []


@server.tool()
async def slow(context: Context) -> str:
    """Report progress, then wait to be cancelled."""
    await context.report_progress(1, 4, "a quarter")
    try:
        await anyio.sleep(LIFETIME)
    finally:
        stopped.append("slow")
    return "never"


@server.tool()
async def what_was_stopped() -> str:
    """Wait until a call was cancelled, and name it."""
    while not stopped:  # noqa: ASYNC110 (a variable is all there is to look at)
        await anyio.sleep(0.01)
    return stopped[0]


@server.tool()
def die() -> str:
    """End the process at once."""
    os._exit(7)


def main() -> None:
    end_in_time()
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    app = server.streamable_http_app() if sys.argv[1] == "http" else server.sse_app()
    listen(app, int(sys.argv[2]) if len(sys.argv) > 2 else 0)


if __name__ == "__main__":
    main()

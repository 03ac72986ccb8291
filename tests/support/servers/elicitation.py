"""An MCP server of the SDK, over stdio, whose tool asks the user something, as servers of 2025 do."""

from __future__ import annotations

import os
import threading

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

LIFETIME = 120.0

server = MCPServer("asking", log_level="CRITICAL")


class Reply(BaseModel):
    yes: bool


@server.tool()
async def asks(context: Context) -> str:
    """Ask whether it is meant."""
    answer = await context.elicit("Really?", Reply)
    return f"the user said {answer.action}"


if __name__ == "__main__":
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    server.run("stdio")

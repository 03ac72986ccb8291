"""A client with a calculator as its server and a scripted model."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer

from dial_client import DialClient, Message
from dial_client.testing import ScriptedProvider

ASK = [Message.user("go on")]


def calculator() -> MCPServer:
    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("secret detail")

    return server


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


ADD = call("add", a=17, b=25)


def client(*replies: Any, after: str = "error", **options: Any) -> tuple[DialClient, ScriptedProvider]:
    model = ScriptedProvider(replies, after=after)
    return DialClient(model, servers={"calc": calculator()}, **({"guidance": ""} | options)), model

"""Function tools together with tools of servers."""

from __future__ import annotations

import pytest
from mcp.server import MCPServer

from dial_client import DialClient

pytestmark = pytest.mark.anyio


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def test_a_function_and_a_server_tool_of_the_same_name_get_different_names() -> None:
    server = MCPServer("calculator")
    server.tool(name="add")(add)
    async with DialClient(servers={"calc": server}, tools=[add]) as dial:
        assert [tool.name for tool in dial.tools] == ["calc__add", "functions__add"]
        assert list(dial.tool_name_client_map) == ["calc__add"], "functions have no connection"
        assert (await dial.call("functions__add", {"a": 1})).content == "3"

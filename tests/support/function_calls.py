"""Clients whose only tools are functions."""

from __future__ import annotations

from typing import Any

from dial_client import DialClient, ToolCallResult, Turn
from dial_client.testing import ScriptedProvider


async def call(function: Any, /, **arguments: Any) -> ToolCallResult:
    """Call one function as a client without a model does."""
    async with DialClient(tools=[function]) as dial:
        return await dial.call(dial.tools[0].name, arguments)


async def run(*replies: Any, **options: Any) -> Turn:
    async with DialClient(ScriptedProvider(replies), **options) as dial:
        return await dial.run("go on")


def calls(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}

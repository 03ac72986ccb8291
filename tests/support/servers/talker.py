"""An MCP server that logs what it is told: ``python talker.py stdio|http``, or `talker()`.

It ends with its standard input.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as wire
from anyio.abc import TaskGroup
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tests.support.servers.listening import end_in_time, listen

LEVELS: tuple[wire.LoggingLevel, ...] = ("debug", "info", "error")


class Talker:
    """The server, and the log levels that it was asked for."""

    def __init__(self) -> None:
        self.levels: list[str] = []
        self.group: TaskGroup | None = None
        """Runs what the server does after its calls, as a process."""
        self._together = anyio.Event()
        self._waiting = 0

    async def list_tools(self, *_: object) -> wire.ListToolsResult:
        return wire.ListToolsResult(
            tools=[wire.Tool(name=name, input_schema={"type": "object"}) for name in ("say", "levels", "later")]
        )

    async def call_tool(self, context: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        """Log a text at each level; with ``together``, once so many calls are in flight."""
        if params.name == "levels":
            return wire.CallToolResult(content=[wire.TextContent(text=" ".join(self.levels))])
        given = params.arguments or {}
        if params.name == "later":
            assert self.group is not None
            self.group.start_soon(self._say_later, context.session, given["text"])
            return wire.CallToolResult(content=[])
        if (count := given.get("together")) is not None:
            self._waiting += 1
            if self._waiting == count:
                self._together.set()
            await self._together.wait()
        for level in LEVELS:
            data = {"text": given["text"]}
            await context.session.send_log_message(level, data, "mouth", related_request_id=context.request_id)
        return wire.CallToolResult(content=[])

    async def _say_later(self, session: Any, text: str) -> None:
        await anyio.sleep(0.1)  # the result of the call comes first
        await session.send_log_message("error", {"text": text}, "mouth")

    async def set_level(self, _: object, params: wire.SetLevelRequestParams) -> wire.EmptyResult:
        self.levels.append(params.level)
        return wire.EmptyResult()


def talker(it: Talker | None = None) -> Server[Any]:
    """Make the server."""
    it = it or Talker()
    return Server("talker", on_list_tools=it.list_tools, on_call_tool=it.call_tool, on_set_logging_level=it.set_level)


def main() -> None:
    end_in_time()
    it = Talker()
    server = talker(it)

    async def over_stdio() -> None:
        async with stdio_server() as (reader, writer), anyio.create_task_group() as it.group:
            await server.run(reader, writer, server.create_initialization_options())
            it.group.cancel_scope.cancel()

    if sys.argv[1] == "stdio":
        anyio.run(over_stdio)
        return
    listen(server.streamable_http_app())


if __name__ == "__main__":
    main()

"""The floor: the simplest correct loop over the same SDKs, which a good engineer writes in an afternoon.

Servers start concurrently, calls of a round run concurrently, rounds are limited, and calls have a timeout. There is no
approval, repair, restart or status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import TextContent, Tool
from openai import AsyncOpenAI

MAX_ROUNDS = 10

Connected = tuple[Client, list[Tool]]
"""A connected server, and its tools."""


class Floor:
    """A model, and the tools of some servers."""

    def __init__(self, openai: AsyncOpenAI, model: str, servers: list[Connected]) -> None:
        self.openai = openai
        self.model = model
        self.routes = {tool.name: client for client, tools in servers for tool in tools}
        self.tools: list[Any] = [_offered(tool) for _, tools in servers for tool in tools]

    async def run(self, messages: list[Any]) -> str:
        """Return the answer as a whole; the new messages are appended to `messages`."""
        for _ in range(MAX_ROUNDS):
            completion = await self.openai.chat.completions.create(
                model=self.model, messages=messages, tools=self.tools
            )
            message = completion.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            calls = [(call.id, call.function) for call in message.tool_calls if call.type == "function"]
            messages += await asyncio.gather(*(self.call(id_, call.name, call.arguments) for id_, call in calls))
        return ""

    async def stream(self, messages: list[Any]) -> AsyncGenerator[str, None]:
        """Yield the answer in pieces; the new messages are appended to `messages`."""
        for _ in range(MAX_ROUNDS):
            text: list[str] = []
            calls: dict[int, dict[str, str]] = {}
            async with await self.openai.chat.completions.create(
                model=self.model, messages=messages, tools=self.tools, stream=True
            ) as chunks:
                async for chunk in chunks:
                    if not chunk.choices:
                        continue
                    delta = chunk.choices[0].delta
                    if delta.content:
                        text.append(delta.content)
                        yield delta.content
                    for part in delta.tool_calls or ():
                        call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                        call["id"] += part.id or ""
                        if part.function is not None:
                            call["name"] += part.function.name or ""
                            call["arguments"] += part.function.arguments or ""
            messages.append(_assistant("".join(text), list(calls.values())))
            if not calls:
                return
            messages += await asyncio.gather(*(self.call(**call) for call in calls.values()))

    async def call(self, id: str, name: str, arguments: str) -> dict[str, str]:  # noqa: A002 - the name in the API
        """Call a tool, and return its result as a message for the model."""
        result = await self.routes[name].call_tool(name, json.loads(arguments))
        text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        return {"role": "tool", "tool_call_id": id, "content": text}


@asynccontextmanager
async def connected(servers: Mapping[str, Mapping[str, Any]]) -> AsyncIterator[list[Connected]]:
    """Start the servers concurrently, each in its own task: a `Client` must be closed in the task that opened it."""
    stop = asyncio.Event()

    async def run_server(entry: Mapping[str, Any], ready: asyncio.Future[Connected]) -> None:
        parameters = StdioServerParameters(command=entry["command"], args=entry["args"])
        async with Client(parameters, read_timeout_seconds=60) as client:
            ready.set_result((client, await _all_tools(client)))
            await stop.wait()

    async with asyncio.TaskGroup() as group:
        started = [asyncio.get_running_loop().create_future() for _ in servers]
        for entry, ready in zip(servers.values(), started, strict=True):
            group.create_task(run_server(entry, ready))
        try:
            yield await asyncio.gather(*started)
        finally:
            stop.set()


@asynccontextmanager
async def opened(base_url: str, model: str, servers: Mapping[str, Mapping[str, Any]]) -> AsyncIterator[Floor]:
    """Open the model's client and the servers, and close them on exit."""
    async with AsyncOpenAI(base_url=base_url, api_key="none") as openai, connected(servers) as ready:
        yield Floor(openai, model, ready)


async def _all_tools(client: Client) -> list[Tool]:
    page = await client.list_tools()
    tools = page.tools
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _offered(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _assistant(text: str, calls: list[dict[str, str]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in calls
        ]
    return message

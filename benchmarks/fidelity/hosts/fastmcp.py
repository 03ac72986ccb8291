"""FastMCP: a server with `CodeMode` in front of the servers, and the shortest loop with `openai` as its host."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy
from fastmcp.server.transforms import Transform
from openai import AsyncOpenAI

from benchmarks.floor import Floor


class Offer(Transform):  # type: ignore[misc]  # FastMCP is in an environment of its own
    """Shows the tools that the patterns of a turn name."""

    patterns: frozenset[str] = frozenset()

    async def list_tools(self, tools: Sequence[Any]) -> list[Any]:
        """Return those of the tools that are on offer."""
        return [tool for tool in tools if self._is_offered(tool.name)]

    def _is_offered(self, name: str) -> bool:
        server, _, tool = name.partition("_")
        full = f"{server}/{tool}"
        return f"!{full}" not in self.patterns and (full in self.patterns or f"{server}/*" in self.patterns)


class Host:
    """The loop, with the one server and those behind it."""

    def __init__(self, floor: Floor, offer: Offer, clients: Mapping[str, Any]) -> None:
        self._floor, self._offer, self._clients = floor, offer, clients

    def name(self, server: str, tool: str) -> str:
        """Return the name of a tool for the model."""
        return f"{server}_{tool}"

    async def ask(self, question: str, history: Any, patterns: Sequence[str]) -> tuple[str, Any]:
        """Return the answer and the new history."""
        self._offer.patterns = frozenset(patterns)
        messages = [*(history or ()), {"role": "user", "content": question}]
        return await self._floor.run(messages), messages

    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Return the result of a call past the model."""
        result = await self._clients[server].call_tool(tool, arguments)
        return "".join(block.text for block in result.content)


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any], *, code: bool, search: bool) -> AsyncIterator[Host]:
    """Connect the servers once: the sessions of connected clients serve all requests of their proxies."""
    assert code and search, "`CodeMode` has programs and searches"
    offer = Offer()
    front = FastMCP("front", transforms=[offer, CodeMode()])
    async with AsyncExitStack() as stack, AsyncOpenAI(base_url=base_url, api_key="none") as openai:
        clients = {}
        for name, entry in servers.items():
            transport = StdioTransport(command=entry["command"], args=entry["args"])
            clients[name] = await stack.enter_async_context(Client(transport))
            front.mount(create_proxy(clients[name]), namespace=name)
        client = await stack.enter_async_context(Client(front))
        yield Host(Floor(openai, "x", [(client, await client.list_tools())]), offer, clients)

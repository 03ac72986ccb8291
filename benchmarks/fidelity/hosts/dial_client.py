"""This library."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dial_client import DialClient, Limits

ALL = 100_000_000
OFFERED = 10
"""The most tools that are offered without a search, in runs with search."""


class Host:
    """A client, and the names of its tools."""

    def __init__(self, dial: DialClient) -> None:
        self._dial = dial
        self._names = {(tool.server, tool.tool): tool.name for tool in dial.tools}

    def name(self, server: str, tool: str) -> str:
        """Return the name of a tool for the model."""
        return self._names[server, tool]

    async def ask(self, question: str, history: Any, patterns: Sequence[str]) -> tuple[str, Any]:
        """Return the answer and the new history."""
        turn = await self._dial.run(question, history=history or (), tools=patterns)
        return turn.text, (*(history or ()), *turn.messages)

    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Return the result of a call past the model."""
        return str((await self._dial.call(self._names[server, tool], arguments)).content)


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any], *, code: bool, search: bool) -> AsyncIterator[Host]:
    """Open the client; nobody is there to approve calls, so the entries allow them."""
    entries = {name: {**entry, "autoApprove": ["*"]} for name, entry in servers.items()}
    # What is not measured is without limits.
    limits = Limits(
        max_depth=100,
        max_consecutive_errors=1000,
        max_repeats=1000,
        max_result_chars=ALL,
        max_tool_bytes=ALL,
        max_tools=OFFERED if search else ALL,
    )
    tool_format = "code" if code else "native"
    async with DialClient("chat:x", base_url=base_url, servers=entries, tool_format=tool_format, limits=limits) as dial:
        await dial.ready()
        yield Host(dial)

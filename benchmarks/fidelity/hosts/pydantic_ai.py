"""pydantic-ai: an `MCPToolset` for each server, and `CodeMode` of pydantic-ai-harness; searched are deferred tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_harness import CodeMode


class Host:
    """An agent, and its servers."""

    def __init__(self, agent: Any, toolsets: Mapping[str, Any]) -> None:
        self._agent, self._toolsets = agent, toolsets

    def name(self, server: str, tool: str) -> str:
        """Return the name of a tool for the model."""
        return f"{server}_{tool}"

    async def ask(self, question: str, history: Any, patterns: Sequence[str]) -> tuple[str, Any]:
        """Return the answer and the new history."""
        result = await self._agent.run(question, message_history=history, deps=frozenset(patterns))
        return result.output, result.all_messages()

    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Return the result of a call past the model."""
        result = await self._toolsets[server].client.call_tool(tool, arguments)
        return "".join(block.text for block in result.content)


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any], *, code: bool, search: bool) -> AsyncIterator[Host]:
    """Enter the agent, which connects its servers. The patterns of a turn are its dependencies."""
    toolsets = {
        name: MCPToolset(StdioTransport(command=entry["command"], args=entry["args"]), id=name)
        for name, entry in servers.items()
    }

    def offer(name: str, toolset: MCPToolset) -> Any:
        def is_offered(context: Any, tool: Any) -> bool:
            full = f"{name}/{tool.name}"
            return f"!{full}" not in context.deps and (full in context.deps or f"{name}/*" in context.deps)

        offered = toolset.filtered(is_offered).prefixed(name)
        return offered.defer_loading() if search else offered

    agent = Agent(
        OpenAIChatModel("x", provider=OpenAIProvider(base_url=base_url, api_key="none")),
        deps_type=frozenset[str],
        toolsets=[offer(name, toolset) for name, toolset in toolsets.items()],
        capabilities=[CodeMode()] if code else [],
    )
    async with agent:
        yield Host(agent, toolsets)

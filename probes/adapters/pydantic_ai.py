"""pydantic-ai: an agent with an `MCPToolset` for each server, as `load_mcp_toolsets` builds them, entered once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, AgentRunResultEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Enter the agent, which connects its servers."""
    toolsets = [
        MCPToolset(StdioTransport(command=entry["command"], args=entry["args"]), id=name).prefixed(name)
        for name, entry in servers.items()
    ]
    model = OpenAIChatModel("x", provider=OpenAIProvider(base_url=base_url, api_key="none"))
    async with Agent(model, toolsets=toolsets) as agent:

        async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
            if on_text is None:
                result = await agent.run(question, message_history=history)
                return result.output, result.all_messages()
            async with agent.run_stream_events(question, message_history=history) as events:
                async for event in events:
                    match event:
                        case (
                            PartStartEvent(part=TextPart(content=text))
                            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                        ):
                            on_text(text)
                        case AgentRunResultEvent(result=result):
                            return result.output, result.all_messages()
            raise RuntimeError("the stream has no result")

        yield ask

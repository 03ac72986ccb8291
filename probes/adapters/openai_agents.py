"""openai-agents: an agent with the servers of an `MCPServerManager`.

`connect_in_parallel` and `include_server_in_tool_names` are options that its documentation of MCP recommends for
several servers. The model is an endpoint for chat completions; traces, which would be sent away,
are off, as for any other endpoint. `cache_tools_list`, which the documentation recommends for tools that do not change,
is on if the environment says that they do not (``STABLE_TOOLS``), as in the work of `benchmarks.hosts`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerManager, MCPServerStdio
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Connect the servers at the same time, and build the agent."""
    set_tracing_disabled(True)
    stdio = [
        MCPServerStdio(
            params={"command": entry["command"], "args": entry["args"]},
            name=name,
            cache_tools_list="STABLE_TOOLS" in os.environ,
        )
        for name, entry in servers.items()
    ]
    async with (
        AsyncOpenAI(base_url=base_url, api_key="none") as client,
        MCPServerManager(stdio, connect_in_parallel=True) as manager,
    ):
        agent = Agent(
            name="Assistant",
            model=OpenAIChatCompletionsModel("x", client),
            mcp_servers=manager.active_servers,
            mcp_config={"include_server_in_tool_names": True},
        )

        async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
            messages = [*(history or ()), {"role": "user", "content": question}]
            if on_text is None:
                result: Any = await Runner.run(agent, messages)
            else:
                result = Runner.run_streamed(agent, messages)
                async for event in result.stream_events():
                    if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                        on_text(event.data.delta)
            return result.final_output, result.to_input_list()

        yield ask

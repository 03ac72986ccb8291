"""langchain-mcp-adapters with langgraph: `create_agent` over the tools of a session that is kept for each server.

Without sessions of its own, `MultiServerMCPClient.get_tools` would start each server anew for each call; its
documentation shows `session` for servers on standard input and output. The servers start at the same time, each in its
own task, because a session must be closed in the task that opened it. `tool_name_prefix` is for equal names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open a session for each server, and build the agent."""
    connections: Any = {name: {**entry, "transport": "stdio"} for name, entry in servers.items()}
    client = MultiServerMCPClient(connections)
    closing = asyncio.Event()

    async def keep_session(name: str, ready: asyncio.Future[Any]) -> None:
        async with client.session(name) as session:
            ready.set_result(await load_mcp_tools(session, server_name=name, tool_name_prefix=True))
            await closing.wait()

    async with asyncio.TaskGroup() as group:
        loaded: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in servers]
        for name, ready in zip(servers, loaded, strict=True):
            group.create_task(keep_session(name, ready))
        tools = [tool for tools in await asyncio.gather(*loaded) for tool in tools]
        agent: Any = create_agent(ChatOpenAI(model="x", base_url=base_url, api_key="none"), tools)

        async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
            state = {"messages": [*(history or ()), {"role": "user", "content": question}]}
            if on_text is None:
                state = await agent.ainvoke(state)
            else:
                async for mode, part in agent.astream(state, stream_mode=["messages", "values"]):
                    if mode == "values":
                        state = part
                    elif part[0].type == "AIMessageChunk" and part[0].content:
                        on_text(part[0].content)
            return state["messages"][-1].text, state["messages"]

        try:
            yield ask
        finally:
            closing.set()

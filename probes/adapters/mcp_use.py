"""mcp-use: an `MCPAgent` over an `MCPClient` with the servers' entries, and `ChatOpenAI`.

`max_steps=30` is what its documentation uses; the default of 5 ends the work of this benchmark. Its telemetry, which
would be sent away, is off, as its documentation says. The history is kept outside of the agent, which allows turns at
the same time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

os.environ.setdefault("MCP_USE_ANONYMIZED_TELEMETRY", "false")

from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Connect the servers, and build the agent."""
    client = MCPClient.from_dict({"mcpServers": dict(servers)})
    llm = ChatOpenAI(model="x", base_url=base_url, api_key="none")
    agent = MCPAgent(llm=llm, client=client, max_steps=30)
    try:
        await agent.initialize()

        async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
            text, before = "", history or []
            if on_text is None:
                text = await agent.run(question, external_history=before)
            else:
                async for event in agent.stream_events(question, external_history=before):
                    if event["event"] == "on_chat_model_stream" and event["data"]["chunk"].content:
                        text += event["data"]["chunk"].content
                        on_text(event["data"]["chunk"].content)
            return text, [*before, HumanMessage(question), AIMessage(text)]

        yield ask
    finally:
        await client.close_all_sessions()

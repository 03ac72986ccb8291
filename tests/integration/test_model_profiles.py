"""Profiles of endpoints in whole turns: tool formats, tool names and schema dialects affect only the requests."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Message
from tests.inner import ModelProfile
from tests.support.model_endpoint import Call, ModelEndpoint, Say, model_endpoint, one_json

pytestmark = pytest.mark.anyio

REACT = Say('Thought: I look.\nAction: lookup\nAction Input: {"word": "tea"}')
ANSWER = Say("Thought: I know.\nFinal Answer: A plant.")


def dictionary(name: str = "lookup") -> MCPServer:
    server = MCPServer("dictionary", log_level="CRITICAL")

    @server.tool(name=name)
    def lookup(word: str) -> str:
        """Look a word up."""
        return f"{word}: a plant"

    return server


def client(endpoint: ModelEndpoint, server: MCPServer, **settings: Any) -> DialClient:
    profile = ModelProfile("p", **({"base_url": endpoint.url, "model": "m", "api_key": "k"} | settings))
    return DialClient("p", servers={"dictionary": server}, models={"p": profile})


async def test_a_profile_can_select_tool_calls_as_text() -> None:
    with model_endpoint([REACT, ANSWER]) as endpoint:
        async with client(endpoint, dictionary(), quirks={"tools": "text"}) as dial:
            turn = await dial.run([Message.user("What is tea?")])

    assert turn.text == "A plant."
    assert [call.result.content for call in turn.tool_calls] == ["tea: a plant"]
    assert "tools" not in endpoint.requests[0].json


FENCED = Say('I look it up.\n\n```json\n{"name": "lookup", "arguments": {"word": "tea"}}\n```', pieces=9)


@pytest.mark.parametrize("preset", ["ollama", "llama.cpp"])
async def test_a_call_in_the_last_code_fence_runs_with_presets_of_local_servers(preset: str) -> None:
    with model_endpoint([FENCED, Say("A plant.")]) as endpoint:
        async with client(endpoint, dictionary(), preset=preset) as dial:
            turn = await dial.run([Message.user("What is tea?")])

    assert turn.text == "A plant."
    assert [call.result.content for call in turn.tool_calls] == ["tea: a plant"]
    [echoed] = [message for message in endpoint.requests[1].json["messages"] if message.get("tool_calls")]
    assert echoed["content"].strip() == "I look it up."


async def test_a_call_in_the_last_code_fence_is_text_with_other_endpoints() -> None:
    with model_endpoint([FENCED]) as endpoint:
        async with client(endpoint, dictionary()) as dial:
            turn = await dial.run([Message.user("How do I call it?")])

    assert turn.text == FENCED.text
    assert turn.tool_calls == ()


async def test_a_given_tool_format_overrides_the_profile() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        async with client(endpoint, dictionary(), quirks={"tools": "text"}, tool_format="native") as dial:
            await dial.run([Message.user("What is tea?")])

    assert len(endpoint.requests[0].json["tools"]) == 1


async def test_a_dial_deployment_without_tools_uses_a_text_format() -> None:
    described = one_json({"interfaces": ["openaiChatCompletions"], "features": {"tools": False}})
    with model_endpoint([REACT, ANSWER], described) as endpoint:
        async with client(endpoint, dictionary(), preset="dial") as dial:
            turn = await dial.run([Message.user("What is tea?")])

    assert turn.text == "A plant."
    assert len(turn.tool_calls) == 1
    assert not [request for request in endpoint.requests if "tools" in request.json]


async def test_a_call_with_a_mapped_tool_name_reaches_the_tool() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        async with client(endpoint, dictionary("3d.lookup"), preset="moonshot") as dial:
            await dial.run([Message.user("?")])
            offered = [tool.name for tool in dial.tools]
        (sent,) = (tool["function"]["name"] for tool in endpoint.requests[0].json["tools"])
    with model_endpoint([Say("", (Call(sent, {"word": "tea"}),)), Say("A plant.")]) as endpoint:
        async with client(endpoint, dictionary("3d.lookup"), preset="moonshot") as dial:
            turn = await dial.run([Message.user("What is tea?")])

    assert offered == ["3d_lookup"]
    assert sent != "3d_lookup"
    assert [call.call.name for call in turn.tool_calls] == ["3d_lookup"]
    assert [call.result.content for call in turn.tool_calls] == ["tea: a plant"]
    assert endpoint.requests[1].json["messages"][2]["tool_calls"][0]["function"]["name"] == sent


async def test_arguments_are_checked_against_the_schema_of_the_server() -> None:
    server = MCPServer("shirts", log_level="CRITICAL")

    @server.tool()
    def order(size: Literal[1, 2]) -> str:
        """Order a shirt."""
        return f"size {size}"

    calls = (Call("order", {"size": 3}), Call("order", {"size": 2}, "call_2"))
    with model_endpoint([Say("", calls), Say("Done.")]) as endpoint:
        async with client(endpoint, server, preset="gemini") as dial:
            turn = await dial.run([Message.user("Two shirts")])

    size = endpoint.requests[0].json["tools"][0]["function"]["parameters"]["properties"]["size"]
    assert size["type"] == "integer"
    assert '{"enum":[1,2]}' in size["description"]
    assert [call.result.success for call in turn.tool_calls] == [False, True]

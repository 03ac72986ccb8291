"""Endpoints with their own tool search: many tools are offered with deferred loading."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Message
from tests.inner import Api
from tests.support.model_endpoint import Answer, Call, Recorded, Say, model_endpoint, one_json, provider_of, refuse

pytestmark = pytest.mark.anyio

ASK = [Message.user("Do thing 42.")]
COUNT = 60
WIRES = pytest.mark.parametrize("wire", [Api.RESPONSES, Api.MESSAGES])
SEARCH = {
    Api.RESPONSES: {"type": "tool_search"},
    Api.MESSAGES: {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}
SEARCHED: dict[Api, list[dict[str, Any]]] = {
    Api.RESPONSES: [
        {"type": "tool_search_call", "id": "ts_1", "execution": "server", "status": "completed", "arguments": {}},
        {"type": "tool_search_output", "id": "to_1", "execution": "server", "status": "completed", "tools": []},
    ],
    Api.MESSAGES: [
        {"type": "server_tool_use", "id": "srv_1", "name": "tool_search_tool_bm25", "input": {"query": "42"}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srv_1",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "thing_42"}],
            },
        },
    ],
}
"""The content of each API about its own tool search, in the form of the installed SDKs' types."""


def library(count: int = COUNT) -> MCPServer:
    made = MCPServer("library")
    for number in range(count):
        made.add_tool(lambda: "did it", name=f"thing_{number}", description=f"Does thing {number}.")
    return made


def calling(wire: Api) -> Any:
    """Return a response with a tool search and a call of the tool that the search found."""
    if wire is Api.RESPONSES:
        call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "thing_42", "arguments": "{}"}
        return one_json({"object": "response", "status": "completed", "output": [*SEARCHED[wire], call]})
    use: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "thing_42", "input": {}}
    return one_json({"type": "message", "stop_reason": "tool_use", "content": [*SEARCHED[wire], use]})


def offered(request: Recorded) -> dict[str, Any]:
    """Return whether each offered tool may be deferred by the endpoint, by name."""
    return {tool["name"]: tool.get("defer_loading", False) for tool in request.json["tools"] if "name" in tool}


def list_types(request: Recorded) -> list[Any]:
    """Return the types of all items in the history of the request."""
    messages = request.json.get("messages") or request.json["input"]
    blocks = [message.get("content") if message.get("type") is None else [message] for message in messages]
    return [block["type"] for content in blocks if isinstance(content, list) for block in content]


@WIRES
async def test_many_tools_are_deferred_to_the_tool_search_of_the_endpoint(wire: Api) -> None:
    with model_endpoint([calling(wire), Say("Done.")]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"tool_search": True})
        async with DialClient(provider, servers={"library": library()}) as dial:
            turn = await dial.run(ASK)

    assert (turn.text, [call.result.content for call in turn.tool_calls]) == ("Done.", ["did it"])
    first, second = endpoint.requests
    assert SEARCH[wire] in first.json["tools"]
    own = {name: deferred for name, deferred in offered(first).items() if name.startswith("thing_")}
    assert own == dict.fromkeys((f"thing_{number}" for number in range(COUNT)), True)
    assert second.json["tools"] == first.json["tools"], "what is cached must stay as it was"
    found = [block["type"] for block in SEARCHED[wire]]
    assert [kind for kind in list_types(second) if kind in found] == found, "the endpoint has to be told what it found"


@WIRES
async def test_few_tools_are_not_deferred(wire: Api) -> None:
    with model_endpoint([Say("Done.")]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"tool_search": True})
        async with DialClient(provider, servers={"library": library(3)}) as dial:
            await dial.run(ASK)
    assert offered(endpoint.requests[0]) == {"thing_0": False, "thing_1": False, "thing_2": False}


@WIRES
@pytest.mark.parametrize(
    "words", ["Extra inputs are not permitted: tools.0.defer_loading", "This model does not support tool search tools."]
)
async def test_an_endpoint_that_refuses_tool_search_gets_the_search_tool_of_the_client(wire: Api, words: str) -> None:
    answers: list[Answer] = [refuse(400, words), Say("", (Call("search_tools", {"query": "thing_42"}),)), Say("Done.")]
    with model_endpoint(answers) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"tool_search": True})
        async with DialClient(provider, servers={"library": library()}) as dial:
            turn = await dial.run(ASK)

    assert turn.text == "Done."
    assert list(offered(endpoint.requests[1])) == ["search_tools"]
    assert offered(endpoint.requests[2])["thing_42"] is False
    assert [note for note in turn.notes if "does not support tool search" in note]


async def test_tools_of_a_pinned_server_and_previously_called_tools_are_not_deferred() -> None:
    history = [
        Message.from_dict(
            {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "thing_7", "arguments": {}}]}
        ),
        Message.from_dict({"role": "tool", "content": "did it", "tool_call_id": "a"}),
    ]
    with model_endpoint([Say("Done.")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES, quirks={"tool_search": True})
        async with DialClient(provider, servers={"library": library()}) as dial:
            await dial.run([*ASK, *history, *ASK])
    shown = [name for name, deferred in offered(endpoint.requests[0]).items() if not deferred]
    assert shown == ["thing_7", "tool_search_tool_bm25"]


@pytest.mark.parametrize(
    ("preset", "wire", "searches"),
    [
        ("openai", Api.RESPONSES, True),
        ("openai", Api.CHAT, False),
        ("anthropic", Api.MESSAGES, True),
        ("azure", Api.RESPONSES, False),
        ("ollama", Api.MESSAGES, False),
    ],
)
async def test_tool_search_is_used_only_with_endpoints_known_to_support_it(
    preset: str, wire: Api, searches: bool
) -> None:
    provider = provider_of("http://127.0.0.1:9/v1", wire, preset=preset)
    assert provider.info.searches_tools is searches
    await provider.aclose()

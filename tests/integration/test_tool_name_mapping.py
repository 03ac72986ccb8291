"""Mapping of tool names that an endpoint does not accept, in requests and responses."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import Api, Message, ModelRequest, ToolCallRequest, ToolCallResult, ToolNameMapping, ToolSpec
from tests.support.model_endpoint import Call, Say, hear, model_endpoint, provider_of, refuse

WIRES = pytest.mark.parametrize("wire", list(Api))
LETTERS = "[a-zA-Z][a-zA-Z0-9]*"


def request(*names: str, messages: tuple[Message, ...] = ()) -> ModelRequest:
    return ModelRequest(messages, tuple(ToolSpec(name, "", {"type": "object"}) for name in names))


def renamed(renaming: ToolNameMapping, *names: str) -> list[str]:
    return [tool.name for tool in renaming.to_endpoint(request(*names)).tools]


def test_a_valid_name_is_unchanged() -> None:
    assert renamed(ToolNameMapping(LETTERS, 64), "now", "time__now")[0] == "now"


def test_a_mapped_name_does_not_depend_on_other_tools() -> None:
    alone = renamed(ToolNameMapping(LETTERS, 64), "time__now")
    among = renamed(ToolNameMapping(LETTERS, 64), "a_b", "time__now", "timenow")

    assert alone == [among[1]]
    assert alone[0].startswith("timenow")


def test_a_server_cannot_take_the_mapped_name_of_another_server() -> None:
    (made,) = renamed(ToolNameMapping(LETTERS, 64), "time__now")
    renaming = ToolNameMapping(LETTERS, 64)

    names = renamed(renaming, "time__now", made)

    assert len(set(names)) == 2
    assert names[1] == made
    back = [renaming.from_endpoint(ToolCallRequest("1", name, {})).name for name in names]
    assert back == ["time__now", made]


def test_a_tool_without_a_possible_name_is_left_out_with_a_note() -> None:
    renaming = ToolNameMapping("only_this", 64)

    assert renamed(renaming, "now", "only_this") == ["only_this"]
    assert renaming.notes == ["the endpoint accepts no name for the tool now: it is left out"]


def test_the_same_tools_are_mapped_once() -> None:
    renaming, asked = ToolNameMapping(LETTERS, 64), request("time__now")

    assert renaming.to_endpoint(asked).tools is renaming.to_endpoint(asked).tools


@settings(deadline=None)
@given(
    names=st.lists(
        st.text(f"{string.ascii_letters}{string.digits}_-", min_size=1, max_size=64), unique=True, max_size=8
    ),
    pattern=st.sampled_from(["", "[a-z]+", LETTERS, "[a-zA-Z_][a-zA-Z0-9_.-]*", "[A-Z]+", "[a-z-]+", "t_[a-z0-9_]+"]),
    length=st.integers(16, 64),
)
def test_every_mapped_name_is_valid_unique_and_reversible(names: list[str], pattern: str, length: int) -> None:
    renaming = ToolNameMapping(pattern, length)

    sent = renamed(renaming, *names)

    assert len(set(sent)) == len(sent) == len(names)
    assert all(len(name) <= length and re.fullmatch(pattern or ".*", name) for name in sent)
    assert [renaming.from_endpoint(ToolCallRequest("1", name, {})).name for name in sent] == names


def names_in(body: Any) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]


@pytest.mark.anyio
@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_has_mapped_names_and_its_calls_have_the_original_names(wire: Api, stream: bool) -> None:
    tools = request("time__now", "3d_render", "fine").tools
    quirks = {"tool_name_re": LETTERS, "tool_name_len": 24}
    sent = renamed(ToolNameMapping(LETTERS, 24), "time__now", "3d_render", "fine")
    with model_endpoint([Say("", (Call(sent[0]), Call(sent[1], id="call_2"))), Say("Done")]) as endpoint:
        provider = provider_of(endpoint, wire, quirks=quirks)
        heard = await hear(provider, tools=tools, stream=stream)
        results = [Message.tool(call, ToolCallResult(call.id, success=True, content="12:00")) for call in heard.calls]
        gone = Message.assistant("", [ToolCallRequest("old", "gone__tool", {})])
        question = Message.user("?")
        conversation = [question, gone, question, heard.message(provider), *results]
        await hear(provider, *conversation, tools=tools, stream=stream)
        await provider.aclose()

    first, second = endpoint.requests
    assert names_in(first.json) == names_in(second.json) == sent
    assert [call.name for call in heard.calls] == ["time__now", "3d_render"]
    assert not [name for name in (b"time__now", b"3d_render", b"gone__tool") if name in second.body]
    assert second.body.count(sent[0].encode()) == second.body.count(sent[1].encode()) == 2


@pytest.mark.anyio
async def test_a_forced_call_has_the_mapped_name_of_the_tool() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, quirks={"tool_name_re": LETTERS})
        heard = await hear(provider, tools=request("time__now", "fine").tools, tool_choice="time__now")
        await provider.aclose()

    sent = endpoint.requests[0].json
    assert sent["tool_choice"]["function"]["name"] == sent["tools"][0]["function"]["name"] != "time__now"
    assert heard.completion.notes == ()


@pytest.mark.anyio
async def test_a_call_of_an_unknown_tool_keeps_its_name() -> None:
    with model_endpoint([Say("", (Call("made_up"),))]) as endpoint:
        provider = provider_of(endpoint, quirks={"tool_name_re": LETTERS})
        heard = await hear(provider, tools=request("time__now").tools)
        await provider.aclose()

    assert [call.name for call in heard.calls] == ["made_up"]


@pytest.mark.anyio
async def test_a_note_has_the_original_name_of_a_tool() -> None:
    with model_endpoint([refuse(400, "Invalid schema", param="tools[0].function"), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, quirks={"tool_name_re": LETTERS})
        heard = await hear(provider, tools=request("time__now", "fine").tools)
        await provider.aclose()

    assert heard.completion.notes == ("the endpoint does not accept the tool time__now: it is left out",)
    assert names_in(endpoint.requests[1].json) == ["fine"]


@pytest.mark.anyio
async def test_a_tool_that_cannot_be_named_is_reported_once() -> None:
    tools = request("now").tools
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, quirks={"tool_name_re": "only_this"})
        first, second = [await hear(provider, tools=tools) for _ in range(2)]
        await provider.aclose()

    assert "the endpoint accepts no name" in first.completion.notes[0]
    assert second.completion.notes == ()
    assert "tools" not in endpoint.requests[0].json

"""Client-side tools: offered together with the servers' tools; their calls are returned to the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Limits, Message, ModelSettings, StopReason, ToolCallRequest, ToolSpec, Turn
from dial_client.testing import ScriptedProvider
from tests.inner import Role, repair_history

pytestmark = pytest.mark.anyio

SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
MINE = ToolSpec("mine", "Mine.", SCHEMA, tool="mine", original_schema=SCHEMA)
HI = [Message.user("Hi")]
ADD: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
CALL: dict[str, Any] = {"name": "mine", "arguments": {"a": 1}}


def maths() -> MCPServer:
    server = MCPServer("maths")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Adds."""
        return str(a + b)

    return server


@asynccontextmanager
async def opened(model: ScriptedProvider, **options: Any) -> AsyncIterator[DialClient]:
    with anyio.fail_after(30):
        async with DialClient(model, servers={"maths": maths()}, **options) as dial:
            yield dial


async def answered(
    model: ScriptedProvider, tools: Sequence[ToolSpec] = (MINE,), messages: Sequence[Message] = HI, **options: Any
) -> Turn:
    async with opened(model, **options) as dial:
        return await dial.start(messages, stream_events=False, client_tools=tools).result()


async def test_a_client_tool_call_ends_the_turn_and_is_returned() -> None:
    model = ScriptedProvider([{"text": "A moment.", "tool_calls": [CALL]}])
    turn = await answered(model)
    assert turn.stop_reason is StopReason.CLIENT_TOOL_CALLS
    assert turn.text == "A moment."
    assert [(call.name, dict(call.arguments)) for call in turn.client_tool_calls] == [("mine", {"a": 1})]
    assert turn.messages == (*HI, turn.message)
    assert turn.tool_calls == ()
    assert turn.to_dict()["client_tool_calls"] == [{"id": "call_1", "name": "mine", "arguments": {"a": 1}}]
    assert [tool.name for tool in model.requests[0].tools] == ["add", "mine"]


async def test_server_tool_calls_of_the_same_reply_run_first() -> None:
    turn = await answered(ScriptedProvider([{"tool_calls": [CALL, ADD]}]))
    assert turn.stop_reason is StopReason.CLIENT_TOOL_CALLS
    assert [call.id for call in turn.client_tool_calls] == ["call_1"]
    assert [(message.role, message.text) for message in turn.messages[1:]] == [(Role.ASSISTANT, ""), (Role.TOOL, "3")]
    assert turn.message == turn.messages[1]
    assert [record.result.content for record in turn.tool_calls] == ["3"]


async def test_the_conversation_continues_with_the_result_of_a_client_tool_call() -> None:
    model = ScriptedProvider([{"tool_calls": [ADD]}, {"tool_calls": [CALL]}, "Both."])
    async with opened(model) as dial:
        first = await dial.start(HI, stream_events=False, client_tools=[MINE]).result()
        result = Message(Role.TOOL, "42", tool_call_id=first.client_tool_calls[0].id, name="mine")
        history = repair_history([*first.messages, result])
        turn = await dial.start(history, stream_events=False, client_tools=[MINE]).result()
    assert (turn.text, turn.stop_reason, turn.client_tool_calls) == ("Both.", StopReason.ANSWERED, ())
    assert "client_tool_calls" not in turn.to_dict()
    assert [message.text for message in model.requests[2].messages if message.role is Role.TOOL] == ["3", "42"]


async def test_a_turn_without_client_tool_calls_is_answered_as_usual() -> None:
    turn = await answered(ScriptedProvider([{"tool_calls": [ADD]}, "It is 3."]))
    assert (turn.text, turn.stop_reason) == ("It is 3.", StopReason.ANSWERED)


async def test_client_tool_calls_of_an_earlier_turn_do_not_end_a_later_turn() -> None:
    call = {"id": "old", "name": "mine", "arguments": {}}
    history = [*HI, Message.from_dict({"role": "assistant", "tool_calls": [call]})]
    history.append(Message(Role.TOOL, "42", tool_call_id="old", name="mine"))
    turn = await answered(ScriptedProvider([{"tool_calls": [ADD]}, "It is 3."]), messages=history)
    assert turn.stop_reason is StopReason.ANSWERED


async def test_a_client_tool_hides_a_server_tool_of_the_same_name_with_a_note() -> None:
    own = ToolSpec("add", "Mine.", SCHEMA, tool="add", original_schema=SCHEMA)
    model = ScriptedProvider([{"tool_calls": [ADD]}])
    turn = await answered(model, [own])
    assert [call.name for call in turn.client_tool_calls] == ["add"]
    assert model.requests[0].tools == (own,)
    assert turn.notes == ("the tool 'add' is not offered: the caller has a tool of this name",)


async def test_client_tool_calls_do_not_count_towards_max_depth_but_mixed_replies_do() -> None:
    none = Limits(max_depth=1)
    alone = await answered(ScriptedProvider([{"tool_calls": [ADD]}, {"tool_calls": [CALL]}]), limits=none)
    assert (alone.stop_reason, len(alone.client_tool_calls)) == (StopReason.CLIENT_TOOL_CALLS, 1)
    model = ScriptedProvider([{"tool_calls": [ADD]}, {"tool_calls": [CALL, ADD]}, "So far."])
    both = await answered(model, limits=none)
    assert (both.stop_reason, both.text, both.client_tool_calls) == (StopReason.MAX_DEPTH, "So far.", ())


@pytest.mark.parametrize(
    ("tool_format", "reply"),
    [
        ("xml", '<tool_call>{"name": "mine", "arguments": {"a": 1}}</tool_call>'),
        ("react", 'Thought: I must ask.\nAction: mine\nAction Input: {"a": 1}'),
    ],
)
async def test_client_tool_calls_in_text_formats_are_returned(tool_format: str, reply: str) -> None:
    turn = await answered(ScriptedProvider([reply]), tool_format=tool_format)
    assert turn.stop_reason is StopReason.CLIENT_TOOL_CALLS
    assert [(call.name, dict(call.arguments)) for call in turn.client_tool_calls] == [("mine", {"a": 1})]


async def test_unchanged_tools_are_the_same_object_in_each_request() -> None:
    model = ScriptedProvider([{"tool_calls": [ADD]}, "It is 3."])
    await answered(model)
    assert model.requests[0].tools is model.requests[1].tools


async def test_the_tokens_of_each_reply_can_be_limited() -> None:
    model = ScriptedProvider([{"tool_calls": [ADD]}, "3", {"tool_calls": [ADD]}, "4"])
    async with opened(model, limits=Limits(max_depth=1)) as dial:
        await dial.start(HI, stream_events=False, settings=ModelSettings(max_tokens=9)).result()
        await dial.start(HI, stream_events=False).result()
    assert [request.settings.max_tokens for request in model.requests] == [9, 9, None, None]


async def test_a_resumed_turn_goes_on_after_an_interrupted_client_tool_call() -> None:
    call = Message.assistant("", [ToolCallRequest("one", "mine", {"a": 1})])
    history = [*HI, call, Message(Role.TOOL, "[may have run]", tool_call_id="one", name="mine", is_error=True)]
    async with opened(ScriptedProvider(["I ask again later."])) as dial:
        turn = await dial.start(history, stream_events=False, client_tools=[MINE], decisions={}).result()
    assert (turn.stop_reason, turn.text) == (StopReason.ANSWERED, "I ask again later.")

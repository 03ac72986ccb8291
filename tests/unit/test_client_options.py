"""The options of a client, and those of one turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from dial_client import ApprovalPolicy, ClientOptions, DialClient, Limits, Message, ScriptedProvider, StopReason


def test_from_config_takes_the_keywords_of_the_class() -> None:
    keywords = {
        name for name, p in inspect.signature(DialClient.__init__).parameters.items() if p.kind is p.KEYWORD_ONLY
    }
    assert set(ClientOptions.__annotations__) == keywords


@pytest.mark.parametrize("name", ["allow", "deny"])
def test_a_text_in_place_of_patterns_is_a_type_error(name: str) -> None:
    options: dict[str, Any] = {name: "time/*"}
    with pytest.raises(TypeError, match=rf"{name} takes a list of patterns, not a text: {name}=\['time/\*'\]"):
        ApprovalPolicy(**options)


def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        (add, r"the function add: functions are tools, DialClient\(…, tools=\[add\]\)"),
        (42, "int"),
        ("mcp-server-time", "str"),
        (Message, "the class Message"),
    ],
)
def test_a_server_that_is_none_is_a_type_error(server: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"server 'it': expected an entry as in servers.json, .* not {kind}$"):
        DialClient({"it": server})


@pytest.mark.anyio
@pytest.mark.parametrize(
    "conversation",
    ["Hi", Message.user("Hi"), [Message.user("Hi")], (Message.user("Hi"),)],
    ids=["text", "one", "list", "tuple"],
)
async def test_a_turn_takes_a_text_a_message_or_messages(conversation: Any) -> None:
    model = ScriptedProvider(["One.", "Two.", "Three."])
    async with DialClient({}, model) as dial:
        assert (await dial.run(conversation)).text == "One."
        assert (await dial.response(conversation)).text == "Two."
        assert [text async for text in dial.stream_response(conversation)][-1] == "data: [DONE]\n\n"
    assert [request.messages for request in model.requests] == [(Message.user("Hi"),)] * 3


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        (42, "expected a text, a Message or a sequence of Messages, not int"),
        (None, "not NoneType"),
        (b"Hi", "not bytes"),
        (["Hi"], r"item 0 is of type str: use Message.user\(text\)"),
        ([Message.user("Hi"), {"role": "user"}], r"item 1 is of type dict: use Message.from_dict\(data\)"),
    ],
)
async def test_a_conversation_that_is_none_is_a_type_error(conversation: Any, problem: str) -> None:
    async with DialClient({}, ScriptedProvider([])) as dial:
        calls: list[Callable[[Any], Any]] = [dial.run, dial.response]
        for call in calls:
            with pytest.raises(TypeError, match=problem):
                await call(conversation)
        for stream in (dial.stream, dial.stream_response):
            with pytest.raises(TypeError, match=problem):
                async for _ in stream(conversation):
                    pass


@pytest.mark.anyio
async def test_limits_and_instructions_of_one_turn_hold_for_this_turn_alone() -> None:
    model = ScriptedProvider(["One.", "Two.", "Three."])
    async with DialClient({}, model, system="Be polite.") as dial:
        await dial.run("Hi", system="Be brief.")
        await dial.run("Hi", system="")
        await dial.run("Hi")
    texts = [[instruction.text for instruction in request.instructions] for request in model.requests]
    assert ["Be brief." in texts[0], "Be polite." in texts[1], "Be polite." in texts[2]] == [True, False, True]
    assert "Be polite." not in texts[0]


@pytest.mark.anyio
async def test_a_turn_stops_at_its_own_limits() -> None:
    call = {"tool_calls": [{"name": "nothing", "arguments": {}}]}
    async with DialClient({}, ScriptedProvider([call, "So far."] * 2), limits=Limits(max_depth=5)) as dial:
        short = await dial.run("Hi", limits=Limits(max_depth=0))
        usual = await dial.run("Hi")
    assert (short.stop_reason, short.text, usual.stop_reason) == (StopReason.MAX_DEPTH, "So far.", StopReason.ANSWERED)

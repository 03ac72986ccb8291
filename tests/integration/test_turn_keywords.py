"""The keywords of a turn: they replace the client's model, instructions, tools and settings for this turn alone."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import ConfigError, DialClient, Message, ModelSettings
from dial_client.testing import ScriptedProvider
from tests.inner import Finished
from tests.support.clients import ADD, calculator, call, client

pytestmark = pytest.mark.anyio


def look_up(word: str) -> str:
    """Look up a word."""
    return word


@pytest.mark.parametrize(
    ("patterns", "offered"),
    [
        (None, ["add", "fail", "look_up"]),
        ([], []),
        (["calc/*"], ["add", "fail"]),
        (["functions/look_up", "calc/a*"], ["add", "look_up"]),
        (["!calc/fail"], ["add", "look_up"]),
        (["!fail"], ["add", "look_up"]),
        (["calc/*", "!calc/add"], ["fail"]),
        (["add"], []),
    ],
)
async def test_patterns_choose_the_tools_of_one_turn(patterns: list[str] | None, offered: list[str]) -> None:
    model = ScriptedProvider(["One.", "Two."])
    async with DialClient(model, servers={"calc": calculator()}, tools=[look_up]) as dial:
        await dial.run("1", tools=patterns)
        await dial.run("2")
    assert [[tool.name for tool in request.tools] for request in model.requests] == [
        offered,
        ["add", "fail", "look_up"],
    ]


async def test_a_tool_that_a_turn_leaves_out_is_not_run_even_if_the_model_calls_it() -> None:
    dial, _ = client(ADD, "No.")
    async with dial:
        turn = await dial.run("Add!", tools=["!calc/add"])
    assert [record.result.failure for record in turn.tool_calls] == ["unknown_tool"]


async def test_a_provider_answers_one_turn_and_stays_open() -> None:
    class Closable(ScriptedProvider):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    own, guest = ScriptedProvider(["Mine."]), Closable(["Yours.", "Yours again."])
    async with DialClient(own) as dial:
        texts = [(await dial.run("?", model=model)).text for model in (guest, None, guest)]
    assert texts == ["Yours.", "Mine.", "Yours again."]
    assert not guest.closed, "the program that made it closes it"


async def test_an_unknown_model_of_a_turn_is_an_error_before_the_turn_starts() -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        with pytest.raises(ConfigError, match="there is no model 'nobody'"):
            dial.start("?", model="nobody")


async def test_settings_reach_each_request_and_a_call_is_forced_only_in_the_first_reply() -> None:
    dial, model = client(ADD, "42.")
    settings = ModelSettings(temperature=0.5, top_p=0.9, seed=7, max_tokens=50, thinking="low", tool_choice="required")
    async with dial:
        await dial.run("17 + 25?", settings=settings)
    first, second = model.requests
    assert first.settings == settings
    assert second.settings == ModelSettings(temperature=0.5, top_p=0.9, seed=7, max_tokens=50, thinking="low")


async def test_a_turn_that_may_call_no_tool_says_so_in_each_request() -> None:
    dial, model = client("42.")
    async with dial:
        await dial.run("17 + 25?", settings=ModelSettings(tool_choice="none"))
    assert model.requests[0].settings.tool_choice == "none"
    assert not model.requests[0].allows_calls


async def test_the_history_precedes_the_question_in_every_method() -> None:
    history = [Message.user("I am Ada."), Message.assistant("Hello, Ada.")]
    dial, model = client("1", "2", "3", "4", "5")
    async with dial:
        turns: list[Any] = [await dial.run("Who?", history=history)]
        turns += [event.turn async for event in dial.stream("Who?", history=history) if isinstance(event, Finished)]
        turns += await dial.map(["Who?"], history=history)
        await dial.response(Message.user("Who?"), history=history)
        [_ async for _ in dial.stream_response("Who?", history=history)]
    assert [[message.text for message in request.messages] for request in model.requests] == [
        ["I am Ada.", "Hello, Ada.", "Who?"]
    ] * 5
    assert [[message.text for message in turn.messages] for turn in turns] == [
        ["Who?", "1"],
        ["Who?", "2"],
        ["Who?", "3"],
    ]


async def test_turns_append_their_messages_to_a_history() -> None:
    history: list[Message] = []
    dial, model = client(call("add", a=17, b=25), "42.", "Done.")
    async with dial:
        for question in ("17 + 25?", "Thanks."):
            history += (await dial.run(question, history=history)).messages
    assert [message.role.value for message in history] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert model.requests[-1].messages == tuple(history[:-1])

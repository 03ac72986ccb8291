"""Turns with an `output_type`: the request, corrections by the model, and the typed result."""

from __future__ import annotations

import json
from typing import Any, Literal, assert_type

import pytest
from pydantic import BaseModel

from dial_client import (
    ConversationManager,
    DialClient,
    Finished,
    LimitReached,
    Limits,
    MemoryStore,
    Message,
    MessageCompleted,
    OutputDelta,
    OutputError,
    Role,
    StopReason,
    TextDelta,
    ToolCallStarted,
    Turn,
)
from dial_client.extend import CallNext, Middleware, ModelReply, ModelRequest
from dial_client.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int


ROME = City(name="Rome", people=28)
ROME_TEXT = '{"name": "Rome", "people": 28}'
ARGUMENTS = {"name": "Rome", "people": 28}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answer_call(arguments: Any = ARGUMENTS, name: str = "final_answer") -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


class Model(ScriptedProvider):
    @property
    def texts(self) -> list[str]:
        """The text of the last message of each request."""
        return [request.messages[-1].text for request in self.requests]

    def tools(self, at: int = 0) -> list[str]:
        return [tool.name for tool in self.requests[at].tools]


async def ask(
    *replies: Any, output_type: Any = City, on_limit: Literal["answer", "raise"] | None = None, **options: Any
) -> tuple[Turn[Any], Model]:
    model = Model(replies)
    async with DialClient(model, on_limit=on_limit, **options) as dial:
        return await dial.run("Which city?", output_type=output_type), model


async def test_an_answer_is_a_value_of_its_type() -> None:
    turn, model = await ask(answer_call())
    assert turn.output == ROME
    assert turn.text == ROME_TEXT
    assert turn.messages[1:] == (Message.assistant(ROME_TEXT),)
    assert (turn.stop_reason, turn.depth, turn.tool_calls, turn.notes) == (StopReason.ANSWERED, 0, (), ())
    assert model.tools() == ["final_answer"]
    assert turn.to_dict()["output"] == ARGUMENTS


async def test_an_answer_as_text_is_parsed_too() -> None:
    turn, _ = await ask(f"Sure!\n```json\n{ROME_TEXT}\n```")
    assert turn.output == ROME
    assert turn.text == ROME_TEXT


async def test_tools_are_called_before_the_answer() -> None:
    calls = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}
    turn, model = await ask(calls, answer_call(), tools=[add])
    assert turn.output == ROME
    assert [record.tool for record in turn.tool_calls] == ["add"]
    assert model.tools() == model.tools(1) == ["add", "final_answer"]
    assert model.requests[0].tools is model.requests[1].tools


async def test_a_function_of_the_same_name_keeps_its_name() -> None:
    def final_answer() -> str:
        """Return the answer."""
        return "42"

    turn, model = await ask(answer_call({}), answer_call(name="final_answer_1"), tools=[final_answer])
    assert turn.output == ROME
    assert model.tools() == ["final_answer", "final_answer_1"]
    assert [record.tool for record in turn.tool_calls] == ["final_answer"]


async def test_an_answer_beside_other_calls_is_refused_until_their_results_are_known() -> None:
    both = {
        "tool_calls": [
            {"name": "add", "arguments": {"a": 1, "b": 2}},
            answer_call({"name": "x", "people": 0})["tool_calls"][0],
        ]
    }
    turn, model = await ask(both, answer_call(), tools=[add])
    assert turn.output == ROME
    assert [record.tool for record in turn.tool_calls] == ["add"]
    results = [message for message in model.requests[1].messages if message.role is Role.TOOL]
    assert [message.text for message in results] == [
        "3",
        "Not taken: answer when the results of the other calls are known.",
    ]
    assert [message.role.value for message in turn.messages] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_an_invalid_answer_is_sent_back_with_its_errors() -> None:
    turn, model = await ask(answer_call({"name": "Rome"}), answer_call())
    assert turn.output == ROME
    assert turn.depth == 1
    assert turn.messages[1:] == (Message.assistant(ROME_TEXT),)
    assert len(turn.request_usages) == 2
    assert any("people: Field required" in note for note in turn.notes)
    *_, call, result = model.requests[1].messages
    assert call.tool_calls[0].arguments == {"name": "Rome"}
    assert result.is_error
    assert "people: Field required" in result.text


async def test_an_invalid_text_is_sent_back_with_a_user_message() -> None:
    turn, model = await ask("It is Rome.", answer_call())
    assert turn.output == ROME
    assert model.requests[1].messages[-1].role is Role.USER
    assert "Call the tool final_answer" in model.texts[1]


async def test_a_correction_refers_to_the_latest_answer() -> None:
    turn, model = await ask(answer_call({"name": "Rome"}), "It is Rome.", answer_call())
    assert turn.output == ROME
    *_, call, _result, text, correction = model.requests[2].messages
    assert [len(message.tool_calls) for message in (call, text)] == [1, 0]
    assert text.text == "It is Rome."
    assert correction.role is Role.USER


async def test_an_invalid_answer_is_sent_back_at_most_twice() -> None:
    with pytest.raises(OutputError, match="people: Field required") as caught:
        await ask(*[answer_call({"name": f"Rome {number}"}) for number in range(4)])
    assert caught.value.errors == ("people: Field required",)
    assert json.loads(caught.value.text) == {"name": "Rome 2"}
    assert caught.value.turn.stop_reason is StopReason.INVALID_OUTPUT
    assert len(caught.value.turn.request_usages) == 3


async def test_with_on_limit_answer_an_invalid_answer_gives_a_turn_without_an_output() -> None:
    turn, _ = await ask("one", "two", "three", "four", on_limit="answer")
    assert turn.output is None
    assert (turn.text, turn.stop_reason) == ("three", StopReason.INVALID_OUTPUT)
    assert turn.notes[-1] == "the answer is not of the requested form: there is no whole JSON value in the answer"
    assert "output" not in turn.to_dict()


async def test_a_correction_counts_as_a_round() -> None:
    with pytest.raises(OutputError) as caught:
        await ask("one", "two", "three", limits=Limits(max_depth=1))
    assert caught.value.text == "two"


@pytest.mark.parametrize("on_limit", [None, "answer"])
async def test_at_a_limit_the_answer_is_still_typed(on_limit: Literal["answer"] | None) -> None:
    calls = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}
    turn, model = await ask(calls, calls, answer_call(), tools=[add], limits=Limits(max_depth=1), on_limit=on_limit)
    assert turn.output == ROME
    assert turn.stop_reason is StopReason.MAX_DEPTH
    assert model.tools(2) == ["final_answer"]


async def test_an_invalid_answer_at_a_limit_is_an_error() -> None:
    calls = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}
    options: dict[str, Any] = {"tools": [add], "limits": Limits(max_depth=1)}
    with pytest.raises(OutputError, match="too many rounds of tool calls"):
        await ask(calls, calls, "no", **options)
    with pytest.raises(LimitReached):
        await ask(calls, calls, "no", on_limit="raise", **options)


async def test_an_answer_that_was_cut_off_is_an_error_with_its_text() -> None:
    with pytest.raises(OutputError, match="cut off") as caught:
        await ask({"text": '{"name": "Ro', "finish": "length"})
    assert caught.value.text == '{"name": "Ro'
    assert caught.value.errors == ()


async def test_an_empty_answer_is_requested_once_more() -> None:
    turn, _ = await ask("", answer_call())
    assert turn.output == ROME


async def test_a_stream_has_partial_answers_and_no_text_but_the_answer() -> None:
    text = '{"name": "Rome", "people": 28}   '
    model = Model([{"text": "It", "tool_calls": []}, {"text": text}])
    async with DialClient(model) as dial:
        events = [event async for event in dial.stream("Which city?", output_type=City)]
    assert [event.output for event in events if isinstance(event, OutputDelta)][-1] == ROME
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == ROME_TEXT
    assert [event.message.text for event in events if isinstance(event, MessageCompleted)] == [ROME_TEXT]
    assert not [event for event in events if isinstance(event, ToolCallStarted)]
    assert isinstance(events[-1], Finished)
    assert events[-1].turn.output == ROME


async def test_an_answer_as_a_tool_call_is_streamed_as_partial_outputs() -> None:
    model = Model([{**answer_call({"result": [1, 2, 3]}), "chunk_size": 2}])
    async with DialClient(model) as dial:
        events = [event async for event in dial.stream("Which numbers?", output_type=list[int])]
    assert [event.output for event in events if isinstance(event, OutputDelta)] == [[1], [1, 2], [1, 2, 3]]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["[1, 2, 3]"]


async def test_the_answer_to_the_second_request_of_a_middleware_is_streamed() -> None:
    class Twice(Middleware):
        async def around_model_call(
            self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
        ) -> ModelReply:
            await call_next(request)
            return await call_next(request)

    replies = [{**answer_call({"result": numbers}), "chunk_size": 2} for numbers in ([7], [1, 2])]
    async with DialClient(Model(replies), middleware=[Twice()]) as dial:
        events = [event async for event in dial.stream("Which numbers?", output_type=list[int])]
    outputs = [event.output for event in events if isinstance(event, OutputDelta)]
    assert outputs[-2:] == [[1], [1, 2]]


async def test_text_of_the_model_before_its_calls_is_shown() -> None:
    calls = {"text": "Let me add.", "tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}
    model = Model([calls, ROME_TEXT])
    async with DialClient(model, tools=[add]) as dial:
        events = [event async for event in dial.stream("Which city?", output_type=City)]
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert texts == ["Let me add.", ROME_TEXT]


@pytest.mark.parametrize("tool_format", ["react", "xml"])
async def test_a_text_format_takes_the_answer_as_text(tool_format: str) -> None:
    reply = f"Thought: I know.\nFinal Answer: {ROME_TEXT}" if tool_format == "react" else ROME_TEXT
    turn, model = await ask(reply, tools=[add], tool_format=tool_format)
    assert turn.output == ROME
    assert model.requests[0].tools == ()
    assert '"people"' in model.requests[0].instruction_text


async def test_at_a_limit_the_grammar_of_a_text_format_has_no_calls() -> None:
    call = 'Thought: add.\nAction: add\nAction Input: {"a": 1, "b": 2}'
    turn, model = await ask(call, ROME_TEXT, tools=[add], tool_format="react", limits=Limits(max_depth=0))
    assert turn.output == ROME
    assert ["Action" in request.grammar for request in model.requests] == [True, False]


@pytest.mark.parametrize("output_type", [list[int], {"type": "array", "items": {"type": "integer"}}])
async def test_a_list_is_unwrapped(output_type: Any) -> None:
    turn, _ = await ask(answer_call({"result": [1, 2]}), output_type=output_type)
    assert turn.output == [1, 2]
    assert turn.text == "[1, 2]"


async def test_without_an_output_type_the_request_is_unchanged() -> None:
    model = Model(["Rome."])
    async with DialClient(model) as dial:
        turn = await dial.run("Which city?")
    assert (turn.text, turn.output) == ("Rome.", None)
    assert model.requests == [ModelRequest(model.requests[0].messages, stream=False)]


async def test_the_server_sent_events_of_a_typed_answer_have_its_json() -> None:
    async with DialClient(Model([ROME_TEXT])) as dial:
        lines = [line async for line in dial.stream_response("Which city?", output_type=City)]
    output = [json.loads(line.split("data: ", 1)[1]) for line in lines if line.startswith("event: output")]
    assert output[-1] == {"output": ARGUMENTS}


async def test_type_checkers_know_the_type_of_the_output() -> None:
    async with DialClient(Model([ROME_TEXT, "[1]", '"a"', "Rome"])) as dial:
        assert_type(await dial.run("Which city?", output_type=City), Turn[City])
        assert_type(await dial.run("Which numbers?", output_type=list[int]), Turn[list[int]])
        either: Turn[int | str] = await dial.run("Which?", output_type=int | str)
        assert either.output == "a"
        assert_type(await dial.run("Which?"), Turn)


async def test_a_conversation_stores_only_the_last_answer() -> None:
    async with DialClient(Model(["no", ROME_TEXT])) as dial:
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        turn = await manager.chat(conversation.id, "Which city?", output_type=City)
        assert_type(turn, Turn[City])
        stored = await manager.get(conversation.id)
    assert turn.output == ROME
    assert [message.text for message in stored.messages] == ["Which city?", ROME_TEXT]


async def test_a_conversation_keeps_an_invalid_answer() -> None:
    async with DialClient(Model(["no", "no", "never"])) as dial:
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        with pytest.raises(OutputError):
            await manager.chat(conversation.id, "Which city?", output_type=City)
        stored = await manager.get(conversation.id)
    assert [message.text for message in stored.messages] == ["Which city?", "never"]


async def test_at_the_token_budget_the_model_is_asked_for_a_final_answer() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5}
    replies = [answer_call({"name": "Rome"}) | {"usage": usage}, answer_call() | {"usage": usage}]
    turn, model = await ask(*replies, limits=Limits(max_tokens_total=10))
    assert turn.output == ROME
    assert turn.stop_reason is StopReason.TOKEN_BUDGET
    assert "No more tool calls" in model.texts[1]


async def test_empty_answers_raise_an_output_error() -> None:
    with pytest.raises(OutputError):
        await ask("", "", "", on_limit="raise")


async def test_response_returns_the_json() -> None:
    async with DialClient(Model([ROME_TEXT])) as dial:
        assert (await dial.response("Which city?", output_type=City)).text == ROME_TEXT

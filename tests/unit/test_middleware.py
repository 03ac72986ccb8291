"""Middleware around turns and model calls, and the order of several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from typing_extensions import override

from dial_client import (
    ConversationManager,
    DialClient,
    Finished,
    Limits,
    MemoryStore,
    Message,
    MessageCompleted,
    MiddlewareError,
    OutputError,
    ProviderError,
    RequestRefused,
    Role,
    RoundStarted,
    StopReason,
    TextDelta,
    ToolCallRequest,
    Turn,
    Usage,
)
from dial_client.extend import Middleware, ModelReply, ModelRequest, TurnRequest, refuse
from tests.support.middleware_clients import DOUBLE, NextModelCall, NextTurn, Notebook, open_client, read_events

pytestmark = pytest.mark.anyio


# --- the order ------------------------------------------------------------------------------------


async def test_the_first_middleware_of_the_list_is_the_outermost() -> None:
    lines: list[str] = []
    dial, _, _ = open_client([Notebook("a", lines), Notebook("b", lines)])
    async with dial:
        turn = await dial.run("go on")
    assert lines == [
        "a turn",
        "b turn",
        "a model",
        "b model",
        "b model ends: tool_calls",
        "a model ends: tool_calls",
        "a functions/double",
        "b functions/double",
        "b tool ends: '8'",
        "a tool ends: '8'",
        "a model",
        "b model",
        "b model ends: stop",
        "a model ends: stop",
        "b turn ends: It is 8.",
        "a turn ends: It is 8.",
    ]
    assert (turn.text, turn.depth, turn.notes) == ("It is 8.", 1, ())


async def test_a_middleware_that_only_calls_next_changes_no_event() -> None:
    plain, _, _ = open_client([])
    around, _, _ = open_client([Notebook("a", [])])
    async with plain, around:
        events, events_around = await read_events(plain), await read_events(around)
    kinds = [type(event) for event in events]
    assert [type(event) for event in events_around] == kinds
    assert [event for event in events_around if isinstance(event, MessageCompleted)] == [
        event for event in events if isinstance(event, MessageCompleted)
    ]


@pytest.mark.parametrize(
    ("middleware", "problem"),
    [
        ([Notebook], r"takes objects, not classes: middleware=\[Notebook\(…\)\]"),
        (Notebook("a", []), r"takes a list: middleware=\[Notebook\(…\)\]"),
        ([object()], "object is not a middleware: make it a subclass of Middleware"),
        ([type("Cache", (Middleware,), {"around_tool": None})()], "'around_tool': did you mean 'around_tool_call'"),
    ],
)
def test_an_invalid_middleware_is_a_type_error_when_the_client_is_created(middleware: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        DialClient(middleware=middleware)


# --- model calls ----------------------------------------------------------------------------------


async def test_a_request_and_its_reply_can_be_changed() -> None:
    class Redaction(Middleware):
        async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
            messages = tuple(replace(m, content=m.text.replace("Jane", "[name]")) for m in request.messages)
            reply = await call_next(replace(request, messages=messages))
            text = reply.message.text.replace("[name]", "Jane")
            return replace(reply, message=replace(reply.message, content=text))

    dial, model, _ = open_client([Redaction()], "Hello, [name].")
    async with dial:
        turn = await dial.run("I am Jane.")
    assert model.requests[0].messages[0].text == "I am [name]."
    assert turn.messages == (Message.user("I am Jane."), Message.assistant("Hello, Jane."))


async def test_a_reply_created_by_a_middleware_is_streamed_and_its_calls_are_run() -> None:
    class Planner(Middleware):
        async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
            if len(request.messages) > 1:
                return await call_next(request)
            calls = (ToolCallRequest("", "double", {"number": 6}), ToolCallRequest("", "double", {"number": 7}))
            return ModelReply(message=Message(Role.ASSISTANT, "First this.", tool_calls=calls))

    dial, model, tools = open_client([Planner()], "12 and 14.")
    async with dial:
        events = await read_events(dial)
    assert [event.text for event in events if isinstance(event, TextDelta)][:1] == ["First this."]
    assert (sorted(tools.numbers), len(model.requests)) == ([6, 7], 1)
    [finished] = [event for event in events if isinstance(event, Finished)]
    assert len({record.call.id for record in finished.turn.tool_calls}) == 2


async def test_calls_that_a_middleware_removes_from_a_reply_are_not_run() -> None:
    class NoCalls(Middleware):
        async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
            reply = await call_next(request)
            return replace(reply, message=Message.user("No tools today."))

    dial, _, tools = open_client([NoCalls()])
    async with dial:
        turn = await dial.run("go on")
    assert (turn.text, tools.numbers, turn.stop_reason) == ("No tools today.", [], StopReason.ANSWERED)
    assert turn.message.role is Role.ASSISTANT, "the role that the middleware set is ignored"


async def test_a_middleware_can_send_a_request_again() -> None:
    class Retrying(Middleware):
        async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
            reply = await call_next(request)
            return reply if reply.message.text else await call_next(request)

    dial, model, _ = open_client([Retrying()], "", "Here I am.")
    async with dial:
        turn = await dial.run("go on")
    assert (turn.text, len(model.requests), len(turn.request_usages)) == ("Here I am.", 2, 2)


async def test_a_refused_model_call_is_an_error_of_its_own() -> None:
    class NoModel(Middleware):
        @override
        async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
            refuse("the budget of this month is used up")

    dial, model, _ = open_client([NoModel()])
    async with dial:
        with pytest.raises(RequestRefused, match="the budget of this month is used up") as caught:
            await dial.run("go on")
    assert (caught.value.reason, model.requests) == ("the budget of this month is used up", [])
    assert not isinstance(caught.value, ProviderError), "an outage of the model is something else"


class Guard(Middleware):
    """Refuses replies with a bad word."""

    @override
    async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
        reply = await call_next(request)
        if "badword" in reply.message.text:
            refuse("blocked")
        return reply


BAD = {"text": "a badword here", "reasoning": "a badword there"}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("first", [[], [DOUBLE]], ids=["at once", "after a call"])
async def test_a_refused_reply_is_neither_stored_nor_sent_to_the_model(first: list[Any], stream: bool) -> None:
    dial, model, _ = open_client([Guard()], *first, BAD, "Better.")
    store = MemoryStore()
    async with dial:
        manager = ConversationManager(dial, store)
        conversation = (await manager.create()).id
        with pytest.raises(RequestRefused, match="blocked") as caught:
            async for _ in manager.stream_chat(conversation, "go on", stream=stream):
                pass
        stored = (await store.get(conversation)).messages
        assert "badword" not in str(stored)
        assert [message.role for message in caught.value.messages] == [
            Role.USER, *([Role.ASSISTANT, Role.TOOL] if first else []),
        ]  # fmt: skip
        assert "badword" not in str(caught.value.messages)
        turn = await manager.chat(conversation, "again")
    assert turn.text == "Better."
    assert "badword" not in str(model.requests[-1].messages)


async def test_a_refused_last_answer_at_a_limit_is_an_error_too() -> None:
    dial, _, _ = open_client([Guard()], DOUBLE, BAD, limits=Limits(max_consecutive_errors=1, max_repeats=1))
    async with dial:
        with pytest.raises(RequestRefused) as caught:
            await dial.run("go on")
    assert "badword" not in str(caught.value.messages)


async def test_a_refused_typed_answer_is_not_shown() -> None:
    dial, _, _ = open_client([Guard()], '{"word": "badword"}')
    async with dial:
        with pytest.raises(RequestRefused):
            async for event in dial.stream("go on", output_type=dict[str, str]):
                assert not isinstance(event, TextDelta)


async def test_a_provider_error_passes_through_a_middleware_unchanged() -> None:
    dial, _, _ = open_client([Notebook("a", [])], {"error": {"status": 500, "message": "down"}})
    async with dial:
        with pytest.raises(ProviderError, match="down"):
            await dial.run("go on")


async def test_the_error_for_an_exception_in_a_model_call_names_the_middleware_and_keeps_the_cause() -> None:
    class Failing(Middleware):
        @override
        async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
            raise ZeroDivisionError

    dial, _, _ = open_client([Notebook("a", []), Failing()])
    async with dial:
        with pytest.raises(MiddlewareError, match="the middleware Failing raised ZeroDivisionError") as caught:
            await dial.run("go on")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.middleware == "Failing"


# --- turns ----------------------------------------------------------------------------------------


async def test_a_middleware_can_change_the_messages_limits_and_instructions_of_a_turn() -> None:
    class Memory(Middleware):
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            messages = (Message.user("I live in Oslo."), Message.assistant("Noted."), *request.messages)
            changed = replace(
                request, messages=messages, limits=replace(request.limits, max_depth=0), system="Be short."
            )
            return await call_next(changed)

    dial, model, tools = open_client([Memory()], DOUBLE, "Short.")
    async with dial:
        turn = await dial.run("go on")
    assert [message.text for message in model.requests[0].messages] == ["I live in Oslo.", "Noted.", "go on"]
    assert model.requests[0].instruction_text == "Be short."
    assert (turn.stop_reason, tools.numbers) == (StopReason.MAX_DEPTH, [])


async def test_a_refused_turn_ends_with_the_reason_as_its_answer() -> None:
    class Refusing(Middleware):
        @override
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            refuse("You have used your questions of today.")

    dial, model, _ = open_client([Refusing()])
    async with dial:
        events = await read_events(dial)
    *_, finished = events
    assert isinstance(finished, Finished)
    assert finished.turn.text == "You have used your questions of today."
    assert (finished.turn.stop_reason, finished.turn.messages[1:]) == (StopReason.REFUSED, (finished.turn.message,))
    assert events[:2] == [RoundStarted(0), TextDelta(finished.turn.text)], (
        "readers receive the reason like an answer of the model"
    )
    assert model.requests == []


async def test_a_turn_refused_after_its_answer_keeps_its_messages_and_calls() -> None:
    class Guard(Middleware):
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            turn = await call_next(request)
            if "8" in turn.text:
                refuse("This cannot be said.")
            return turn

    dial, _, _ = open_client([Notebook("a", []), Guard()])
    async with dial:
        turn = await dial.run("go on")
    assert (turn.text, turn.stop_reason, len(turn.tool_calls)) == ("This cannot be said.", StopReason.REFUSED, 1)
    assert [message.text for message in turn.messages] == ["go on", "", "8", "This cannot be said."]


async def test_a_refused_turn_has_no_typed_output() -> None:
    class Guard(Middleware):
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            await call_next(request)
            refuse("This cannot be said.")

    dial, _, _ = open_client([Guard()], "8")
    async with dial:
        with pytest.raises(OutputError) as caught:
            await dial.run("go on", output_type=int)
    assert (caught.value.turn.output, caught.value.turn.text) == (None, "This cannot be said.")


async def test_a_middleware_may_return_the_typed_output() -> None:
    class Answers(Middleware):
        @override
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            message = Message.assistant("8")
            return Turn(message, (message,), StopReason.ANSWERED, depth=0, usage=Usage(), output=8)

    dial, model, _ = open_client([Answers()])
    async with dial:
        turn = await dial.run("go on", output_type=int)
    assert (turn.output, turn.text, model.requests) == (8, "8", [])


async def test_a_middleware_can_return_an_earlier_turn() -> None:
    class Answers(Middleware):
        def __init__(self) -> None:
            self.turns: dict[str, Turn] = {}

        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            question = request.messages[-1].text
            if question not in self.turns:
                self.turns[question] = await call_next(request)
            return self.turns[question]

    dial, model, _ = open_client([Answers()])
    async with dial:
        first, again = await dial.run("go on"), await dial.run("go on")
    assert (len(model.requests), again.text) == (2, "It is 8.")
    assert again == first


async def test_calling_next_twice_around_a_turn_is_an_error() -> None:
    class Twice(Middleware):
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            await call_next(request)
            return await call_next(request)

    dial, model, _ = open_client([Twice()])
    async with dial:
        with pytest.raises(MiddlewareError, match="Twice raised RuntimeError"):
            await dial.run("go on")
    assert len(model.requests) == 2


async def test_a_cancelled_turn_cancels_its_middleware() -> None:
    ended: list[str] = []
    began = anyio.Event()

    class Waiting(Middleware):
        async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
            try:
                began.set()
                await anyio.sleep_forever()
                return await call_next(request)
            finally:
                ended.append("cancelled")

    dial, _, _ = open_client([Waiting()])
    async with dial:
        turn = dial.start("go on", stream_events=False)
        await began.wait()
        turn.cancel()
        result = await turn.result()
    assert (result.stop_reason, ended) == (StopReason.CANCELLED, ["cancelled"])

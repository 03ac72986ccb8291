"""The recursion of a turn: model calls, tool calls, and its end, with stand-ins for the model and the tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.inner import (
    ConversationContext,
    Message,
    Outcome,
    Reply,
    Role,
    StatusChanged,
    StopReason,
    ToolCallRequest,
    ToolCallResult,
    resolve,
)
from tests.support.fakes import ReceivedEvents

pytestmark = pytest.mark.anyio

QUESTION = Message.user("What time is it?")


class Script:
    """Stands in for the model and the tools: replies as scripted, and records its inputs."""

    def __init__(self, *replies: Reply, fails: Exception | None = None) -> None:
        self.replies = list(replies)
        self.fails = fails
        self.asked: list[ConversationContext] = []
        self.executed: list[list[str]] = []
        self.heard = ReceivedEvents()

    async def ask(self, context: ConversationContext) -> Reply:
        self.asked.append(context)
        await self.heard.emit(StatusChanged(f"asked at {context.depth}"))
        return self.replies.pop(0)

    async def call_tools(self, calls: Sequence[ToolCallRequest]) -> list[Message]:
        self.executed.append([call.id for call in calls])
        await self.heard.emit(StatusChanged(f"ran {len(calls)}"))
        if self.fails:
            raise self.fails
        return [Message.tool(call, ToolCallResult(call.id, success=True, content="done")) for call in calls]

    async def resolve(self, max_depth: int) -> Outcome:
        return await resolve(ConversationContext((QUESTION,), max_depth), self.ask, self.call_tools)


def calls(*ids: str, text: str = "") -> Reply:
    return Reply(Message.assistant(text, [ToolCallRequest(id_, "now", {}) for id_ in ids]), None)


def says(text: str, reason: StopReason = StopReason.ANSWERED) -> Reply:
    return Reply(Message.assistant(text), reason)


def done(*ids: str) -> list[Message]:
    return [Message(Role.TOOL, "done", tool_call_id=id_, name="now") for id_ in ids]


async def test_an_answer_ends_the_recursion() -> None:
    script = Script(says("noon"))
    outcome = await script.resolve(max_depth=5)
    assert outcome == Outcome(
        ConversationContext((QUESTION, Message.assistant("noon")), 5), says("noon"), StopReason.ANSWERED
    )
    assert script.executed == []


async def test_after_tool_calls_the_model_is_asked_one_level_deeper() -> None:
    script = Script(calls("1", "2", text="let me see"), calls("3"), says("noon"))
    outcome = await script.resolve(max_depth=5)
    first = (QUESTION, calls("1", "2", text="let me see").message, *done("1", "2"))
    assert [context.messages for context in script.asked] == [
        (QUESTION,),
        first,
        (*first, calls("3").message, *done("3")),
    ]
    assert [context.depth for context in script.asked] == [0, 1, 2]
    assert script.executed == [["1", "2"], ["3"]]
    assert outcome.context.messages[-1] == Message.assistant("noon")
    assert outcome.context.depth == 2


@pytest.mark.parametrize("max_depth", [0, 1, 2, 10])
async def test_the_calls_of_a_reply_at_the_maximum_depth_are_not_executed(max_depth: int) -> None:
    script = Script(*(calls(str(depth)) for depth in range(max_depth + 1)), says("never asked"))
    outcome = await script.resolve(max_depth)
    assert len(script.asked) == max_depth + 1
    assert script.executed == [[str(depth)] for depth in range(max_depth)]
    assert outcome.stop_reason is StopReason.MAX_DEPTH
    assert outcome.reply == calls(str(max_depth))
    assert outcome.context == script.asked[-1], "the refused reply is not part of the context"


async def test_a_turn_can_be_answered_at_the_maximum_depth() -> None:
    outcome = await Script(calls("1"), says("noon")).resolve(max_depth=1)
    assert outcome.stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("reason", [StopReason.TRUNCATED, StopReason.REFUSED, StopReason.TIMEOUT])
async def test_a_reply_with_a_stop_reason_ends_the_recursion_with_that_reason(reason: StopReason) -> None:
    script = Script(calls("1"), says("it is", reason))
    outcome = await script.resolve(max_depth=5)
    assert outcome.stop_reason is reason
    assert outcome.context.messages[-1] == Message.assistant("it is")
    assert len(script.asked) == 2


async def test_the_callers_messages_are_not_changed() -> None:
    mine = [QUESTION]
    script = Script(calls("1"), says("noon"))
    await resolve(ConversationContext(tuple(mine), 5), script.ask, script.call_tools)
    assert mine == [QUESTION]
    assert script.asked[0].messages == (QUESTION,)


async def test_events_of_all_levels_are_emitted_in_order() -> None:
    script = Script(calls("1"), calls("2", "3"), says("noon"))
    await script.resolve(max_depth=5)
    assert [event.text for event in script.heard.of(StatusChanged)] == [
        "asked at 0", "ran 1", "asked at 1", "ran 2", "asked at 2",
    ]  # fmt: skip


async def test_a_turn_of_the_maximum_depth_fits_on_the_stack() -> None:
    outcome = await Script(*(calls(str(depth)) for depth in range(101))).resolve(max_depth=100)
    assert (outcome.stop_reason, outcome.context.depth) == (StopReason.MAX_DEPTH, 100)


BROKEN: list[tuple[str, Callable[[], Script]]] = [
    ("in a model call", Script),
    ("in a tool call", lambda: Script(calls("1"), fails=IndexError("broken"))),
]


@pytest.mark.parametrize("make", [make for _, make in BROKEN], ids=[name for name, _ in BROKEN])
async def test_an_exception_is_raised_unchanged(make: Callable[[], Script]) -> None:
    with pytest.raises(IndexError):
        await make().resolve(max_depth=5)

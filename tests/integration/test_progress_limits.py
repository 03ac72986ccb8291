"""Limits on turns without progress: repeated calls, failures and token budgets end the turn with an answer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Finished, LimitReached, Limits, Message, Role, StopReason, Turn
from dial_client.extend import CallNext, Middleware, ModelReply, ModelRequest
from dial_client.testing import ScriptedProvider
from tests.inner import (
    CallChunk,
    Completion,
    Failure,
    FinishReason,
    ReasoningChunk,
    TextChunk,
    ToolCallRecord,
    ToolCallRequest,
    ToolCallResult,
    ToolChoice,
    Usage,
    find_limit,
)
from tests.support.fakes import Model, Step, virtual_time

ASK = [Message.user("go on")]


def made(name: str, result: str = "ok", *, failed: bool = False, **arguments: Any) -> ToolCallRecord:
    call = ToolCallRequest("id", name, arguments)
    good = ToolCallResult("id", success=True, content=result)
    outcome = ToolCallResult.failed("id", Failure.TOOL, result) if failed else good
    return ToolCallRecord(call, outcome, "server", name, 0.1)


def bad(at: int) -> ToolCallRecord:
    return made("a", f"error {at}", failed=True, at=at)


A, B, C = made("a"), made("b"), made("c")

TURNS: list[tuple[str, list[list[ToolCallRecord]], StopReason | None]] = [
    ("nothing was called", [], None),
    ("two rounds fail", [[bad(1)], [bad(2)]], None),
    ("three rounds fail, each otherwise", [[bad(1)], [bad(2)], [bad(3)]], StopReason.CONSECUTIVE_ERRORS),
    ("three fail, then one works", [[bad(1)], [bad(2)], [bad(3)], [A]], None),
    ("in each round one of two works", [[bad(1), A], [bad(2), B], [bad(3), C]], None),
    ("the same call twice", [[A], [A]], None),
    ("the same call three times", [[A], [A], [A]], StopReason.REPEATED_CALLS),
    ("with others in between", [[A], [B], [A], [C], [A]], StopReason.REPEATED_CALLS),
    ("two calls in turn", [[A], [B], [A], [B], [A]], StopReason.REPEATED_CALLS),
    ("three times in one round", [[A, A, A]], None),
    ("with other arguments each time", [[made("a", at=1)], [made("a", at=2)], [made("a", at=3)]], None),
    ("with another result each time", [[made("a", "1")], [made("a", "2")], [made("a", "3")]], None),
    ("arguments in another order", [[made("a", x=1, y=2)], [made("a", y=2, x=1)]] * 2, StopReason.REPEATED_CALLS),
]


@pytest.mark.parametrize(
    ("rounds", "reason"), [(rounds, reason) for _, rounds, reason in TURNS], ids=[name for name, _, _ in TURNS]
)
def test_rounds_without_progress_are_detected(rounds: list[list[ToolCallRecord]], reason: StopReason | None) -> None:
    assert find_limit(rounds, Usage(), Limits()) is reason


def test_the_token_budget_counts_input_and_output_tokens() -> None:
    limits = Limits(max_tokens_total=100)
    assert find_limit([[A]], Usage(60, 39), limits) is None
    assert find_limit([[A]], Usage(60, 40), limits) is StopReason.TOKEN_BUDGET


# --- whole turns ----------------------------------------------------------------------------------


def tools() -> MCPServer:
    server = MCPServer("tools")

    @server.tool()
    def works(at: int = 0) -> str:
        """Work."""
        return "done"

    @server.tool()
    def fails(at: int = 0) -> str:
        """Fail."""
        raise ValueError(str(at))

    @server.tool()
    async def hangs(at: int = 0) -> str:
        """Never return."""
        await anyio.sleep_forever()
        return ""

    return server


def calling(*calls: tuple[str, int]) -> dict[str, Any]:
    made_of = [{"name": name, "arguments": {"at": at}} for name, at in calls]
    return {"text": "Let me see.", "tool_calls": made_of, "usage": {"input_tokens": 10, "output_tokens": 1}}


SAME = [calling(("works", 1))] * 20
FAILING = [calling(("fails", at)) for at in range(20)]
PING_PONG = [calling(("works", at % 2)) for at in range(20)]

ENDLESS = [
    ("the same call", SAME, Limits(), StopReason.REPEATED_CALLS, 3),
    ("two calls in turn", PING_PONG, Limits(), StopReason.REPEATED_CALLS, 5),
    ("calls that fail", FAILING, Limits(), StopReason.CONSECUTIVE_ERRORS, 3),
    ("a tool nobody offers", [calling(("nobody", at)) for at in range(9)], Limits(), StopReason.CONSECUTIVE_ERRORS, 3),
    ("more than was paid for", PING_PONG, Limits(max_tokens_total=20), StopReason.TOKEN_BUDGET, 2),
    ("ever deeper", [calling(("works", at)) for at in range(20)], Limits(max_depth=4), StopReason.MAX_DEPTH, 4),
]


async def turn_of(replies: list[Any], limits: Limits, *, stream: bool, **options: Any) -> tuple[Turn, ScriptedProvider]:
    model = ScriptedProvider(replies)
    async with DialClient(model, servers={"tools": tools()}, limits=limits, **options) as dial:
        if not stream:
            return await dial.run(ASK), model
        events = [event async for event in dial.stream(ASK)]
    assert isinstance(events[-1], Finished)
    return events[-1].turn, model


STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])


@pytest.mark.anyio
@STREAMED
@pytest.mark.parametrize(
    ("replies", "limits", "reason", "rounds"), [row[1:] for row in ENDLESS], ids=[row[0] for row in ENDLESS]
)
async def test_an_endless_turn_ends_with_an_answer_of_the_model(
    replies: list[Any], limits: Limits, reason: StopReason, rounds: int, stream: bool
) -> None:
    await check_the_end(replies, limits, reason, rounds, stream=stream)


@pytest.mark.anyio
@virtual_time
@STREAMED
async def test_a_turn_whose_calls_take_too_long_ends_with_an_answer_of_the_model(stream: bool) -> None:
    await check_the_end([calling(("hangs", 1))], Limits(timeout=0.5), StopReason.TIMEOUT, 1, stream=stream)


async def check_the_end(replies: list[Any], limits: Limits, reason: StopReason, rounds: int, *, stream: bool) -> None:
    """Run a turn, and assert that it ends for a reason, after these rounds of calls, with an answer of the model."""
    asked = rounds + (1 if reason is StopReason.MAX_DEPTH else 0)
    turn, model = await turn_of([*replies[:asked], "This is what I have."], limits, stream=stream)
    assert (turn.text, turn.stop_reason) == ("This is what I have.", reason)
    assert len(turn.tool_calls) == rounds
    last = model.requests[-1]
    assert last.settings.tool_choice is ToolChoice.NONE
    assert last.settings.max_tokens
    assert "Answer now from what you have" in last.messages[-1].text
    assert last.messages[-1].role is Role.TOOL
    if reason is not StopReason.MAX_DEPTH:
        assert not any("Answer now" in message.text for message in turn.messages), "nobody said it: it is not stored"


@pytest.mark.anyio
@STREAMED
async def test_without_a_final_answer_the_text_names_the_limit(stream: bool) -> None:
    turn, _ = await turn_of(SAME[:3], Limits(), stream=stream)
    reason = "the same tool call was made again and again with the same result"
    assert turn.text == f"Let me see.\n\n[Unable to complete task: {reason}]"
    assert turn.stop_reason is StopReason.REPEATED_CALLS


@pytest.mark.anyio
async def test_with_on_limit_raise_a_limit_is_an_error_without_a_further_request() -> None:
    with pytest.raises(LimitReached, match="kept failing") as caught:
        await turn_of(FAILING, Limits(), stream=False, on_limit="raise")
    assert caught.value.turn.stop_reason is StopReason.CONSECUTIVE_ERRORS
    assert len(caught.value.turn.tool_calls) == 3
    assert "[Unable to complete task:" in caught.value.turn.text


@pytest.mark.anyio
async def test_calls_above_the_limit_of_one_reply_are_not_run_and_the_model_is_told() -> None:
    turn, model = await turn_of([calling(*(("works", at) for at in range(40))), "Done."], Limits(), stream=True)
    assert turn.stop_reason is StopReason.ANSWERED
    assert [record.result.success for record in turn.tool_calls] == [True] * 32 + [False] * 8
    assert turn.tool_calls[-1].result.failure is Failure.NOT_RUN
    results = [message for message in model.requests[-1].messages if message.role is Role.TOOL]
    assert len(results) == 40
    assert "one reply may make 32 calls" in results[-1].text


@pytest.mark.anyio
async def test_a_higher_limit_of_repeats_allows_more_polling() -> None:
    turn, _ = await turn_of([*SAME[:5], "Done."], Limits(max_repeats=6), stream=True)
    assert (turn.text, turn.stop_reason, len(turn.tool_calls)) == ("Done.", StopReason.ANSWERED, 5)


# --- time -----------------------------------------------------------------------------------------


CALL = CallChunk(ToolCallRequest("1", "rest", {}))
STOP = Completion(FinishReason.STOP)
ANSWER: list[Step] = [TextChunk("This is what I have."), STOP]
OUT_OF_TIME = "[Unable to complete task: the time for this turn is over]"


async def rest() -> str:
    """Rest for half a minute."""
    await anyio.sleep(30)
    return "rested"


class Untouched(Middleware):
    """A middleware that changes nothing."""

    async def around_model_call(
        self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        return await call_next(request)


async def time_turn(*replies: list[Step], timeout: float = 100, **options: Any) -> tuple[Turn, Model, float]:
    """Return a turn with the tool `rest`, its model, and the seconds that it took."""
    model = Model(*replies)
    async with DialClient(
        model, tools=[rest], limits=Limits(timeout=timeout, max_depth=99, max_repeats=99), **options
    ) as dial:
        began = anyio.current_time()
        turn = await dial.run(ASK)
        return turn, model, anyio.current_time() - began


async def silence() -> None:
    await anyio.sleep_forever()


async def half_a_minute() -> None:
    await anyio.sleep(30)


LATE: list[tuple[str, list[list[Step]], float, float]] = [
    ("in a call", [[CALL, STOP]] * 3, 100, 80),
    ("a fifth of a short time", [[CALL, STOP]], 10, 8),
    ("at most twenty seconds", [[CALL, STOP]] * 33, 1000, 980),
    ("while the model is silent", [[CALL, STOP], [silence]], 100, 80),
    ("while the model reasons", [[CALL, STOP], [ReasoningChunk("Well."), silence]], 100, 80),
    (
        "in a reply with a call",
        [[CALL, STOP], [TextChunk("Again."), half_a_minute, half_a_minute, CALL, STOP]],
        100,
        90,
    ),
]


@virtual_time
@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, {"middleware": [Untouched()]}], ids=["plain", "with middleware"])
@pytest.mark.parametrize(("replies", "timeout", "ends"), [row[1:] for row in LATE], ids=[row[0] for row in LATE])
async def test_a_share_of_the_time_is_kept_for_the_answer(
    replies: list[list[Step]], timeout: float, ends: float, options: dict[str, Any]
) -> None:
    turn, model, seconds = await time_turn(*replies, ANSWER, timeout=timeout, **options)
    assert (turn.text, turn.stop_reason) == ("This is what I have.", StopReason.TIMEOUT)
    assert seconds == pytest.approx(ends)
    last = model.requests[-1]
    assert last.settings.tool_choice is ToolChoice.NONE
    assert "the time for this turn is over. Answer now from what you have" in last.messages[-1].text


@virtual_time
@pytest.mark.anyio
async def test_an_answer_that_is_being_written_has_the_whole_time() -> None:
    slow: list[Step] = [TextChunk("It is"), half_a_minute, half_a_minute, TextChunk(" noon."), STOP]
    turn, model, seconds = await time_turn([CALL, STOP], slow)
    assert (turn.text, turn.stop_reason, len(model.requests)) == ("It is noon.", StopReason.ANSWERED, 2)
    assert seconds == pytest.approx(90)


@virtual_time
@pytest.mark.anyio
async def test_a_first_reply_has_the_whole_time_because_there_is_nothing_to_answer_from() -> None:
    turn, model, seconds = await time_turn([silence])
    assert (turn.text, turn.stop_reason, len(model.requests)) == (OUT_OF_TIME, StopReason.TIMEOUT, 1)
    assert seconds == pytest.approx(100)


@virtual_time
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("last", "text"),
    [([silence], OUT_OF_TIME), ([TextChunk("It"), silence], f"It\n\n{OUT_OF_TIME}")],
    ids=["silent", "cut"],
)
async def test_the_last_answer_ends_with_the_time(last: list[Step], text: str) -> None:
    turn, _, seconds = await time_turn([CALL, STOP], [silence], last)
    assert (turn.text, turn.stop_reason) == (text, StopReason.TIMEOUT)
    assert seconds == pytest.approx(100)


@virtual_time
@pytest.mark.anyio
async def test_with_on_limit_raise_the_end_of_the_time_is_an_error_without_a_further_request() -> None:
    with pytest.raises(LimitReached) as caught:
        await time_turn([CALL, STOP], [silence], on_limit="raise")
    assert caught.value.turn.stop_reason is StopReason.TIMEOUT

"""`TurnHandle`: the events, the result and the errors of a running turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from tests.inner import (
    MAX_UNREAD,
    DialError,
    Event,
    EventLog,
    Finished,
    LimitReached,
    Message,
    MessageCompleted,
    ProviderError,
    RoundStarted,
    ServerChanged,
    StopReason,
    TextChunk,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnHandle,
    TurnWork,
)
from tests.support.turn_handles import STOP, Hang, Pipeline, calling, check_history, heard, started

pytestmark = pytest.mark.anyio


# --- events and results -----------------------------------------------------------------------------------


async def test_a_turn_that_answers_has_a_result() -> None:
    pipeline = Pipeline(calling("now"), [TextChunk("Noon."), STOP])
    async with started(pipeline) as turn:
        result = await turn.result()
        assert await turn.result() is result
    assert (result.text, result.stop_reason, result.depth) == ("Noon.", StopReason.ANSWERED, 1)
    assert [record.result.content for record in result.tool_calls] == ["now ran"]
    check_history(result.messages)


async def test_events_are_in_order_and_finished_is_the_last_event() -> None:
    pipeline = Pipeline(calling("now"), [TextChunk("Noon."), STOP])
    async with started(pipeline, watched=True) as turn:
        events = await heard(turn.events())
        result = await turn.result()
    assert events[-1] == Finished(result)
    assert [event for event in events if isinstance(event, RoundStarted)] == [RoundStarted(0), RoundStarted(1)]
    assert [event.message for event in events if isinstance(event, MessageCompleted)] == list(result.messages)
    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallStarted) < kinds.index(ToolCallFinished) < kinds.index(TextDelta)


async def test_a_turn_waits_for_a_slow_reader_and_no_event_is_lost() -> None:
    count = 3 * MAX_UNREAD
    emitted = 0

    async def work(turn: TurnHandle) -> StopReason:
        nonlocal emitted
        for at in range(count):
            await turn.emit(TextDelta(f"{at} "))
            emitted += 1
        return StopReason.ANSWERED

    seen: list[Event] = []
    async with started(work, watched=True) as turn, aclosing(turn.events()) as events:
        async for event in events:
            seen.append(event)
            if len(seen) % 100 == 1:
                await anyio.wait_all_tasks_blocked()
                assert emitted <= len(seen) + MAX_UNREAD
    assert seen[:-1] == [TextDelta(f"{at} ") for at in range(count)]
    assert isinstance(seen[-1], Finished)


async def test_tools_that_emit_many_events_at_once_all_continue() -> None:
    async def tell(turn: TurnHandle) -> None:
        for _ in range(MAX_UNREAD):
            await turn.emit(TextDelta("a"))

    async def work(turn: TurnHandle) -> StopReason:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(tell, turn)
        return StopReason.ANSWERED

    async with started(work, watched=True) as turn:
        assert len(await heard(turn.events())) == 4 * MAX_UNREAD + 1


async def test_the_events_contain_everything_in_the_result() -> None:
    async def work(turn: TurnHandle) -> StopReason:
        turn.cancel()
        await turn.emit(MessageCompleted(Message.assistant("late")))
        await anyio.sleep_forever()
        raise AssertionError

    async with started(work, watched=True) as turn:
        events = await heard(turn.events())
        result = await turn.result()
    assert events == [MessageCompleted(Message.assistant("late")), Finished(result)]
    assert result.messages == (Message.assistant("late"),)


async def test_a_turn_without_an_observer_does_not_wait_for_a_reader() -> None:
    async def work(turn: TurnHandle) -> StopReason:
        for _ in range(3 * MAX_UNREAD):
            await turn.emit(TextDelta("a"))
        return StopReason.ANSWERED

    async with started(work) as turn:
        assert (await turn.result()).stop_reason is StopReason.ANSWERED


async def test_announcements_from_outside_the_turn_never_wait_for_a_reader() -> None:
    hang = Hang()
    async with started(hang, watched=True) as turn:
        await hang.reached.wait()
        for _ in range(2 * MAX_UNREAD):
            turn.announce(ServerChanged("clock", "ready"))
        turn.cancel()
        events = await heard(turn.events())
        turn.announce(ServerChanged("clock", "gone"))
    assert events[0] == ServerChanged("clock", "ready")
    assert len(events) == MAX_UNREAD + 1
    assert isinstance(events[-1], Finished)


# --- errors ---------------------------------------------------------------------------------------


INTERRUPTED: list[tuple[str, Callable[[], Pipeline], int]] = [
    ("at once", lambda: Pipeline([ProviderError("gone", status=503)]), 0),
    ("while streaming text", lambda: Pipeline([TextChunk("It is"), ProviderError("gone", status=503)]), 1),
    ("after tool calls", lambda: Pipeline(calling("now"), [ProviderError("gone", status=503)]), 2),
    ("while streaming calls", lambda: Pipeline([*calling("now")[:1], ProviderError("gone", status=503)]), 0),
]


@pytest.mark.parametrize(("make", "count"), [c[1:] for c in INTERRUPTED], ids=[c[0] for c in INTERRUPTED])
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_an_interrupted_reply_is_an_error_with_the_messages_so_far(
    make: Callable[[], Pipeline], count: int, watched: bool
) -> None:
    async with started(make(), watched=watched) as turn:
        with pytest.raises(ProviderError) as caught:
            await (heard(turn.events()) if watched else turn.result())
    assert caught.value.status == 503
    assert len(caught.value.messages) == count
    check_history(caught.value.messages)


async def test_the_text_so_far_is_an_event_before_the_error() -> None:
    events: list[Event] = []
    async with started(Pipeline([TextChunk("It is"), ProviderError("gone")]), watched=True) as turn:
        with pytest.raises(ProviderError):
            async with aclosing(turn.events()) as stream:
                async for event in stream:
                    events.append(event)  # noqa: PERF401 - a comprehension would lose the events
    assert events[-1] == MessageCompleted(Message.assistant("It is"))


async def test_a_limit_is_an_error_if_raise_at_limits_is_set() -> None:
    pipeline = Pipeline(calling("now"), calling("later"), [TextChunk("About noon."), STOP], max_depth=1)
    async with started(pipeline, raise_at_limits=True) as turn:
        with pytest.raises(LimitReached, match="too many rounds") as caught:
            await turn.result()
    reached = caught.value.turn
    assert (reached.stop_reason, reached.text) == (StopReason.MAX_DEPTH, "About noon.")
    check_history(reached.messages)


async def test_a_limit_is_a_stop_reason_by_default() -> None:
    pipeline = Pipeline(calling("now"), calling("later"), [TextChunk("About noon."), STOP], max_depth=1)
    async with started(pipeline) as turn:
        assert (await turn.result()).stop_reason is StopReason.MAX_DEPTH


@pytest.mark.parametrize("reason", [StopReason.REFUSED, StopReason.TRUNCATED, StopReason.CANCELLED])
async def test_other_stop_reasons_are_never_raised(reason: StopReason) -> None:
    async def work(turn: TurnHandle) -> StopReason:
        return reason

    async with started(work, raise_at_limits=True) as turn:
        assert (await turn.result()).stop_reason is reason


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_an_unexpected_exception_is_raised_to_the_waiting_reader(watched: bool) -> None:
    async def work(turn: TurnHandle) -> StopReason:
        raise ZeroDivisionError

    async with started(work, watched=watched) as turn:
        with pytest.raises(ZeroDivisionError):
            await (heard(turn.events()) if watched else turn.result())


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_a_turn_ends_with_an_error_when_its_client_is_closed(watched: bool) -> None:
    hang = Hang()
    turn = TurnHandle(hang, EventLog(is_paced=watched))
    async with anyio.create_task_group() as group:
        group.start_soon(turn.run)
        await hang.reached.wait()
        group.cancel_scope.cancel()
    with pytest.raises(DialError, match="closed"):
        await (heard(turn.events()) if watched else turn.result())


# --- the log --------------------------------------------------------------------------------------


async def break_down(turn: TurnHandle) -> StopReason:
    raise ZeroDivisionError("a defect")


LOGGED: list[tuple[str, Callable[[], TurnWork], str]] = [
    ("the model failed", lambda: Pipeline([ProviderError("gone\nfor good", status=503)]), "ProviderError"),
    ("a defect", lambda: break_down, "ZeroDivisionError"),
]


@pytest.mark.parametrize(("build", "error"), [row[1:] for row in LOGGED], ids=[row[0] for row in LOGGED])
async def test_a_failed_turn_is_logged_once(
    build: Callable[[], TurnWork], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="dial_client"):
        async with started(build()) as turn:
            with pytest.raises(Exception, match=r"gone|defect"):
                await turn.result()
    [record] = caplog.records
    text = record.getMessage()
    assert (record.levelname, text.partition(" ")[0]) == ("WARNING", "event='turn_failed'")
    assert f"turn='{turn.id}'" in text
    assert f"error='{error}'" in text
    assert ("break_down" in text) is (error == "ZeroDivisionError"), "only a defect has a traceback"


async def test_turns_that_end_at_a_limit_or_are_cancelled_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dial_client"):
        async with started(Pipeline(calling("now"), calling("now"), max_depth=0), raise_at_limits=True) as turn:
            with pytest.raises(LimitReached):
                await turn.result()
        hang = Hang()
        async with started(Pipeline([hang])) as turn:
            await hang.reached.wait()
            turn.cancel()
            await turn.result()
    assert caplog.records == []

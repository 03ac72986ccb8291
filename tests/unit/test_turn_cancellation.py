"""Cancellation of a turn at any point: its history is valid, and no task of the turn keeps running."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from tests.inner import (
    MAX_UNREAD,
    Finished,
    MessageCompleted,
    StopReason,
    TextChunk,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    Turn,
    TurnHandle,
)
from tests.support.turn_handles import STOP, Hang, Pipeline, calling, check_history, heard, started

pytestmark = pytest.mark.anyio


def while_waiting_for_the_model(hang: Hang) -> Pipeline:
    return Pipeline([hang])


def while_streaming_text(hang: Hang) -> Pipeline:
    return Pipeline([TextChunk("It is "), hang])


def while_streaming_calls(hang: Hang) -> Pipeline:
    return Pipeline([TextChunk("It is "), *calling("now")[:1], hang])


def while_a_person_is_asked(hang: Hang) -> Pipeline:
    return Pipeline(calling("now", "later"), approve=hang)


def while_a_tool_runs(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), tools={"now": hang})


def while_one_of_two_tools_runs(hang: Hang) -> Pipeline:
    return Pipeline(calling("now", "later"), tools={"later": hang})


def while_waiting_for_the_model_again(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), [hang])


def while_streaming_text_again(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), [TextChunk("It is "), hang])


def while_waiting_for_the_final_answer(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), calling("later"), [hang], max_depth=1)


def while_streaming_the_final_answer(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), calling("later"), [TextChunk("About "), hang], max_depth=1)


STAGES = [
    while_waiting_for_the_model,
    while_streaming_text,
    while_streaming_calls,
    while_a_person_is_asked,
    while_a_tool_runs,
    while_one_of_two_tools_runs,
    while_waiting_for_the_model_again,
    while_streaming_text_again,
    while_waiting_for_the_final_answer,
    while_streaming_the_final_answer,
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_a_turn_cancelled_at_any_stage_has_a_valid_history(
    stage: Callable[[Hang], Pipeline], watched: bool
) -> None:
    hang = Hang()
    pipeline = stage(hang)
    async with started(pipeline, watched=watched) as turn:
        await hang.reached.wait()
        await anyio.wait_all_tasks_blocked()
        turn.cancel()
        events = await heard(turn.events()) if watched else []
        result = await turn.result()
    assert result.stop_reason is StopReason.CANCELLED
    check_history(result.messages)
    assert (hang.left, pipeline.model.open_streams) == (True, 0)
    if watched:
        assert events[-1] == Finished(result)
        assert [event.message for event in events if isinstance(event, MessageCompleted)] == list(result.messages)
        begun = [event.call.id for event in events if isinstance(event, ToolCallStarted)]
        assert sorted(begun) == sorted(e.result.tool_call_id for e in events if isinstance(e, ToolCallFinished))


@pytest.mark.parametrize("stage", STAGES)
async def test_a_turn_is_cancelled_when_its_reader_leaves_at_any_stage(stage: Callable[[Hang], Pipeline]) -> None:
    hang = Hang()
    pipeline = stage(hang)
    async with started(pipeline, watched=True) as turn:
        async with aclosing(turn.events()) as events:
            async for _ in events:
                await anyio.wait_all_tasks_blocked()
                if hang.reached.is_set():
                    break
        assert (hang.left, pipeline.model.open_streams) == (True, 0)
        assert (await turn.result()).stop_reason is StopReason.CANCELLED


async def test_text_and_calls_before_a_cancellation_are_kept() -> None:
    hang = Hang()
    async with started(while_one_of_two_tools_runs(hang)) as turn:
        await hang.reached.wait()
        await anyio.wait_all_tasks_blocked()
        turn.cancel()
        result = await turn.result()
    assert [message.text for message in result.messages][1] == "now ran"
    assert "not known" in result.messages[2].text
    hang = Hang()
    async with started(while_streaming_text(hang)) as turn:
        await hang.reached.wait()
        turn.cancel()
        assert (await turn.result()).text == "It is "


async def test_a_turn_that_is_cancelled_before_it_began_ends_at_once() -> None:
    hang = Hang()
    async with started(while_waiting_for_the_model(hang)) as turn:
        turn.cancel()
        assert (await turn.result()).stop_reason is StopReason.CANCELLED


async def test_cancelling_a_finished_turn_changes_nothing() -> None:
    async with started(Pipeline([TextChunk("Noon."), STOP])) as turn:
        result = await turn.result()
        turn.cancel()
        await turn.stop()
        assert await turn.result() is result
    assert result.stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("patient", [True, False], ids=["by a waiting task", "by a cancelled task"])
async def test_stopped_waits_for_the_cleanup_of_the_turn(patient: bool) -> None:
    began, ended = anyio.Event(), False

    async def work(turn: TurnHandle) -> StopReason:
        nonlocal ended
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                ended = True
        raise AssertionError

    async with started(work) as turn:
        await began.wait()
        with anyio.CancelScope() as scope:
            if not patient:
                scope.cancel()
            await turn.stop()
        assert ended


@pytest.mark.parametrize("read_first", [0, 1], ids=["never read", "left behind"])
async def test_an_idle_reader_does_not_prevent_a_turn_from_stopping(read_first: int) -> None:
    async def work(turn: TurnHandle) -> StopReason:
        while True:
            await turn.emit(TextDelta("a"))

    async with started(work, watched=True) as turn:
        events = turn.events()
        for _ in range(read_first):
            await anext(events)
        await anyio.wait_all_tasks_blocked()
        await turn.stop()
        left = await heard(events)
    assert len(left) >= MAX_UNREAD
    assert isinstance(left[-1], Finished)
    assert left[-1].turn.stop_reason is StopReason.CANCELLED
    assert left[-2] == MessageCompleted(left[-1].turn.message), "the last events are kept even if the log is full"


async def test_many_readers_can_wait_for_the_result() -> None:
    hang = Hang()
    results: list[Turn] = []

    async def wait(turn: TurnHandle) -> None:
        results.append(await turn.result())

    async with started(hang) as turn, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait, turn)
        await hang.reached.wait()
        turn.cancel()
    assert len(results) == 3


async def test_a_cancelled_reader_cancels_its_turn() -> None:
    hang = Hang()
    async with started(hang, watched=True) as turn:
        async with anyio.create_task_group() as group:
            group.start_soon(heard, turn.events())
            await hang.reached.wait()
            group.cancel_scope.cancel()
        assert hang.left


async def test_cancelling_a_wait_for_the_result_does_not_cancel_the_turn() -> None:
    go_on = anyio.Event()

    async def work(turn: TurnHandle) -> StopReason:
        await go_on.wait()
        return StopReason.ANSWERED

    async with started(work) as turn:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turn.result()
        go_on.set()
        assert (await turn.result()).stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("stage", STAGES)
async def test_an_abandoned_turn_causes_no_warning_at_garbage_collection(stage: Callable[[Hang], Pipeline]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.freeze()  # objects of other tests are not collected
        async with started(stage(Hang()), watched=True) as turn, aclosing(turn.events()) as events:
            await anext(events)
        del turn, events
        gc.collect()
        gc.unfreeze()
    assert [str(warning.message) for warning in caught] == []

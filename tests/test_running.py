"""A turn under way: heard as it happens, stopped from anywhere, and never leaving anything running."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import CallToolResult

from dial_client.approvals import Approvals, Approver, Rules
from dial_client.asking import Asker
from dial_client.catalog import catalog_of
from dial_client.context import ConversationContext
from dial_client.deadline import Deadline
from dial_client.errors import DialError, LimitReached, ProviderError
from dial_client.events import (
    Emit,
    Event,
    Finished,
    MessageCompleted,
    RoundStarted,
    ServerChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from dial_client.executor import ToolExecutor
from dial_client.fitting import Window
from dial_client.formats import NativeFormatHandler
from dial_client.formats.choice import ChosenFormat
from dial_client.landing import land
from dial_client.life import OnProgress
from dial_client.limits import Limits, StopReason
from dial_client.messages import Message, Role, ToolCallRequest
from dial_client.model import CallChunk, Completion, FinishReason, TextChunk
from dial_client.resolution import resolve
from dial_client.running import BUFFERED_EVENTS, RunningTurn, Work
from dial_client.turn import Turn
from tests.stand_ins import Model, Step, server, text_result

pytestmark = pytest.mark.anyio

QUESTION = Message.user("What time is it?")
STOP = Completion(FinishReason.STOP)


class Hang:
    """A place in a turn where it stands still until it is cancelled."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.left = False

    async def __call__(self, *_: object) -> Any:
        self.reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.left = True


class Pipeline:
    """All that carries a turn out, with a model and tools at its edges."""

    def __init__(
        self, *replies: Sequence[Step], tools: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        approve: Approver | None = None, max_depth: int = 5
    ) -> None:  # fmt: skip
        self.model = Model(*replies)
        self.tools = tools or {}
        self.limits = Limits(max_depth=max_depth)
        catalog = catalog_of([server("clock", "now", "later", call=self._call)])
        self.executor = ToolExecutor(lambda: catalog, Approvals(Rules(), approve), self.limits)
        self.offered = catalog.tools

    async def _call(self, tool: str, _arguments: Mapping[str, Any], _on_progress: OnProgress) -> CallToolResult:
        if tool in self.tools:
            await self.tools[tool]()
        return text_result(f"{tool} ran")

    async def __call__(self, turn: RunningTurn) -> StopReason:
        deadline = Deadline(60)
        asker = Asker(
            self.model,
            ChosenFormat(NativeFormatHandler()),
            Window(),
            lambda: self.offered,
            deadline,
            turn.recorder,
            Limits(),
            stream=True,
        )

        async def call_tools(calls: Sequence[ToolCallRequest], emit: Emit) -> list[Message]:
            done = await self.executor.execute_all(calls, emit, deadline)
            messages = [Message.tool(call, result) for call, result in zip(calls, done, strict=True)]
            for message in messages:
                await emit(MessageCompleted(message))
            return messages

        context = ConversationContext((QUESTION,), self.limits.max_depth)
        outcome = await resolve(context, asker, call_tools, turn.emit)
        return await land(outcome, asker, turn.emit)


@asynccontextmanager
async def started(
    work: Work, *, watched: bool = False, raise_at_limits: bool = False
) -> AsyncGenerator[RunningTurn, None]:
    """Run a turn in a task of its own, and wait for that task's end; nothing here may take long."""
    turn = RunningTurn(work, watched=watched, raise_at_limits=raise_at_limits)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(turn.run)
            yield turn


def calling(*names: str) -> list[Step]:
    return [*(CallChunk(ToolCallRequest(f"id_{name}", name, {})) for name in names), STOP]


def check_history(messages: Sequence[Message]) -> None:
    left = list(messages)
    while left:
        message = left.pop(0)
        assert message.role is Role.ASSISTANT
        assert message.tool_calls or message.text.strip()
        assert [one.tool_call_id for one in left[: len(message.tool_calls)]] == [call.id for call in message.tool_calls]
        del left[: len(message.tool_calls)]


async def heard(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]


# --- to the end -----------------------------------------------------------------------------------


async def test_a_turn_that_answers_has_a_result() -> None:
    pipeline = Pipeline(calling("now"), [TextChunk("Noon."), STOP])
    async with started(pipeline) as turn:
        result = await turn.result()
        assert await turn.result() is result
    assert (result.text, result.stop_reason, result.depth) == ("Noon.", StopReason.ANSWERED, 1)
    assert [record.result.content for record in result.tool_calls] == ["now ran"]
    check_history(result.messages)


async def test_what_happens_is_heard_in_order_and_the_end_comes_last() -> None:
    pipeline = Pipeline(calling("now"), [TextChunk("Noon."), STOP])
    async with started(pipeline, watched=True) as turn:
        events = await heard(turn.events())
        result = await turn.result()
    assert events[-1] == Finished(result)
    assert [event for event in events if isinstance(event, RoundStarted)] == [RoundStarted(0), RoundStarted(1)]
    assert [event.message for event in events if isinstance(event, MessageCompleted)] == list(result.messages)
    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallStarted) < kinds.index(ToolCallFinished) < kinds.index(TextDelta)


async def test_a_slow_reader_loses_nothing_and_is_waited_for() -> None:
    count = 3 * BUFFERED_EVENTS
    emitted = 0

    async def work(turn: RunningTurn) -> StopReason:
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
                assert emitted <= len(seen) + BUFFERED_EVENTS
    assert seen[:-1] == [TextDelta(f"{at} ") for at in range(count)]
    assert isinstance(seen[-1], Finished)


async def test_several_tools_that_tell_much_at_once_all_go_on() -> None:
    async def tell(turn: RunningTurn) -> None:
        for _ in range(BUFFERED_EVENTS):
            await turn.emit(TextDelta("a"))

    async def work(turn: RunningTurn) -> StopReason:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(tell, turn)
        return StopReason.ANSWERED

    async with started(work, watched=True) as turn:
        assert len(await heard(turn.events())) == 4 * BUFFERED_EVENTS + 1


async def test_what_is_in_the_result_has_been_heard_even_where_it_was_said_too_late() -> None:
    async def work(turn: RunningTurn) -> StopReason:
        turn.cancel()
        await turn.emit(MessageCompleted(Message.assistant("late")))
        await anyio.sleep_forever()
        raise AssertionError

    async with started(work, watched=True) as turn:
        events = await heard(turn.events())
        result = await turn.result()
    assert events == [MessageCompleted(Message.assistant("late")), Finished(result)]
    assert result.messages == (Message.assistant("late"),)


async def test_a_turn_nobody_watches_does_not_wait_for_a_reader() -> None:
    async def work(turn: RunningTurn) -> StopReason:
        for _ in range(3 * BUFFERED_EVENTS):
            await turn.emit(TextDelta("a"))
        return StopReason.ANSWERED

    async with started(work) as turn:
        assert (await turn.result()).stop_reason is StopReason.ANSWERED


async def test_news_from_outside_the_turn_is_handed_on_and_never_waited_for() -> None:
    hang = Hang()
    async with started(hang, watched=True) as turn:
        await hang.reached.wait()
        for _ in range(2 * BUFFERED_EVENTS):
            turn.announce(ServerChanged("clock", "ready"))
        turn.cancel()
        events = await heard(turn.events())
        turn.announce(ServerChanged("clock", "gone"))
    assert events[0] == ServerChanged("clock", "ready")
    assert len(events) == BUFFERED_EVENTS + 1
    assert isinstance(events[-1], Finished)


# --- cancelled ------------------------------------------------------------------------------------


def while_asking(hang: Hang) -> Pipeline:
    return Pipeline([hang])


def while_speaking(hang: Hang) -> Pipeline:
    return Pipeline([TextChunk("It is "), hang])


def while_its_calls_come(hang: Hang) -> Pipeline:
    return Pipeline([TextChunk("It is "), *calling("now")[:1], hang])


def while_a_person_is_asked(hang: Hang) -> Pipeline:
    return Pipeline(calling("now", "later"), approve=hang)


def while_a_tool_runs(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), tools={"now": hang})


def while_one_of_two_tools_runs(hang: Hang) -> Pipeline:
    return Pipeline(calling("now", "later"), tools={"later": hang})


def while_asking_again(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), [hang])


def while_speaking_again(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), [TextChunk("It is "), hang])


def while_asking_for_words(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), calling("later"), [hang], max_depth=1)


def while_speaking_the_last_words(hang: Hang) -> Pipeline:
    return Pipeline(calling("now"), calling("later"), [TextChunk("About "), hang], max_depth=1)


STAGES = [
    while_asking, while_speaking, while_its_calls_come, while_a_person_is_asked, while_a_tool_runs,
    while_one_of_two_tools_runs, while_asking_again, while_speaking_again, while_asking_for_words,
    while_speaking_the_last_words,
]  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_wherever_a_turn_is_cancelled_it_ends_with_a_valid_history(
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
async def test_wherever_a_reader_leaves_the_turn_is_stopped(stage: Callable[[Hang], Pipeline]) -> None:
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


async def test_what_was_said_and_done_before_a_cancellation_is_kept() -> None:
    hang = Hang()
    async with started(while_one_of_two_tools_runs(hang)) as turn:
        await hang.reached.wait()
        await anyio.wait_all_tasks_blocked()
        turn.cancel()
        result = await turn.result()
    assert [message.text for message in result.messages][1] == "now ran"
    assert "not known" in result.messages[2].text
    hang = Hang()
    async with started(while_speaking(hang)) as turn:
        await hang.reached.wait()
        turn.cancel()
        assert (await turn.result()).text == "It is "


async def test_a_turn_that_is_cancelled_before_it_began_ends_at_once() -> None:
    hang = Hang()
    async with started(while_asking(hang)) as turn:
        turn.cancel()
        assert (await turn.result()).stop_reason is StopReason.CANCELLED


async def test_cancelling_what_is_over_changes_nothing() -> None:
    async with started(Pipeline([TextChunk("Noon."), STOP])) as turn:
        result = await turn.result()
        turn.cancel()
        await turn.stopped()
        assert await turn.result() is result
    assert result.stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("patient", [True, False], ids=["waited for", "by somebody who is cancelled"])
async def test_stopping_waits_until_nothing_runs_even_where_ending_takes_a_while(patient: bool) -> None:
    began, ended = anyio.Event(), False

    async def work(turn: RunningTurn) -> StopReason:
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
            await turn.stopped()
        assert ended


@pytest.mark.parametrize("read_first", [0, 1], ids=["never read", "left behind"])
async def test_a_reader_that_stays_away_does_not_keep_a_turn_from_stopping(read_first: int) -> None:
    async def work(turn: RunningTurn) -> StopReason:
        while True:
            await turn.emit(TextDelta("a"))

    async with started(work, watched=True) as turn:
        events = turn.events()
        for _ in range(read_first):
            await anext(events)
        await anyio.wait_all_tasks_blocked()
        await turn.stopped()
        left = await heard(events)
    assert len(left) >= BUFFERED_EVENTS
    assert isinstance(left[-1], Finished)
    assert left[-1].turn.stop_reason is StopReason.CANCELLED
    assert left[-2] == MessageCompleted(left[-1].turn.message), "what closes the turn is not lost for want of room"


async def test_many_readers_can_wait_for_the_result() -> None:
    hang = Hang()
    results: list[Turn] = []

    async def wait(turn: RunningTurn) -> None:
        results.append(await turn.result())

    async with started(hang) as turn, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait, turn)
        await hang.reached.wait()
        turn.cancel()
    assert len(results) == 3


async def test_a_reader_that_is_cancelled_stops_its_turn() -> None:
    hang = Hang()
    async with started(hang, watched=True) as turn:
        async with anyio.create_task_group() as group:
            group.start_soon(heard, turn.events())
            await hang.reached.wait()
            group.cancel_scope.cancel()
        assert hang.left


async def test_waiting_for_a_result_can_be_given_up_without_stopping_the_turn() -> None:
    go_on = anyio.Event()

    async def work(turn: RunningTurn) -> StopReason:
        await go_on.wait()
        return StopReason.ANSWERED

    async with started(work) as turn:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turn.result()
        go_on.set()
        assert (await turn.result()).stop_reason is StopReason.ANSWERED


# --- errors ---------------------------------------------------------------------------------------


BROKEN_OFF: list[tuple[str, Callable[[], Pipeline], int]] = [
    ("at once", lambda: Pipeline([ProviderError("gone", status=503)]), 0),
    ("while it speaks", lambda: Pipeline([TextChunk("It is"), ProviderError("gone", status=503)]), 1),
    ("behind tools", lambda: Pipeline(calling("now"), [ProviderError("gone", status=503)]), 2),
    ("in its calls", lambda: Pipeline([*calling("now")[:1], ProviderError("gone", status=503)]), 0),
]


@pytest.mark.parametrize(("make", "count"), [c[1:] for c in BROKEN_OFF], ids=[c[0] for c in BROKEN_OFF])
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_a_model_that_breaks_off_is_an_error_that_has_what_was_said(
    make: Callable[[], Pipeline], count: int, watched: bool
) -> None:
    async with started(make(), watched=watched) as turn:
        with pytest.raises(ProviderError) as caught:
            await (heard(turn.events()) if watched else turn.result())
    assert caught.value.status == 503
    assert len(caught.value.messages) == count
    check_history(caught.value.messages)


async def test_what_was_said_is_heard_before_the_error_is() -> None:
    events: list[Event] = []
    async with started(Pipeline([TextChunk("It is"), ProviderError("gone")]), watched=True) as turn:
        with pytest.raises(ProviderError):
            async with aclosing(turn.events()) as stream:
                async for event in stream:
                    events.append(event)  # noqa: PERF401 - a comprehension would lose them with the error
    assert events[-1] == MessageCompleted(Message.assistant("It is"))


async def test_a_limit_is_an_error_for_those_who_asked_for_it() -> None:
    pipeline = Pipeline(calling("now"), calling("later"), [TextChunk("About noon."), STOP], max_depth=1)
    async with started(pipeline, raise_at_limits=True) as turn:
        with pytest.raises(LimitReached, match="too many rounds") as caught:
            await turn.result()
    reached = caught.value.turn
    assert (reached.stop_reason, reached.text) == (StopReason.MAX_DEPTH, "About noon.")
    check_history(reached.messages)


async def test_a_limit_is_an_answer_for_those_who_did_not() -> None:
    pipeline = Pipeline(calling("now"), calling("later"), [TextChunk("About noon."), STOP], max_depth=1)
    async with started(pipeline) as turn:
        assert (await turn.result()).stop_reason is StopReason.MAX_DEPTH


@pytest.mark.parametrize("reason", [StopReason.REFUSED, StopReason.TRUNCATED, StopReason.CANCELLED])
async def test_what_is_no_limit_is_never_raised(reason: StopReason) -> None:
    async def work(turn: RunningTurn) -> StopReason:
        return reason

    async with started(work, raise_at_limits=True) as turn:
        assert (await turn.result()).stop_reason is reason


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_a_mistake_in_the_work_is_raised_where_somebody_waits_and_nowhere_else(watched: bool) -> None:
    async def work(turn: RunningTurn) -> StopReason:
        raise ZeroDivisionError

    async with started(work, watched=watched) as turn:
        with pytest.raises(ZeroDivisionError):
            await (heard(turn.events()) if watched else turn.result())


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
async def test_a_client_that_is_closed_meanwhile_says_so(watched: bool) -> None:
    hang = Hang()
    turn = RunningTurn(hang, watched=watched, raise_at_limits=False)
    async with anyio.create_task_group() as group:
        group.start_soon(turn.run)
        await hang.reached.wait()
        group.cancel_scope.cancel()
    with pytest.raises(DialError, match="closed"):
        await (heard(turn.events()) if watched else turn.result())


@pytest.mark.parametrize("stage", STAGES)
async def test_nothing_is_left_for_the_garbage_collector_to_complain_about(stage: Callable[[Hang], Pipeline]) -> None:
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("ignore")
        gc.collect()  # what other tests left behind
        warnings.simplefilter("always")
        async with started(stage(Hang()), watched=True) as turn, aclosing(turn.events()) as events:
            await anext(events)
        del turn, events
        gc.collect()
    assert [str(complaint.message) for complaint in complaints] == []

"""The recorded history of a turn is valid for every provider, wherever the turn ends."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    Event,
    Failure,
    Finished,
    Message,
    MessageCompleted,
    PendingApproval,
    ReasoningDelta,
    Role,
    RoundStarted,
    ServerChanged,
    StatusChanged,
    StopReason,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    Turn,
    TurnRecorder,
    Usage,
    find_question,
)
from tests.support.fakes import unhurried


def call(id_: str) -> ToolCallRequest:
    return ToolCallRequest(id_, f"tool_{id_}", {})


def good(id_: str) -> ToolCallResult:
    return ToolCallResult(id_, success=True, content=f"result of {id_}")


def recorded(*events: Event) -> TurnRecorder:
    recorder = TurnRecorder()
    for event in events:
        recorder.record(event)
    return recorder


def settled(recorder: TurnRecorder) -> tuple[list[Event], Turn]:
    events = recorder.settle("the user stopped it")
    for event in events:
        recorder.record(event)
    return events, recorder.build_turn(StopReason.CANCELLED)


def check_every_call_is_answered_once_in_order(messages: Sequence[Message]) -> None:
    left = list(messages)
    while left:
        message = left.pop(0)
        assert message.role is Role.ASSISTANT, "a result without a call"
        assert message.tool_calls or message.text.strip(), "an empty message"
        for asked in message.tool_calls:
            assert left, f"{asked.id} was never answered"
            answer = left.pop(0)
            assert (answer.role, answer.tool_call_id, answer.name) == (Role.TOOL, asked.id, asked.name)


@st.composite
def turns(draw: st.DrawFn) -> list[Event]:
    """Draw all events of a valid turn: ids are unique within a round, and calls of a round overlap in any order."""
    events: list[Event] = []
    rounds = draw(st.integers(0, 3))
    for depth in range(rounds + 1):
        pieces = draw(st.lists(st.sampled_from(["I ", "see", " ", "\n"]), max_size=3))
        ids = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)) if depth < rounds else []
        text = "".join(pieces)
        events += [RoundStarted(depth), StatusChanged("…"), ReasoningDelta("hm")]
        events += [TextDelta(piece) for piece in pieces]
        if ids or text.strip():
            events.append(MessageCompleted(Message.assistant(text, [call(id_) for id_ in ids])))
        started: list[str] = []
        to_start = draw(st.permutations(ids))
        while to_start or started:
            if to_start and (not started or draw(st.booleans())):
                started.append(to_start.pop(0))
                events.append(ToolCallStarted(call(started[-1]), "server", "its_name"))
            else:
                id_ = started.pop(draw(st.integers(0, len(started) - 1)))
                events += [ToolCallProgress(id_, 1, None, None), ToolCallFinished(good(id_), "server", 0.5)]
        events += [MessageCompleted(Message.tool(call(id_), good(id_))) for id_ in ids]
        events.append(ServerChanged("server", "ready"))
    return events


@unhurried
@given(turns(), st.data())
def test_the_history_of_a_turn_stopped_at_any_event_is_valid(events: list[Event], data: st.DataObject) -> None:
    until = data.draw(st.integers(0, len(events)), label="number of events")
    recorder = recorded(*events[:until])
    closing, turn = settled(recorder)
    check_every_call_is_answered_once_in_order(turn.messages)
    everything = events[:until] + closing
    begun = [event.call.id for event in everything if isinstance(event, ToolCallStarted)]
    ended = [event.result.tool_call_id for event in everything if isinstance(event, ToolCallFinished)]
    assert sorted(begun) == sorted(ended), "each started event has a finished event"
    assert [event.message for event in everything if isinstance(event, MessageCompleted)] == list(turn.messages)
    assert recorder.settle("again") == [], "settling twice adds no events"


@unhurried
@given(turns(), st.data())
def test_no_text_and_no_call_is_lost(events: list[Event], data: st.DataObject) -> None:
    until = data.draw(st.integers(0, len(events)), label="number of events")
    _, turn = settled(recorded(*events[:until]))
    text = "".join(event.text for event in events[:until] if isinstance(event, TextDelta))
    kept = "".join(message.text for message in turn.messages if message.role is Role.ASSISTANT)
    assert "".join(kept.split()) == "".join(text.split())
    done = [event.result for event in events[:until] if isinstance(event, ToolCallFinished)]
    assert all(result in [record.result for record in turn.tool_calls] for result in done)
    answers = [message.content for message in turn.messages if message.role is Role.TOOL]
    assert all(result.content in answers for result in done)


ROUND = (RoundStarted(0), MessageCompleted(Message.assistant("", [call("a"), call("b")])))


def test_the_result_of_an_interrupted_call_says_that_its_effect_is_unknown() -> None:
    _, turn = settled(recorded(*ROUND, ToolCallStarted(call("a"), "server", "own"), ToolCallStarted(call("b"), "s")))
    assert [record.result.failure for record in turn.tool_calls] == [Failure.NOT_RUN, Failure.NOT_RUN]
    assert (turn.tool_calls[0].server, turn.tool_calls[0].tool) == ("server", "own")
    assert "not known" in turn.messages[1].text
    assert "the user stopped it" in turn.messages[1].text


def test_an_interrupted_call_has_a_duration_and_a_call_that_waited_for_approval_has_no_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    recorder = recorded(*ROUND, ToolCallStarted(call("a"), "server", "own"), ToolCallStarted(call("b"), "s"))
    recorder.held["b"] = PendingApproval("1", call("b"), "s", "own")
    clock[0] += 2.5
    ends = [event for event in recorder.settle("the user stopped it") if isinstance(event, ToolCallFinished)]
    assert [(end.result.tool_call_id, end.duration) for end in ends] == [("a", 2.5), ("b", 0.0)]


def test_a_call_that_was_never_started_says_that_it_was_not_run() -> None:
    _, turn = settled(recorded(*ROUND, ToolCallStarted(call("a"), "server"), ToolCallFinished(good("a"), "server", 1)))
    first, second = turn.messages[1:]
    assert (first.text, first.is_error) == ("result of a", False)
    assert second.text.startswith("Not run")
    assert "not known" not in second.text
    assert second.is_error


def test_unfinished_text_is_kept() -> None:
    events, turn = settled(recorded(RoundStarted(0), TextDelta("It is "), TextDelta("no")))
    assert events == [MessageCompleted(Message.assistant("It is no"))]
    assert turn.text == "It is no"


def test_unfinished_blank_text_is_dropped() -> None:
    events, turn = settled(recorded(RoundStarted(0), TextDelta("\n ")))
    assert (events, turn.messages, turn.text) == ([], (), "")


def test_text_is_unfinished_until_its_message_is_completed() -> None:
    recorder = recorded(TextDelta("It is "))
    assert recorder.unfinished_text == "It is "
    recorder.record(MessageCompleted(Message.assistant("It is noon")))
    assert recorder.unfinished_text == ""


def test_the_message_of_a_turn_is_the_last_message_of_the_model() -> None:
    recorder = recorded(*ROUND)
    assert settled(recorder)[1].message == Message.assistant("[Unable to complete task: it was cancelled]")
    recorder.record(MessageCompleted(Message.assistant("noon")))
    assert recorder.build_turn(StopReason.ANSWERED).message == Message.assistant("noon")


def test_calls_are_listed_in_the_order_of_the_reply() -> None:
    recorder = recorded(
        *ROUND,
        ToolCallStarted(call("b"), "server"),
        ToolCallStarted(call("a"), "server"),
        ToolCallFinished(good("b"), "server", 2),
        ToolCallFinished(good("a"), "server", 1),
    )
    assert [(record.call.id, record.duration) for record in recorder.build_turn(StopReason.ANSWERED).tool_calls] == [
        ("a", 1),
        ("b", 2),
    ]


def test_calls_of_a_program_are_listed_in_the_order_of_their_starts() -> None:
    recorder = recorded(
        *ROUND,
        ToolCallStarted(call("a"), ""),
        ToolCallStarted(call("a/1"), "server", parent="a"),
        ToolCallStarted(call("a/2"), "server", parent="a"),
        ToolCallFinished(good("a/2"), "server", 1),
        ToolCallFinished(good("a/1"), "server", 2),
        ToolCallFinished(good("a"), "", 3),
    )
    ids = [record.call.id for record in recorder.build_turn(StopReason.ANSWERED).tool_calls]
    assert ids == ["a", "a/1", "a/2"]


def test_two_rounds_may_use_the_same_call_id() -> None:
    once: list[Event] = [
        MessageCompleted(Message.assistant("", [call("a")])),
        ToolCallStarted(call("a"), "server"),
        ToolCallFinished(good("a"), "server", 1),
        MessageCompleted(Message.tool(call("a"), good("a"))),
    ]
    recorder = recorded(RoundStarted(0), *once, RoundStarted(1), *once)
    assert len(recorder.build_turn(StopReason.ANSWERED).tool_calls) == 2


def test_usage_is_added_up_and_duplicate_notes_are_dropped() -> None:
    recorder = recorded()
    recorder.add_usage(Usage(1, 2))
    recorder.add_usage(Usage(10, 20))
    recorder.note("one", "two")
    recorder.note("one")
    turn = recorder.build_turn(StopReason.ANSWERED)
    assert turn.usage == Usage(11, 22)
    assert turn.notes == ("one", "two")


def test_the_depth_is_that_of_the_last_round() -> None:
    assert recorded().build_turn(StopReason.CANCELLED).depth == 0
    assert recorded(RoundStarted(0), RoundStarted(1)).build_turn(StopReason.ANSWERED).depth == 1


@pytest.mark.parametrize("reason", StopReason)
def test_a_turn_without_text_can_be_recorded(reason: StopReason) -> None:
    recorder = recorded()
    turn = recorder.build_turn(reason)
    recorder.record(Finished(turn))
    assert (turn.text, turn.messages, turn.stop_reason) == ("", (), reason)


QUESTION, AGAIN = Message.user("What time is it?"), Message.user("And in Tokyo?")
CALLED = Message(Role.ASSISTANT, "", (ToolCallRequest("id_now", "now", {}),))
TOLD = Message(Role.TOOL, "noon", tool_call_id="id_now", name="now")
NOON = Message.assistant("Noon.")


@pytest.mark.parametrize(
    ("messages", "depth", "question"),
    [
        ((), 0, ()),
        ((QUESTION,), 0, (QUESTION,)),
        ((QUESTION, NOON, AGAIN), 0, (AGAIN,)),
        ((QUESTION, AGAIN), 0, (AGAIN,)),
        ((QUESTION, CALLED, TOLD, AGAIN), 0, (AGAIN,)),
        ((QUESTION, CALLED, TOLD), 0, (TOLD,)),
        ((NOON, QUESTION, CALLED, TOLD), 1, (QUESTION, CALLED, TOLD)),
        ((QUESTION, NOON), 0, ()),
    ],
    ids=["empty", "first", "next", "unanswered before", "interrupted before", "client tools", "resumed", "no question"],
)
def test_a_turn_begins_with_what_the_caller_asked(
    messages: tuple[Message, ...], depth: int, question: tuple[Message, ...]
) -> None:
    assert find_question(messages, is_resumed=depth > 0) == question
    recorder = TurnRecorder(question)
    recorder.record(MessageCompleted(NOON))
    assert recorder.build_turn(StopReason.ANSWERED).messages == (*question, NOON)
    assert recorder.complete_messages == (NOON,)

"""The events of a running turn, as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from datetime import date
from typing import Any, get_args, get_origin

import pytest

from tests.inner import (
    AgentChanged,
    AgentEvent,
    App,
    AppOpened,
    Event,
    Failure,
    Finished,
    ImagePart,
    InputReceived,
    InputRequested,
    Message,
    MessageCompleted,
    OutputDelta,
    ReasoningDelta,
    RoundStarted,
    ServerChanged,
    StatusChanged,
    StopReason,
    TextDelta,
    TextPart,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallRecord,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    Turn,
    Usage,
    events,
    find_type_name,
    to_dict,
)

CALL = ToolCallRequest("call_1", "add", {"a": 1, "b": [2]})
RESULT = ToolCallResult("call_1", success=True, content=(TextPart("3"), ImagePart("AA==", "image/png")))
ANSWER = Message.assistant("3")
TURN = Turn(
    message=ANSWER,
    messages=(Message.assistant("", [CALL]), Message.tool(CALL, RESULT), ANSWER),
    stop_reason=StopReason.ANSWERED,
    depth=1,
    usage=Usage(10, 5),
    tool_calls=(ToolCallRecord(CALL, RESULT, "maths", "add.it", 0.1235),),
    notes=("one server is missing",),
)
CASES: list[tuple[Event, dict[str, Any]]] = [
    (RoundStarted(2), {"type": "round_started", "depth": 2, "may_call": True}),
    (StatusChanged("Working…"), {"type": "status_changed", "text": "Working…"}),
    (TextDelta("hel"), {"type": "text_delta", "text": "hel"}),
    (ReasoningDelta("hm"), {"type": "reasoning_delta", "text": "hm"}),
    (OutputDelta({"a": [date(2026, 1, 2)]}), {"type": "output_delta", "output": {"a": ["2026-01-02"]}}),
    (MessageCompleted(ANSWER), {"type": "message_completed", "message": {"role": "assistant", "content": "3"}}),
    (
        ToolCallStarted(CALL, "maths", "add.it"),
        {
            "type": "tool_call_started",
            "call": CALL.to_dict(),
            "server": "maths",
            "tool": "add.it",
            "by_endpoint": False,
        },
    ),
    (
        AgentEvent("call_1", "main > reviewer", AgentEvent("call_2", "main > x", ToolCallStarted(CALL, "maths"))),
        {
            "type": "agent_event",
            "call_id": "call_1",
            "agent": "main > reviewer",
            "event": {
                "type": "agent_event",
                "call_id": "call_2",
                "agent": "main > x",
                "event": to_dict(ToolCallStarted(CALL, "maths")),
            },
        },
    ),
    (AgentChanged("reviewer"), {"type": "agent_changed", "agent": "reviewer"}),
    (
        AppOpened(App("call_1", "maths", "plot", "ui://plot", {"a": 1})),
        {
            "type": "app_opened",
            "app": {
                "call_id": "call_1",
                "server": "maths",
                "tool": "plot",
                "uri": "ui://plot",
                "arguments": {"a": 1},
                "result": None,
            },
        },
    ),
    (
        ToolCallProgress("call_1", 0.5, None, "half"),
        {"type": "tool_call_progress", "id": "call_1", "progress": 0.5, "total": None, "message": "half"},
    ),
    (
        ToolCallFinished(ToolCallResult.failed("call_1", Failure.TIMEOUT, "slow"), "maths", 0.5),
        {
            "type": "tool_call_finished",
            "result": {
                "tool_call_id": "call_1",
                "success": False,
                "content": "slow",
                "error": "slow",
                "failure": "timeout",
            },
            "server": "maths",
            "duration": 0.5,
            "by_endpoint": False,
            "changed_arguments": None,
            "changed_tool": None,
        },
    ),
    (ServerChanged("maths", "ready"), {"type": "server_changed", "name": "maths", "status": "ready"}),
    (
        InputRequested("a1", "approval", {"server": "maths"}),
        {"type": "input_requested", "id": "a1", "kind": "approval", "about": {"server": "maths"}},
    ),
    (
        InputReceived("a1", "approval", "once"),
        {"type": "input_received", "id": "a1", "kind": "approval", "answer": "once"},
    ),
    (Finished(TURN), {"type": "finished", "turn": TURN.to_dict()}),
]


@pytest.mark.parametrize(("event", "data"), CASES, ids=[find_type_name(event) for event, _ in CASES])
def test_an_event_in_json_has_its_type_and_its_fields(event: Event, data: dict[str, Any]) -> None:
    assert to_dict(event) == data
    assert json.loads(json.dumps(to_dict(event))) == data


@pytest.mark.parametrize(
    "thing",
    [*(event for event, _ in CASES), TURN, TURN.tool_calls[0], CALL, RESULT],
    ids=lambda thing: type(thing).__name__,
)
def test_events_cannot_be_changed(thing: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(thing, fields(thing)[0].name, None)
    assert not hasattr(thing, "__dict__"), "attributes cannot be added"


def test_every_event_has_a_case_here() -> None:
    assert {type(event) for event, _ in CASES} == {get_origin(kind) or kind for kind in get_args(events.Event)}


def test_a_turn_in_json_has_every_documented_key() -> None:
    data = json.loads(json.dumps(TURN.to_dict()))
    assert data == {
        "text": "3",
        "stop_reason": "answered",
        "depth": 1,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
            "rounds": [],
            "cost_usd": None,
        },
        "tool_calls": [
            {
                "id": "call_1",
                "name": "add",
                "server": "maths",
                "tool": "add.it",
                "arguments": {"a": 1, "b": [2]},
                "is_error": False,
                "content": [{"type": "text", "text": "3"}, {"type": "image", "data": "AA==", "mime_type": "image/png"}],
                "duration_s": 0.1235,
            }
        ],
        "messages": [message.to_dict() for message in TURN.messages],
        "notes": ["one server is missing"],
    }


@pytest.mark.parametrize("failure", Failure)
def test_only_a_denied_call_counts_as_denied(failure: Failure) -> None:
    record = ToolCallRecord(CALL, ToolCallResult.failed("call_1", failure, "no"), "maths", "add", 0.0)
    assert record.denied == (failure is Failure.DENIED)

"""Behaviour of any provider, independent of an API."""

from __future__ import annotations

from tests.inner import Limits, StopReason
from tests.support.deviations.case import BOTH, DONE, REFUSED, TRUNCATED, A, Case, same
from tests.support.deviations.chat import chunk, events

_CALL = {"name": "echo", "arguments": {"text": "a"}}
_AGAIN = {"text": "Once more.", "tool_calls": [_CALL]}

PLAIN: dict[str, Case] = {
    "text in pieces": same({"chunks": ["Do", "", "ne", "."]}),
    "ids that are the same": same(
        {"tool_calls": [_CALL | {"id": "x"}, {**_CALL, "arguments": {"text": "b"}, "id": "x"}]}, DONE, ran=BOTH
    ),
    "ids that are empty": same(
        {"tool_calls": [_CALL | {"id": ""}, {**_CALL, "arguments": {"text": "b"}, "id": ""}]}, DONE, ran=BOTH
    ),
    "no completion": same({"text": "Half", "tool_calls": [_CALL], "completion": False}, text="Half", stop=TRUNCATED),
    "cut": same({"text": "Half", "tool_calls": [_CALL], "finish": "cut"}, text="Half", stop=TRUNCATED),
    "refused": same({"text": "No", "finish": "refused"}, text="No", stop=REFUSED),
    "unreadable arguments": same({"tool_calls": [{"name": "echo", "arguments": "{'tex"}]}, DONE),
    "an unknown tool": same({"tool_calls": [{"name": "ecko"}]}, DONE),
    "an error behind text": same({"text": "Half", "error": {"message": "busy", "status": 503}}, text="busy", stop=None),
    "silence": same({"text": "Half", "hang": True}, text="Half", stop=StopReason.TIMEOUT, limits=Limits(timeout=2)),
    "silence of an endpoint": same(
        events(chunk({"content": "Half"}), done=False, hang=True),
        text="Half",
        stop=StopReason.TIMEOUT,
        limits=Limits(timeout=2),
    ),
    "calls without end": same(
        {"text": "Once more.", "tool_calls": [_CALL]},
        repeats=True,
        ran=(A, A),
        text="Once more.",
        stop=StopReason.MAX_DEPTH,
        limits=Limits(max_depth=2),
    ),
    "calls although none are wanted": same(
        _AGAIN,
        {"text": "Well.", "tool_calls": [_CALL]},
        text="Well.",
        stop=StopReason.MAX_DEPTH,
        limits=Limits(max_depth=0),
    ),
    "nothing to say": same("", "", text="[Unable to complete task:", stop=REFUSED),
}

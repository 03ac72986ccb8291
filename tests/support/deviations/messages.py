"""The ends of replies of the Messages API, and their content blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.deviations.case import CALLS, DONE, REFUSED, TRUNCATED, A, B, Case, cut, same
from tests.support.model_endpoint import Say


def blocks(*sent: dict[str, Any], finish: str = "end_turn", deltas: Sequence[Any] = (), **more: Any) -> Case:
    """Return a message of the given blocks, streamed and unstreamed; `deltas` replaces the usual stop delta."""
    stop = {"stop_reason": finish, **more}
    begin = {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 3}}}
    starts = [{"type": "content_block_start", "index": at, "content_block": block} for at, block in enumerate(sent)]
    end = [{"type": "message_delta", "delta": stop, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"type": "message", "content": list(sent), "usage": usage, **stop}
    return Case(
        [{"wire": "messages", "events": [begin, *starts, *deltas, *end]}, DONE],
        [{"wire": "messages", "body": whole}, DONE],
    )


def begun(message_id: str, *sent: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a message up to the given blocks."""
    message = {"id": message_id, "content": [], "usage": {"input_tokens": 3}}
    starts = [{"type": "content_block_start", "index": at, "content_block": block} for at, block in enumerate(sent)]
    return [{"type": "message_start", "message": message}, *starts]


def ended(finish: str) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": finish}}, {"type": "message_stop"}]


_HALF = {"type": "text", "text": "Half"}
_USE = {"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "a"}}
_THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "s"}
_USE_B = {"type": "tool_use", "id": "b", "name": "echo", "input": {"text": "b"}}
_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

MESSAGES: dict[str, Case] = {
    "a refusal with its reason": replace(
        blocks(_HALF, finish="refusal", stop_details={"explanation": "not this"}), text="Half", stop=REFUSED
    ),
    "model_context_window_exceeded": replace(
        blocks(_HALF, _USE, finish="model_context_window_exceeded"), text="Half", stop=TRUNCATED
    ),
    "an unknown stop reason": replace(blocks(_HALF, _USE, finish="tired"), text="Half", stop=TRUNCATED),
    "end_turn with a call": replace(blocks(_USE), ran=(A,)),
    "a block nobody knows": replace(blocks({"type": "future", "data": 1}, _HALF), text="Half"),
    "a delta nobody knows": replace(
        blocks(
            _HALF, deltas=[{"type": "content_block_delta", "index": 0, "delta": {"type": "future"}}, {"type": "new"}]
        ),
        text="Half",
    ),
    "a pause": Case(
        [*blocks(_HALF, finish="pause_turn").streamed[:1], *blocks({"type": "text", "text": " more"}).streamed[:1]],
        [*blocks(_HALF, finish="pause_turn").whole[:1], *blocks({"type": "text", "text": " more"}).whole[:1]],
        text="Half more",
    ),
    "a pause without an end": Case(blocks(_HALF, finish="pause_turn").streamed[:1], text="script ends", stop=None),
    "an error": Case(
        [{"wire": "messages", "events": [_OVERLOADED]}],
        [{"wire": "messages", "body": _OVERLOADED}],
        text="Overloaded",
        stop=None,
    ),
    "an error in the middle": same(
        {
            "wire": "messages",
            "events": [{"type": "content_block_start", "index": 0, "content_block": _HALF}, _OVERLOADED],
        },
        text="Overloaded",
        stop=None,
    ),
    "a message that begins anew": same(
        {"wire": "messages", "events": [*begun("msg_1", _THOUGHT, _USE), *begun("msg_2", _USE_B), *ended("tool_use")]},
        DONE,
        ran=(B,),
    ),
    "a message that begins twice under one id": same(
        {"wire": "messages", "events": [*begun("msg_1", _USE), *begun("msg_1"), *ended("tool_use")]}, DONE, ran=(A,)
    ),
    "a message that begins anew behind text": same(
        {"wire": "messages", "events": [*begun("msg_1", _HALF, _USE), *begun("msg_2", _USE_B), *ended("tool_use")]},
        text="a second message began",
        stop=None,
    ),
    "a message behind a pause has an id of its own": same(
        {"wire": "messages", "events": [*begun("msg_1", _HALF), *ended("pause_turn")]},
        {"wire": "messages", "events": [*begun("msg_2", {"type": "text", "text": " more"}), *ended("end_turn")]},
        text="Half more",
    ),
    "cut in the text": same(cut("messages", Say("Half", pieces=1), 4), text="Half", stop=TRUNCATED),
    "cut in a call": same(cut("messages", Say("Half", CALLS), 9), text="Half", stop=TRUNCATED),
    "cut behind whole calls": same(cut("messages", Say("Half", CALLS, pieces=1), 11), text="Half", stop=TRUNCATED),
    "cut before a word": same(cut("messages", Say("Half"), 2), text="broke", stop=None),
}

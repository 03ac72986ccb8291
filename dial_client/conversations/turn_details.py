"""What a turn used and how it ended, stored behind its messages: what was shown while it ran can be shown again.

The data of an entry, of JSON types only; empty fields are left out:

* ``turn``, ``model``, ``stop_reason``, ``depth``, ``usage``, ``notes``: as of the `Turn`;
* ``messages``: the number of messages that the turn has added;
* ``duration_s``: seconds from the start of the turn to its end;
* ``error``: the sentence of the error that ended the turn;
* ``calls``: for each call that has ended ``{"id", "server", "tool", "duration_s"}``, with ``changed_arguments`` where
  an approver has changed them; of a call that the endpoint ran itself, the whole record with ``round``, the number of
  replies with calls before it;
* ``reasoning``: ``{"reply", "text"}`` for each part of the model's reasoning, with the number of messages of the model
  before it.
"""

from __future__ import annotations

from typing import Any

from dial_client.conversations.message_tree import build_entry
from dial_client.messages.message import Message
from dial_client.messages.stored_entry import EntryKind
from dial_client.turn_data.turn_result import ToolCallRecord, Turn
from dial_client.turns.turn_handle import TurnHandle

MAX_REASONING = 200_000
"""Characters of the reasoning of a turn that are stored."""
MAX_NOTES = 100


def build_turn_entry(turn: TurnHandle, result: Turn, model: str) -> Message:
    """Return the message that stores the details of a turn at its end.

    Args:
        turn: the turn, which adds no more messages.
        result: what it has come to.
        model: the name of its model.
    """
    error = turn.failure
    details: dict[str, Any] = {
        "turn": turn.id,
        "model": model,
        "stop_reason": "" if error is not None else result.stop_reason.value,
        "error": str(error) if error is not None else "",
        "messages": len(result.messages),
        "depth": result.depth,
        "duration_s": round(turn.recorder.seconds, 3),
        "usage": result.usage_to_dict() if result.request_usages else {},
        "notes": list(result.notes[:MAX_NOTES]),
        "calls": _describe_calls(turn, result),
        "reasoning": _cut_reasoning(turn.recorder.reasoning),
    }
    return build_entry(EntryKind.TURN, {name: value for name, value in details.items() if value})


def _describe_calls(turn: TurnHandle, result: Turn) -> list[dict[str, Any]]:
    rounds = {id(record): number for number, record in turn.recorder.endpoint_calls}
    return [
        _describe(record) | ({"round": rounds[id(record)]} if id(record) in rounds else {})
        for record in result.tool_calls
    ]


def _describe(record: ToolCallRecord) -> dict[str, Any]:
    if record.by_endpoint:
        return record.to_dict()
    changed = {} if record.changed_arguments is None else {"changed_arguments": dict(record.changed_arguments)}
    ids = {"id": record.call.id, "server": record.server, "tool": record.tool}
    return {**ids, "duration_s": record.duration, **changed}


def _cut_reasoning(parts: tuple[tuple[int, str], ...]) -> list[dict[str, Any]]:
    left, found = MAX_REASONING, []
    for reply, text in parts:
        if left <= 0:
            break
        found.append({"reply": reply, "text": text[:left]})
        left -= len(text)
    return found

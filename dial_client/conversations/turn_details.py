"""Usage, end and calls of a turn, stored after its messages, so that they can be shown again later.

The data of the entry has JSON types only; empty fields are left out:

* ``turn``, ``model``: the id of the turn, and the name of its model;
* ``stop_reason``, ``depth``, ``usage``, ``notes``: the values of the `Turn`;
* ``messages``: the number of messages that the turn has added;
* ``duration_s``: seconds from the start of the turn to its end;
* ``error``: the text of the error that ended the turn;
* ``calls``: ``{"id", "server", "tool", "duration_s"}`` for each finished call, with ``changed_arguments`` if an
  approver changed them. A call that the endpoint ran itself has its whole record and ``round``, the number of earlier
  replies with calls;
* ``reasoning``: ``{"reply", "text"}`` for each part of the model's reasoning; ``reply`` is the number of earlier
  messages of the model.
"""

from __future__ import annotations

from typing import Any

from dial_client.conversations.message_tree import build_entry
from dial_client.messages.message import EntryKind, Message
from dial_client.messages.turn_result import ToolCallRecord, Turn
from dial_client.turns.turn_handle import TurnHandle

MAX_REASONING = 200_000
"""The most characters of a turn's reasoning that are stored."""
MAX_NOTES = 100


def build_turn_entry(turn: TurnHandle, result: Turn, model: str) -> Message:
    """Return the message that stores the details of a turn at its end.

    Args:
        turn: The turn, which adds no more messages.
        result: The result of the turn.
        model: The name of the turn's model.
    """
    error = turn.failure
    details: dict[str, Any] = {
        "turn": turn.id,
        "model": model,
        "stop_reason": "" if error is not None else result.stop_reason.value,
        "error": str(error) if error is not None else "",
        "messages": len(turn.recorder.complete_messages),
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
    remaining, kept_parts = MAX_REASONING, []
    for reply, text in parts:
        if remaining <= 0:
            break
        kept_parts.append({"reply": reply, "text": text[:remaining]})
        remaining -= len(text)
    return kept_parts

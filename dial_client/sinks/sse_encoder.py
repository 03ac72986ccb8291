"""A turn as server-sent events.

Unnamed ``data:`` events in the shape of OpenAI's ``chat.completion.chunk`` carry the text; named events carry the rest:
``status``, ``reasoning`` (what the model thinks aloud), ``tool_call``, ``tool_progress``, ``tool_result``, ``error``,
``done``, and where a person is asked ``approval``, ``approval_done``, ``question``, ``question_done``. The last is
always ``data: [DONE]``.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from dial_client.errors import DialError, LimitReached, ProviderError
from dial_client.events import (
    Event,
    Finished,
    InputReceived,
    InputRequested,
    ReasoningDelta,
    ServerChanged,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.limits import StopReason
from dial_client.logs import get_logger
from dial_client.sinks.completion_chunks import build_chunk
from dial_client.turn_result import Turn

log = get_logger(__name__)

DONE = "data: [DONE]\n\n"

_SAID: Mapping[type, str] = {StatusChanged: "status", ReasoningDelta: "reasoning"}
_ANSWER = {"approval": "decision", "question": "action"}


async def encode(events: AsyncGenerator[Event, None], *, model: str) -> AsyncGenerator[str, None]:
    """Encode a turn's events; each string ends in a blank line. Whatever the turn raises is an ``error`` event."""
    chunk = chunk_of(model, uuid.uuid4().hex)
    try:
        async with aclosing(events):
            async for event in events:
                for line in lines(event, chunk):
                    yield line
    except Exception as error:  # noqa: BLE001 - the reader is owed an end of the stream, whatever was wrong
        for line in last_lines(error, chunk):
            yield line
    yield DONE


def chunk_of(model: str, turn: str) -> dict[str, Any]:
    """Give what all unnamed events of a turn have in common."""
    usual = {"object": "chat.completion.chunk", "created": int(time.time())}
    return {"id": f"chatcmpl-{turn}", **usual, "model": model}


def last_lines(error: Exception, chunk: dict[str, Any]) -> list[str]:
    """Give the server-sent events of what a turn raised, without the last of all."""
    if isinstance(error, LimitReached):
        return lines(Finished(error.turn), chunk)
    return [_named("error", _error(error))]


def lines(event: Event, chunk: dict[str, Any]) -> list[str]:
    """Give the server-sent events of one event: none, one or two."""
    match event:
        case TextDelta(text):
            return [_unnamed(chunk, {"content": text})]
        case StatusChanged(text) | ReasoningDelta(text):
            return [_named(_SAID[type(event)], {"text": text})]
        case ServerChanged(name, status):
            return [_named("status", {"server": name, "state": status})]
        case ToolCallStarted(call, server):
            return [_named("tool_call", call.to_dict() | {"server": server})]
        case ToolCallProgress(id_, progress, total, message):
            about = {"id": id_, "progress": progress, "total": total, "message": message}
            return [_named("tool_progress", about)]
        case ToolCallFinished(result, server, duration):
            return [_named("tool_result", result.to_dict() | {"server": server, "duration_s": round(duration, 4)})]
        case InputRequested(id_, kind, about):
            return [_named(kind, {"id": id_, **about})]
        case InputReceived(id_, kind, answer):
            return [_named(f"{kind}_done", {"id": id_, _ANSWER.get(kind, "answer"): answer})]
        case Finished(turn):
            return [_unnamed(chunk, {}, turn.stop_reason), _named("done", _summary(turn))]
        case _:
            return []


def _unnamed(head: dict[str, Any], delta: dict[str, str], stop_reason: StopReason | None = None) -> str:
    return f"data: {to_json(build_chunk(head, delta, stop_reason))}\n\n"


def _named(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {to_json(data)}\n\n"


def to_json(data: Any) -> str:
    """Write JSON in ASCII, as what models and servers say may hold lone surrogates; null for what is no number."""
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data), separators=(",", ":"))


def _finite(value: Any) -> Any:
    """Give the same with null for NaN and infinities, which models and servers send and JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary(turn: Turn) -> dict[str, Any]:
    return {
        "stop_reason": turn.stop_reason.value,
        "depth": turn.depth,
        "usage": turn.billed(),
        "notes": list(turn.notes),
    }


def _error(error: Exception) -> dict[str, Any]:
    if not isinstance(error, DialError):
        log.warning("stream_broke", error=type(error).__name__)
        return {"message": "something unexpected went wrong", "type": type(error).__name__}
    said: dict[str, Any] = {"message": str(error), "type": type(error).__name__}
    if isinstance(error, ProviderError):
        said |= {"status": error.status, "code": error.code}
    return said

"""A turn as server-sent events.

Unnamed ``data:`` events in the form of OpenAI's ``chat.completion.chunk`` contain the text. All other content is in
named events: ``status``, ``reasoning``, ``tool_call``, ``app``, ``tool_progress``, ``tool_result``, ``agent``,
``agent_event``, ``media`` (images and files of the answer), ``output`` (a typed answer so far), ``error``, ``done``
(with the citations of the text in the form of `Citation.to_dict`), and for requests to the user ``approval``,
``approval_done``, ``question`` and ``question_done``. The last event is always ``data: [DONE]``.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from dial_client.messages.errors import DialError, LimitReached, ProviderError
from dial_client.messages.events import (
    AgentChanged,
    AgentEvent,
    AppOpened,
    Event,
    Finished,
    InputReceived,
    InputRequested,
    MessageCompleted,
    OutputDelta,
    ReasoningDelta,
    ServerChanged,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.messages.late_result import read_late_result
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Role, TextPart, content_to_json
from dial_client.messages.turn_result import Turn, output_to_json
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

DONE = "data: [DONE]\n\n"

_TEXT_EVENTS: Mapping[type, str] = {StatusChanged: "status", ReasoningDelta: "reasoning"}
_ANSWER = {"approval": "decision", "question": "action"}
_FINISH_REASONS: Mapping[StopReason, str] = {
    StopReason.ANSWERED: "stop",
    StopReason.CLIENT_TOOL_CALLS: "tool_calls",
    StopReason.REFUSED: "content_filter",
}


async def encode(events: AsyncGenerator[Event, None], *, model: str) -> AsyncGenerator[str, None]:
    """Yield a turn's events as strings that end in a blank line; an error of the turn becomes an ``error`` event."""
    head = build_head(model, secrets.token_hex(16))
    try:
        async with aclosing(events):
            async for event in events:
                for line in encode_event(event, head):
                    yield line
    except Exception as error:  # noqa: BLE001 - the stream needs an end after any error
        for line in encode_error(error, head):
            yield line
    yield DONE


def build_head(model: str, turn: str) -> dict[str, Any]:
    """Return the fields that all chunks of a turn share."""
    created = int(time.time())
    return {"id": f"chatcmpl-{turn}", "object": "chat.completion.chunk", "created": created, "model": model}


def encode_error(error: Exception, head: dict[str, Any]) -> list[str]:
    """Return the server-sent events of a turn's error, without ``[DONE]``."""
    if isinstance(error, LimitReached):
        return encode_event(Finished(error.turn), head)
    return [encode_named("error", describe_error(error))]


def encode_event(event: Event, head: dict[str, Any]) -> list[str]:
    """Return the server-sent events of one event: none, one or two."""
    match event:
        case TextDelta(text):
            return [_encode_unnamed(head, {"content": text})]
        case StatusChanged(text) | ReasoningDelta(text):
            return [encode_named(_TEXT_EVENTS[type(event)], {"text": text})]
        case ServerChanged(name, status):
            return [encode_named("status", {"server": name, "state": status})]
        case ToolCallStarted() | ToolCallFinished() | AgentEvent():
            return [encode_named(*_describe_call(event))]
        case ToolCallProgress(id_, progress, total, message):
            state = {"id": id_, "progress": progress, "total": total, "message": message}
            return [encode_named("tool_progress", state)]
        case InputRequested(id_, kind, details):
            return [encode_named(kind, {"id": id_, **details})]
        case InputReceived(id_, kind, answer):
            return [encode_named(f"{kind}_done", {"id": id_, _ANSWER.get(kind, "answer"): answer})]
        case Finished(turn):
            return [_encode_unnamed(head, {}, turn.stop_reason), encode_named("done", _summarize_turn(turn))]
        case _:
            return _encode_content(event)


def _describe_call(event: ToolCallStarted | ToolCallFinished | AgentEvent) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of the event of a call, or of an agent: the name and the data of its own event."""
    if isinstance(event, AgentEvent):
        name, data = _describe_call(event.event)
        return "agent_event", {"id": event.call_id, "agent": event.agent, "event": name, "data": data}
    if isinstance(event, ToolCallStarted):
        mark: dict[str, Any] = {"by_endpoint": True} if event.by_endpoint else {}
        mark |= {"parent": event.parent} if event.parent else {}
        return "tool_call", event.call.to_dict() | {"server": event.server} | mark
    changed = {} if event.changed_tool is None else {"changed_tool": event.changed_tool}
    state = {"server": event.server, "duration_s": round(event.duration, 4), **changed}
    return "tool_result", event.result.to_dict() | state


def _encode_content(event: Event) -> list[str]:
    """Return the event of an agent, an app or a typed answer, or the files of a model's message; empty for others."""
    if isinstance(event, AgentChanged):
        return [encode_named("agent", {"agent": event.agent})]
    if isinstance(event, AppOpened):
        return [encode_named("app", event.app.to_dict())]
    if isinstance(event, OutputDelta):
        return [encode_named("output", {"output": output_to_json(event.output)})]
    if not isinstance(event, MessageCompleted):
        return []
    if (late := read_late_result(event.message)) is not None:
        return [encode_named("late_result", late.to_dict())]
    if event.message.role is not Role.ASSISTANT:
        return []
    content = event.message.content
    media = tuple(part for part in ([] if isinstance(content, str) else content) if not isinstance(part, TextPart))
    return [encode_named("media", {"content": content_to_json(media)})] if media else []


def _encode_unnamed(head: dict[str, Any], delta: dict[str, str], stop_reason: StopReason | None = None) -> str:
    return f"data: {to_json(build_chunk(head, delta, stop_reason))}\n\n"


def encode_named(name: str, data: Mapping[str, Any]) -> str:
    """Return a server-sent event with a name, and data in JSON."""
    return f"event: {name}\ndata: {to_json(data)}\n\n"


def to_json(data: Any) -> str:
    """Return JSON in ASCII, because texts may contain lone surrogates; NaN and infinities become null."""
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_replace_non_finite(data), separators=(",", ":"))


def _replace_non_finite(value: Any) -> Any:
    """Return the value with NaN and infinities, which JSON does not allow, replaced by None."""
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summarize_turn(turn: Turn) -> dict[str, Any]:
    """Return what is sent of a finished turn; its citations with the length of the text that their spans refer to."""
    state: dict[str, Any] = {"stop_reason": turn.stop_reason.value, "depth": turn.depth}
    state |= {"usage": turn.usage_to_dict(), "notes": list(turn.notes)}
    if turn.citations:
        state |= {"citations": [citation.to_dict() for citation in turn.citations], "text_chars": len(turn.text)}
    return state


def describe_error(error: Exception) -> dict[str, Any]:
    """Return an error in JSON types: message, type, and status and code if it is of the model's endpoint."""
    if not isinstance(error, DialError):
        log.debug("stream_broke", error=type(error).__name__)
        return {"message": "the turn failed with an unexpected error: see the log", "type": type(error).__name__}
    fields: dict[str, Any] = {"message": str(error), "type": type(error).__name__}
    if isinstance(error, ProviderError):
        fields |= {"status": error.status, "code": error.code}
    return fields


def finish_reason(stop_reason: StopReason) -> str:
    """Return the ``finish_reason`` of a turn; ``length`` for all turns without a complete answer."""
    return _FINISH_REASONS.get(stop_reason, "length")


def build_chunk(
    head: Mapping[str, Any], delta: Mapping[str, Any], stop_reason: StopReason | None = None
) -> dict[str, Any]:
    """Return one chunk.

    Args:
        head: The fields that all chunks of a completion share.
        delta: The fields that the chunk adds to the message.
        stop_reason: The reason why the turn ended; None for all chunks but the last.
    """
    reason = None if stop_reason is None else finish_reason(stop_reason)
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**head, "choices": [choice]}

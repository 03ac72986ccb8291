"""A turn as the events of AG-UI 1.0, as its `HttpAgent` reads them.

A run that waits for a person ends with the outcome ``interrupt``; the run that answers goes on with the turn. What the
protocol has no event for is in ``CUSTOM`` events with the names of `messages.events`: ``status``, ``server``,
``tool_progress``, ``app``, ``output``, ``media``, ``citations``, ``late_result``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.messages.errors import LimitReached, ProviderError
from dial_client.messages.events import (
    AppOpened,
    Event,
    Finished,
    MessageCompleted,
    OutputDelta,
    ReasoningDelta,
    RoundStarted,
    ServerChanged,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.messages.late_result import read_late_result
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, Role, TextPart, content_to_json
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn, output_to_json
from dial_client.sinks.ai_sdk_stream import describe_turn
from dial_client.sinks.sse_encoder import describe_error, to_json
from dial_client.sinks.turn_frames import APPROVAL, Bracket, TurnFrames, Waiting, encode_data

# The answer that an interrupt for approval expects.
_APPROVAL_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "decision": {"enum": ["once", "session", "conversation", "always", "deny"]},
        "reason": {"type": "string"},
        "editedArgs": {"type": "object"},
    },
    "required": ["approved"],
}
_FORMS: Mapping[str, str] = {"text": "TEXT_MESSAGE", "reasoning": "REASONING_MESSAGE"}

AgUiEvent = dict[str, Any]


class AgUiEncoder:
    """Encodes the events of one turn; a `turn_frames.TurnEncoder`.

    Args:
        turn: The id of the turn.
        thread: The id of the thread, and `run` that of the run, as the front end knows them.
        run: The id of the run.
    """

    def __init__(self, turn: str, thread: str, run: str) -> None:
        self.frames = TurnFrames(turn, pauses_for_questions=True)
        self._ids = {"threadId": thread, "runId": run}
        self._step = ""

    def begin(self) -> str:
        """Return the start of the run, and of the step in which it goes on."""
        self._step = ""
        return encode_data({"type": "RUN_STARTED", **self._ids})

    def encode(self, event: Event, position: int = 0) -> str:
        """Return the AG-UI events of an event."""
        brackets = self.frames.follow(event, position)
        encoded = [part for bracket in brackets for part in _to_events(bracket)]
        return "".join(encode_data(part) for part in (*encoded, *self._to_events(event)))

    def pause(self) -> str:
        """Return the end of a run that asks: the next run has the answers."""
        interrupts = [self._to_interrupt(waiting) for waiting in self.frames.waiting.values()]
        return self._close({"type": "RUN_FINISHED", **self._ids, "outcome": _outcome("interrupt", interrupts)})

    def end(self, error: Exception | None = None) -> str:
        """Return the end of a run that failed; nothing after any other."""
        if isinstance(error, LimitReached):
            return self.encode(Finished(error.turn))
        if error is None:
            return ""
        code = error.code if isinstance(error, ProviderError) and error.code else type(error).__name__
        return self._close({"type": "RUN_ERROR", "message": describe_error(error)["message"], "code": code})

    def _close(self, last: AgUiEvent) -> str:
        closing = [part for bracket in self.frames.close() for part in _to_events(bracket)]
        return "".join(encode_data(part) for part in (*closing, *self._end_step(), last))

    def _end_step(self) -> list[AgUiEvent]:
        step, self._step = self._step, ""
        return [{"type": "STEP_FINISHED", "stepName": step}] if step else []

    def _to_events(self, event: Event) -> Iterator[AgUiEvent]:
        match event:
            case RoundStarted(depth):
                yield from self._end_step()
                self._step = f"round {depth + 1}"
                yield {"type": "STEP_STARTED", "stepName": self._step}
            case TextDelta(text) | ReasoningDelta(text):
                form = _FORMS["text" if isinstance(event, TextDelta) else "reasoning"]
                if text:
                    yield {"type": f"{form}_CONTENT", "messageId": self.frames.open_id, "delta": text}
            case ToolCallStarted():
                yield from self._to_call(event)
            case ToolCallFinished():
                yield self._to_result(event)
            case Finished(turn):
                yield from self._to_finish(turn)
            case _:
                for name, value in self._to_custom(event):
                    yield {"type": "CUSTOM", "name": name, "value": value}

    def _to_call(self, event: ToolCallStarted) -> Iterator[AgUiEvent]:
        ids = {"toolCallId": self.frames.find_call_id(event.call.id)}
        names = {"metadata": {"dial": {"server": event.server, "tool": event.tool or event.call.name}}}
        yield {"type": "TOOL_CALL_START", **ids, "toolCallName": event.call.name, **names}
        yield {"type": "TOOL_CALL_ARGS", **ids, "delta": to_json(event.call.arguments)}
        yield {"type": "TOOL_CALL_END", **ids}

    def _to_result(self, event: ToolCallFinished) -> AgUiEvent:
        result = event.result
        id_ = self.frames.find_call_id(result.tool_call_id)
        content = result.content if isinstance(result.content, str) else to_json(content_to_json(result.content))
        state = {"success": result.success, "error": result.error, "durationS": round(event.duration, 4)}
        ids = {"messageId": f"{id_}-result", "toolCallId": id_, "role": "tool"}
        return {"type": "TOOL_CALL_RESULT", **ids, "content": content, "metadata": {"dial": state}}

    def _to_custom(self, event: Event) -> Iterator[tuple[str, Any]]:
        match event:
            case StatusChanged(text):
                yield "status", {"text": text}
            case ServerChanged(name, status):
                yield "server", {"name": name, "state": status}
            case ToolCallProgress(id_, progress, total, message):
                state = {"progress": progress, "total": total, "message": message}
                yield "tool_progress", {"toolCallId": self.frames.find_call_id(id_), **state}
            case AppOpened(app):
                yield "app", app.to_dict()
            case OutputDelta(output):
                yield "output", {"output": output_to_json(output)}
            case MessageCompleted(message) if message.role is Role.ASSISTANT:
                yield from _to_sources(message)
            case MessageCompleted(message) if (late := read_late_result(message)) is not None:
                yield "late_result", late.to_dict()
            case _:
                return

    def _to_interrupt(self, waiting: Waiting) -> AgUiEvent:
        about = waiting.request.about
        if waiting.request.kind == APPROVAL:
            call_id = self.frames.find_call_id(about["call"]["id"])
            message = f"{about['names']['server']}: may {about['names']['tool']} run?"
            what = {"reason": "tool_call", "toolCallId": call_id, "responseSchema": _APPROVAL_SCHEMA}
        else:
            message, schema = about["message"], about.get("schema")
            what = {"reason": "input_required", **({"responseSchema": schema} if schema else {})}
        return {"id": waiting.id, "message": message, **what, "metadata": {"dial": dict(about)}}

    def _to_finish(self, turn: Turn) -> Iterator[AgUiEvent]:
        yield from self._end_step()
        outcome = _outcome("cancelled" if turn.stop_reason is StopReason.CANCELLED else "success")
        usage = {"usage": [_to_usage(turn.usage)]}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "result": describe_turn(turn), **usage}


def _outcome(kind: str, interrupts: list[AgUiEvent] | None = None) -> AgUiEvent:
    return {"type": kind, **({"interrupts": interrupts} if interrupts is not None else {})}


def _to_usage(usage: Usage) -> dict[str, int]:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
    }


def _to_sources(message: Message) -> Iterator[tuple[str, Any]]:
    parts = () if isinstance(message.content, str) else message.content
    if media := tuple(part for part in parts if not isinstance(part, TextPart)):
        yield "media", {"content": content_to_json(media)}
    if message.citations:
        yield "citations", [citation.to_dict() for citation in message.citations]


def _to_events(bracket: Bracket) -> list[AgUiEvent]:
    """Return the beginning or the end of a text; reasoning has a span around its message."""
    form, ids = _FORMS[bracket.kind], {"messageId": bracket.id}
    if bracket.kind == "text":
        return [
            {"type": f"{form}_START", **ids, "role": "assistant"} if bracket.opens else {"type": f"{form}_END", **ids}
        ]
    span = {"messageId": f"{bracket.id}-span"}
    if bracket.opens:
        return [{"type": "REASONING_START", **span}, {"type": f"{form}_START", **ids, "role": "reasoning"}]
    return [{"type": f"{form}_END", **ids}, {"type": "REASONING_END", **span}]

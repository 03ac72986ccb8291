"""A turn as the UI message stream of Vercel's AI SDK (data stream protocol v1), as `useChat` reads it.

Calls are dynamic tools that the provider executes: the front end must not run them. Those of its own tools, with which
a turn ends, are neither; the turn that has their results goes on in the same message. Those of agents and of programs
of the model are parts as well, whose metadata name the call that makes them. What the protocol has no part for
is in data parts: ``data-status``, ``data-server`` and ``data-tool-progress``, which no message keeps; ``data-app``,
``data-output`` (a typed answer so far), ``data-late-result`` (of a call in the background),
``data-approval`` (the details of a call to approve) and ``data-question``.
The metadata of the message are those of the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dial_client.messages.errors import LimitReached
from dial_client.messages.events import (
    AgentEvent,
    AppOpened,
    Event,
    Finished,
    InputReceived,
    InputRequested,
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
from dial_client.messages.message import Failure, Message, Role, TextPart, content_to_json
from dial_client.messages.turn_result import Turn, output_to_json
from dial_client.sinks.sse_encoder import DONE, describe_error
from dial_client.sinks.turn_frames import Bracket, CallPath, TurnFrames, Waiting, encode_data, find_asked, unwrap

HEADERS: Mapping[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}

_FINISH_REASONS: Mapping[StopReason, str] = {
    StopReason.ANSWERED: "stop",
    StopReason.CLIENT_TOOL_CALLS: "tool-calls",
    StopReason.AWAITING_APPROVAL: "tool-calls",
    StopReason.REFUSED: "content-filter",
}

Chunk = dict[str, Any]
_BY_US: Chunk = {"dynamic": True, "providerExecuted": True}
# The result of the call of an agent or a program, one of whose calls waits for approval.
_WAITS = "One of its calls waits for approval."


class AiSdkEncoder:
    """Encodes the events of one turn; a `turn_frames.TurnEncoder`.

    Args:
        turn: The id of the turn, which is also that of the message.
        metadata: Metadata of the message, besides those of the turn.
        names: The front end's names of its tools, by the names that the model gets, for those that differ.
        continues: Whether the turn goes on in the front end's last message.
    """

    def __init__(
        self,
        turn: str,
        metadata: Mapping[str, Any] | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
        *,
        continues: bool = False,
    ) -> None:
        self._names, self._continues = names, continues
        self.frames = TurnFrames(turn)
        self._metadata = dict(metadata or {})
        self._has_step = False
        # The calls that a person was asked about: only those can be shown as denied.
        self._asked: set[str] = set()

    def begin(self) -> str:
        """Return the start of the message."""
        self._has_step = False
        metadata = {"messageMetadata": self._metadata} if self._metadata else {}
        message = {} if self._continues else {"messageId": self.frames.turn}
        return encode_data({"type": "start", **message, **metadata})

    def encode(self, event: Event, position: int = 0) -> str:
        """Return the chunks of an event."""
        brackets = self.frames.follow(event, position)
        chunks = [_to_chunk(bracket) for bracket in brackets] + list(self._to_chunks(event))
        return "".join(encode_data(chunk) for chunk in chunks)

    def pause(self) -> str:
        """Return the end of a response whose calls wait for approval: the next request has the decisions."""
        # The AI SDK sends the answers once no call of the step runs: one that only waits for calls of its own has this
        # result until it has its own.
        results = [
            {"type": "tool-output-available", "toolCallId": self.frames.calls[path].id, "output": _WAITS, **_BY_US}
            for path in sorted(self.frames.find_callers())
        ]
        finish = self._close({"type": "finish", "finishReason": "tool-calls"})
        return "".join(map(encode_data, results)) + finish

    def end(self, error: Exception | None = None) -> str:
        """Return the end of the response."""
        if isinstance(error, LimitReached):
            return self.encode(Finished(error.turn)) + DONE
        if error is not None:
            return self._close({"type": "error", "errorText": describe_error(error)["message"]})
        return DONE

    def _close(self, last: Chunk) -> str:
        chunks = [*(_to_chunk(bracket) for bracket in self.frames.close()), *self._end_step(), last]
        return "".join(encode_data(chunk) for chunk in chunks) + DONE

    def _end_step(self) -> list[Chunk]:
        had_step, self._has_step = self._has_step, False
        return [{"type": "finish-step"}] if had_step else []

    def _to_chunks(self, event: Event) -> Iterator[Chunk]:
        match event:
            case RoundStarted():
                yield from self._end_step()
                self._has_step = True
                yield {"type": "start-step"}
            case TextDelta(text):
                yield {"type": "text-delta", "id": self.frames.open_id, "delta": text}
            case ReasoningDelta(text):
                yield {"type": "reasoning-delta", "id": self.frames.open_id, "delta": text}
            case MessageCompleted(message) if message.role is Role.ASSISTANT:
                yield from self._to_sources(message)
            case ToolCallStarted() | ToolCallFinished() | AgentEvent():
                yield self._to_call(event)
            case InputRequested(id_, "approval", about):
                yield from self._to_approval(self.frames.waiting[id_], about)
            case Finished(turn):
                yield from self._to_finish(turn)
            case _:
                yield from self._to_data(event)

    def _to_call(self, event: ToolCallStarted | ToolCallFinished | AgentEvent) -> Chunk:
        inner, path, _ = unwrap(event)
        if isinstance(inner, ToolCallFinished):
            return self._to_result(inner, path)
        assert isinstance(inner, ToolCallStarted)
        call = inner.call
        names = {"server": inner.server, "tool": inner.tool or call.name}
        return {
            "type": "tool-input-available",
            "toolCallId": self.frames.find_call_id(*path, call.id),
            "toolName": call.name,
            "input": call.arguments,
            **_BY_US,
            "providerMetadata": {"dial": names | describe_caller(self.frames, (*path, call.id))},
        }

    def _to_result(self, event: ToolCallFinished, path: CallPath) -> Chunk:
        result = event.result
        ids = {"toolCallId": self.frames.find_call_id(*path, result.tool_call_id)}
        if result.success:
            output = result.content if isinstance(result.content, str) else content_to_json(result.content)
            return {"type": "tool-output-available", **ids, "output": output, **_BY_US}
        if result.failure is Failure.DENIED and ids["toolCallId"] in self._asked:
            return {"type": "tool-output-denied", **ids}
        return {"type": "tool-output-error", **ids, "errorText": result.error or "the call failed", **_BY_US}

    def _to_approval(self, waiting: Waiting, about: Mapping[str, Any]) -> Iterator[Chunk]:
        shown_id = self.frames.find_call_id(*find_asked(waiting.request))
        self._asked.add(shown_id)
        # First the details: the front end may ask as soon as it has the request.
        yield {"type": "data-approval", "id": waiting.id, "data": {"toolCallId": shown_id, **about}}
        if shown_id:  # a server's request for an answer of the model is no call
            yield {"type": "tool-approval-request", "approvalId": waiting.id, "toolCallId": shown_id}

    def _to_sources(self, message: Message) -> Iterator[Chunk]:
        """Yield the images, files and web pages of an answer."""
        parts = () if isinstance(message.content, str) else message.content
        for part in parts:
            if not isinstance(part, TextPart):
                url = f"data:{part.mime_type};base64,{part.data}"
                yield {"type": "file", "url": url, "mediaType": part.mime_type}
        for url, citation in {citation.url: citation for citation in message.citations if citation.url}.items():
            title = {"title": citation.title} if citation.title else {}
            yield {"type": "source-url", "sourceId": citation.source, "url": url, **title}

    def _to_data(self, event: Event) -> Iterator[Chunk]:
        match event:
            case StatusChanged(text):
                yield {"type": "data-status", "data": {"text": text}, "transient": True}
            case ServerChanged(name, status):
                yield {"type": "data-server", "data": {"name": name, "state": status}, "transient": True}
            case ToolCallProgress(id_, progress, total, message):
                state = {"progress": progress, "total": total, "message": message}
                data = {"toolCallId": self.frames.find_call_id(id_), **state}
                yield {"type": "data-tool-progress", "data": data, "transient": True}
            case AppOpened(app):
                yield {"type": "data-app", "data": app.to_dict()}
            case MessageCompleted(message) if (late := read_late_result(message)) is not None:
                yield {"type": "data-late-result", "data": late.to_dict()}
            case OutputDelta(output):
                data = {"output": output_to_json(output)}
                yield {"type": "data-output", "id": f"{self.frames.turn}-output", "data": data}
            case InputRequested(id_, kind, about):
                yield {"type": f"data-{kind}", "id": id_, "data": {"id": id_, **about}}
            case InputReceived(id_, "question", answer):
                yield {"type": "data-question", "id": id_, "data": {"id": id_, "answer": answer}}
            case _:
                return

    def _to_finish(self, turn: Turn) -> Iterator[Chunk]:
        for id_, call in self.frames.list_client_calls(turn):
            chunk = {"toolCallId": id_, "toolName": self._names.get(call.name, call.name)}
            if call.unreadable:
                text = "the arguments of the call are not a JSON object"
                yield {"type": "tool-input-error", **chunk, "input": call.unreadable, "errorText": text}
            else:
                yield {"type": "tool-input-available", **chunk, "input": call.arguments}
        yield from self._end_step()
        metadata = describe_turn(turn) | self._metadata
        if turn.stop_reason is StopReason.CANCELLED:
            yield {"type": "message-metadata", "messageMetadata": metadata}
            yield {"type": "abort"}
        else:
            reason = _FINISH_REASONS.get(turn.stop_reason, "length")
            yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}


def describe_caller(frames: TurnFrames, path: CallPath) -> dict[str, str]:
    """Return who makes a call of an agent or of a program: the agent, and the id of the call that makes it."""
    call = frames.calls[path]
    agent = {"agent": call.agent} if call.agent else {}
    return {**agent, "parent": frames.find_call_id(*call.parent)} if call.parent else {}


def describe_turn(turn: Turn) -> dict[str, Any]:
    """Return what a front end shows of a finished turn: why it ended, its usage and its notes."""
    return {"stopReason": turn.stop_reason.value, "usage": turn.usage_to_dict(), "notes": list(turn.notes)}


def _to_chunk(bracket: Bracket) -> Chunk:
    return {"type": f"{bracket.kind}-{'start' if bracket.opens else 'end'}", "id": bracket.id}

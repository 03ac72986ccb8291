"""A turn as the events of AG-UI 1.0, as its `HttpAgent` reads them.

A run that waits for a person ends with the outcome ``interrupt``; the run that answers goes on with the turn. A run
that calls tools of the front end ends with these calls; the run that has their results is a turn of its own. Agents
are subagents from their first call on, and their calls carry the id of their run. What the protocol has no event for is
in ``CUSTOM`` events with the names of `messages.events`: ``status``, ``server``, ``tool_progress``, ``app``,
``output``, ``media``, ``citations``, ``late_result``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dial_client.messages.errors import LimitReached, ProviderError
from dial_client.messages.events import (
    AgentEvent,
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
from dial_client.messages.message import PATH_SEPARATOR, Message, Role, TextPart, content_to_json
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn, output_to_json
from dial_client.sinks.ai_sdk_stream import describe_caller, describe_turn
from dial_client.sinks.sse_encoder import describe_error, to_json
from dial_client.sinks.turn_frames import (
    APPROVAL,
    Bracket,
    CallPath,
    TurnFrames,
    Waiting,
    encode_data,
    find_asked,
    unwrap,
)

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
        names: The front end's names of its tools, by the names that the model gets, for those that differ.
    """

    def __init__(self, turn: str, thread: str, run: str, names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names = names
        self.frames = TurnFrames(turn, pauses_for_questions=True)
        self._ids = {"threadId": thread, "runId": run}
        self._step = ""
        # The agents that have called something and have not ended, by the paths of their calls: what starts each.
        self._agents: dict[CallPath, AgUiEvent] = {}

    def begin(self) -> str:
        """Return the start of the run, and of the agents that go on in it."""
        self._step = ""
        return "".join(map(encode_data, ({"type": "RUN_STARTED", **self._ids}, *self._agents.values())))

    def encode(self, event: Event, position: int = 0) -> str:
        """Return the AG-UI events of an event."""
        brackets = self.frames.follow(event, position)
        encoded = [part for bracket in brackets for part in _to_events(bracket)]
        return "".join(encode_data(part) for part in (*encoded, *self._to_events(event)))

    def pause(self) -> str:
        """Return the end of a run that asks: the next run has the answers."""
        interrupts = [self._to_interrupt(waiting) for waiting in self.frames.waiting.values()]
        suspended = [
            {
                "type": "SUBAGENT_FINISHED",
                **ids,
                "outcome": {"type": "suspended", "interruptIds": _select(interrupts, ids)},
            }
            for ids in map(self._find_agent, reversed(self._agents))
        ]
        outcome = _outcome("interrupt", interrupts)
        return self._close(*suspended, {"type": "RUN_FINISHED", **self._ids, "outcome": outcome})

    def end(self, error: Exception | None = None) -> str:
        """Return the end of a run that failed; nothing after any other."""
        if isinstance(error, LimitReached):
            return self.encode(Finished(error.turn))
        if error is None:
            return ""
        code = error.code if isinstance(error, ProviderError) and error.code else type(error).__name__
        return self._close({"type": "RUN_ERROR", "message": describe_error(error)["message"], "code": code})

    def _close(self, *last: AgUiEvent) -> str:
        closing = [part for bracket in self.frames.close() for part in _to_events(bracket)]
        return "".join(encode_data(part) for part in (*closing, *self._end_step(), *last))

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
            case ToolCallStarted() | ToolCallFinished() | AgentEvent():
                yield from self._to_call(event)
            case Finished(turn):
                yield from self._to_finish(turn)
            case _:
                for name, value in self._to_custom(event):
                    yield {"type": "CUSTOM", "name": name, "value": value}

    def _to_call(self, event: ToolCallStarted | ToolCallFinished | AgentEvent) -> Iterator[AgUiEvent]:
        inner, path, agent = unwrap(event)
        names = agent.split(PATH_SEPARATOR)[-len(path) :]
        for level, name in enumerate(names[: len(path)], 1):
            yield from self._start_agent(path[:level], name)
        if isinstance(inner, ToolCallFinished):
            yield from self._to_result(inner, path)
        elif isinstance(inner, ToolCallStarted):
            call, path_of_call = inner.call, (*path, inner.call.id)
            ids = {"toolCallId": self.frames.find_call_id(*path_of_call), **self._find_agent(path)}
            about = {"server": inner.server, "tool": inner.tool or call.name}
            metadata = {"dial": about | describe_caller(self.frames, path_of_call)}
            yield {"type": "TOOL_CALL_START", **ids, "toolCallName": call.name, "metadata": metadata}
            yield {"type": "TOOL_CALL_ARGS", **ids, "delta": to_json(call.arguments)}
            yield {"type": "TOOL_CALL_END", **ids}

    def _start_agent(self, path: CallPath, name: str) -> Iterator[AgUiEvent]:
        if path in self._agents:
            return
        parent = {"parentSubagentRunId": self._find_agent(path[:-1])["subagentRunId"]} if path[:-1] else {}
        ids = {**self._find_agent(path), **parent, "parentToolCallId": self.frames.find_call_id(*path)}
        self._agents[path] = {"type": "SUBAGENT_STARTED", **ids, "name": name}
        yield self._agents[path]

    def _find_agent(self, path: CallPath) -> dict[str, str]:
        """Return the tag of what an agent does, whose run has the id of its call; empty for the turn itself."""
        return {"subagentRunId": self.frames.find_call_id(*path)} if path else {}

    def _to_result(self, event: ToolCallFinished, path: CallPath) -> Iterator[AgUiEvent]:
        result, path_of_call = event.result, (*path, event.result.tool_call_id)
        id_ = self.frames.find_call_id(*path_of_call)
        if self._agents.pop(path_of_call, None) is not None:
            problem = {} if result.success else {"message": result.error or "the agent failed"}
            yield {
                "type": "SUBAGENT_ERROR" if problem else "SUBAGENT_FINISHED",
                **self._find_agent(path_of_call),
                **problem,
            }
        content = result.content if isinstance(result.content, str) else to_json(content_to_json(result.content))
        state = {"success": result.success, "error": result.error, "durationS": round(event.duration, 4)}
        ids = {"messageId": f"{id_}-result", "toolCallId": id_, "role": "tool", **self._find_agent(path)}
        yield {"type": "TOOL_CALL_RESULT", **ids, "content": content, "metadata": {"dial": state}}

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
            path = find_asked(waiting.request)
            message = f"{about['names']['server']}: may {about['names']['tool']} run?"
            call = {"toolCallId": self.frames.find_call_id(*path), **self._find_agent(path[:-1])}
            what = {"reason": "tool_call", **call, "responseSchema": _APPROVAL_SCHEMA}
        else:
            message, schema = about["message"], about.get("schema")
            what = {"reason": "input_required", **({"responseSchema": schema} if schema else {})}
        return {"id": waiting.id, "message": message, **what, "metadata": {"dial": dict(about)}}

    def _to_finish(self, turn: Turn) -> Iterator[AgUiEvent]:
        calls = self.frames.list_client_calls(turn)
        for id_, call in calls:
            ids, arguments = {"toolCallId": id_}, call.unreadable or to_json(call.arguments)
            yield {"type": "TOOL_CALL_START", **ids, "toolCallName": self._names.get(call.name, call.name)}
            yield {"type": "TOOL_CALL_ARGS", **ids, "delta": arguments}
            yield {"type": "TOOL_CALL_END", **ids}
        yield from self._end_step()
        outcome = _outcome("cancelled" if turn.stop_reason is StopReason.CANCELLED else "success")
        if calls:
            outcome["pendingToolCallIds"] = [id_ for id_, _ in calls]
        usage = {"usage": [_to_usage(turn.usage)]}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "result": describe_turn(turn), **usage}


def _select(interrupts: list[AgUiEvent], agent: Mapping[str, str]) -> list[str]:
    """Return the ids of the interrupts that an agent has raised itself."""
    return [asked["id"] for asked in interrupts if asked.get("subagentRunId") == agent["subagentRunId"]]


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

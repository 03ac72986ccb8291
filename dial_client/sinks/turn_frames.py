"""The events of a turn with the beginnings and ends of its texts, for the streams of front ends.

Those streams bracket each text, and end where a person has to answer: the next request has the answer, and its stream
goes on. A stream that goes on is built from all events of the turn again, so that any process can write it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, Protocol

from dial_client.messages.events import (
    AgentEvent,
    Event,
    InputReceived,
    InputRequested,
    ReasoningDelta,
    RoundStarted,
    ServerChanged,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.messages.limits import StopReason
from dial_client.messages.message import ToolCallRequest
from dial_client.messages.turn_result import Turn
from dial_client.sinks.sse_encoder import to_json

# The kind of a request that has a call, see `InputRequested`.
APPROVAL = "approval"


class TurnEncoder(Protocol):
    """Encodes the events of one turn as the server-sent events of a front end."""

    @property
    def frames(self) -> TurnFrames:
        """What is open in the turn."""

    def begin(self) -> str:
        """Return what begins a stream: the first of a turn, or one that goes on."""

    def encode(self, event: Event, position: int = 0) -> str:
        """Return an event of the turn at a position of its log; empty for events that are not sent."""

    def pause(self) -> str:
        """Return the end of a stream whose turn waits for a person."""

    def end(self, error: Exception | None = None) -> str:
        """Return the end of a stream after the turn's last event, or after its error."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """The beginning or the end of a text."""

    kind: Literal["text", "reasoning"]
    id: str
    """Unique in the conversation."""
    opens: bool


# The ids of the calls that lead to a call, and its own. An id of a model is unique in a round of its turn only.
CallPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallPart:
    """A call as it is shown: of the model, of a program of the model, or of an agent."""

    id: str
    """Unique in the conversation."""
    parent: CallPath = ()
    """The call that makes this one; empty for a call of the model."""
    agent: str = ""
    """The path of the agent that makes the call, ``main > reviewer``; empty for the turn itself."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request to a person, and the position in the log at which it was made."""

    request: InputRequested
    position: int

    @property
    def id(self) -> str:
        """The id for the front end, from which a stream that goes on finds its place: `parse_request_id`."""
        return f"{self.request.id}.{self.position}"


def unwrap(event: Event) -> tuple[Event, CallPath, str]:
    """Return the event of an agent's turn, the calls of the agents that lead to it, and the path of the agent.

    Any other event is returned as it is, with two empty paths.
    """
    calls, agent, inner = list[str](), "", event
    while isinstance(inner, AgentEvent):
        calls.append(inner.call_id)
        agent, inner = inner.agent, inner.event
    return inner, tuple(calls), agent


def find_asked(request: InputRequested) -> CallPath:
    """Return the path of the call that a request for approval is about."""
    return (*request.about.get("agent_calls", ()), request.about["call"]["id"])


def parse_request_id(id_: str) -> tuple[str, int]:
    """Return the request and the position that `Waiting.id` names; the position is 0 if it names none."""
    request, _, position = id_.rpartition(".")
    return (request, int(position)) if request and position.isascii() and position.isdigit() else (id_, 0)


def build_call_id(turn: str, depth: int, call: str) -> str:
    """Return the id under which a call of the model is shown, given its turn and the number of rounds before it."""
    return f"{turn}-{depth}-{call}"


class TurnFrames:
    """Follows what is open in a turn.

    Args:
        turn: The id of the turn, which begins all ids.
        pauses_for_questions: Whether a stream also ends for the questions of servers, not only for approvals.
    """

    def __init__(self, turn: str, *, pauses_for_questions: bool = False) -> None:
        self.turn = turn
        self._pauses_for_questions = pauses_for_questions
        self.depth = 0
        """The number of rounds before this one."""
        self.waiting: dict[str, Waiting] = {}
        """The open requests to a person, by their ids."""
        self.calls: dict[CallPath, CallPart] = {}
        """The calls so far; of those with one path the last one."""
        self._running: dict[CallPath, None] = {}
        self._open: Bracket | None = None
        self._texts = self._inner_calls = 0

    def is_waiting(self, after: int = 0) -> bool:
        """Return whether a stream ends here: a question is open, or all calls that have started wait for approval.

        Args:
            after: Requests up to this position are answered, whether or not the log has the answer already.
        """
        asked = [waiting.request for waiting in self.waiting.values()]
        if all(waiting.position <= after for waiting in self.waiting.values()):
            return False
        held = {find_asked(request) for request in asked if request.kind == APPROVAL}
        has_question = self._pauses_for_questions and len(held) < len(asked)
        return has_question or (bool(held) and self._running.keys() - self.find_callers() <= held)

    def find_callers(self) -> set[CallPath]:
        """Return the calls that wait for calls that they have made: those of agents and of programs."""
        return {self.calls[path].parent for path in self._running} & self._running.keys()

    def find_call_id(self, *path: str) -> str:
        """Return the id under which a call is shown, which no other call of the conversation has; empty if unknown."""
        return self.calls[path].id if path in self.calls else ""

    def list_client_calls(self, turn: Turn) -> Sequence[tuple[str, ToolCallRequest]]:
        """Return the calls of the front end's own tools with which a turn ends, each with the id of `build_call_id`."""
        calls = turn.client_tool_calls if turn.stop_reason is StopReason.CLIENT_TOOL_CALLS else ()
        return [(build_call_id(self.turn, self.depth, call.id), call) for call in calls]

    def _begin_call(self, path: CallPath, parent: CallPath, agent: str) -> None:
        id_ = build_call_id(self.turn, self.depth, path[-1])
        if len(path) > 1:  # the rounds of agents are not counted, so that their calls are
            self._inner_calls += 1
            id_ = f"{self.turn}-{self.depth}.{self._inner_calls}-{path[-1]}"
        self.calls[path] = CallPart(id_, parent, agent)
        self._running[path] = None

    def follow(self, event: Event, position: int) -> list[Bracket]:
        """Take an event, and return the brackets before it."""
        inner, path, agent = unwrap(event)
        match inner:
            case RoundStarted(depth):
                self.depth = depth
            case ToolCallStarted(call, parent=parent):
                caller = (*path, parent) if parent else path
                self._begin_call((*path, call.id), caller, agent)
            case ToolCallFinished(result):
                self._running.pop((*path, result.tool_call_id), None)
            case InputRequested(id_):
                self.waiting[id_] = Waiting(inner, position)
            case InputReceived(id_):
                self.waiting.pop(id_, None)
            case StatusChanged() | ToolCallProgress() | ServerChanged():
                return []  # may stand between two fragments of a text
            case _:
                pass
        kinds: Mapping[type, Literal["text", "reasoning"]] = {TextDelta: "text", ReasoningDelta: "reasoning"}
        return self._switch(kinds.get(type(event)))

    def close(self) -> list[Bracket]:
        """Return the end of the text that is open."""
        return self._switch(None)

    def _switch(self, kind: Literal["text", "reasoning"] | None) -> list[Bracket]:
        open_ = self._open
        if kind == (open_ and open_.kind):
            return []
        brackets = [] if open_ is None else [Bracket(open_.kind, open_.id, opens=False)]
        self._open = None
        if kind is not None:
            self._texts += 1
            self._open = Bracket(kind, f"{self.turn}-{kind}-{self._texts}", opens=True)
            brackets.append(self._open)
        return brackets

    @property
    def open_id(self) -> str:
        """The id of the text that is open; empty if there is none."""
        return self._open.id if self._open is not None else ""


async def encode_turn(events: AsyncGenerator[Event, None], encoder: TurnEncoder) -> AsyncGenerator[str, None]:
    """Yield a turn's events as strings that end in a blank line; an error of the turn becomes an event."""
    failure: Exception | None = None
    yield encoder.begin()
    try:
        async with aclosing(events):
            async for event in events:
                yield encoder.encode(event)
    except Exception as error:  # noqa: BLE001 - the stream needs an end after any error
        failure = error
    yield encoder.end(failure)


def encode_data(data: Mapping[str, object]) -> str:
    """Return an unnamed server-sent event."""
    return f"data: {to_json(data)}\n\n"

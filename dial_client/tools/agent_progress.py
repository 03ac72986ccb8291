"""What agents have done in a turn that has not ended, so that a turn that is resumed goes on within them.

The turn of an agent is part of the call of the agent: its messages are no messages of the conversation. They are stored
as entries beside it, each before what it says happens: a message with calls before the calls, the release of a call
that waited for approval before the call. Entries name the call of the agent by the ids of the calls that lead to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.messages.message import (
    Failure,
    Message,
    PendingApproval,
    ToolCallRequest,
    ToolCallResult,
    build_waiting_result,
    find_waiting_calls,
)
from dial_client.settings.agent import AGENTS

# The result of a call whose own result was never stored.
INTERRUPTED = "[may have run: no result was stored, and it is not known whether the tool did its work]"

# The result of the call of an agent that goes on later.
HELD = "Not run: the agent has not ended, one of its calls waits for approval."

# Stores an entry about agents of a turn, and returns once it is stored.
StoreEntry = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(eq=False, slots=True)
class AgentState:
    """What is known of the turn of an agent whose process was killed."""

    messages: dict[int, Message] = field(default_factory=dict)
    """The messages of the turn by their place, the task first."""
    results: dict[str, Message] = field(default_factory=dict)
    """The results of calls, by their ids: those of the last round may not be in `messages` yet."""
    held: dict[str, PendingApproval | None] = field(default_factory=dict)
    """The calls that waited for approval: None for one that may have run since."""
    agents: dict[str, AgentState] = field(default_factory=dict)
    """The agents that the agent has called, by the ids of their calls."""
    is_stored: bool = True
    """Whether entries have the messages; False for a state that came with the history of the turn."""

    @classmethod
    def from_messages(cls, messages: Iterable[Message]) -> AgentState:
        """Return the state of an agent that waits for approval, given the messages of its turn."""
        state = cls(is_stored=False)
        for message in messages:
            if (pending := message.pending) is None:
                state.messages[len(state.messages)] = message
            elif pending.messages:
                state.agents[pending.waiting_id] = cls.from_messages(pending.messages)
            else:
                state.held[pending.waiting_id] = pending
        return state

    @property
    def is_waiting(self) -> bool:
        """Whether the agent, and each that it has called, goes on only once a person has answered."""
        waiting = find_waiting_calls(self.build_history())
        agents = [self.agents[asked.waiting_id] for asked in waiting if asked.waiting_id in self.agents]
        return bool(waiting) and all(agent.is_waiting for agent in agents)

    def build_history(self) -> tuple[Message, ...]:
        """Return the messages of the turn, with a result for each call.

        A call that goes on, because it waits for approval or is that of an agent, has a result that waits. Such results
        come last.
        """
        history = [self.messages[index] for index in sorted(self.messages)]
        last = next((message for message in reversed(history) if message.tool_calls), None)
        answered = {message.tool_call_id for message in history[history.index(last) :]} if last is not None else set()
        calls = () if last is None else last.tool_calls
        history += [self._build_result(call) for call in calls if call.id not in answered]
        return tuple(sorted(history, key=lambda message: message.pending is not None))

    def _build_result(self, call: ToolCallRequest) -> Message:
        if (result := self.results.get(call.id)) is not None:
            return result
        if call.id in self.agents:
            return hold_agent(call, self.agents[call.id].build_history())
        if (pending := self.held.get(call.id)) is not None:
            return Message.tool(call, build_waiting_result(pending))
        return Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, INTERRUPTED))

    def apply(self, path: Iterable[str], data: Mapping[str, Any]) -> None:
        """Apply an entry about the agent at the end of a path of calls.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: The entry is wrong.
        """
        state = self
        for call_id in path:
            state = state.agents.setdefault(str(call_id), AgentState())
        message = None if "message" not in data else Message.from_dict(data["message"])
        if message is not None and "at" in data:
            state.messages[int(data["at"])] = message
            if message.tool_calls:  # ids of calls are unique within a round only
                state.results.clear()
                state.held.clear()
                state.agents.clear()
        elif message is not None:
            state.results[str(message.tool_call_id)] = message
        for id_, pending in data.get("held", {}).items():
            state.held[id_] = None if pending is None else PendingApproval.from_dict(pending)


def hold_agent(call: ToolCallRequest, messages: tuple[Message, ...] = ()) -> Message:
    """Return the result of the call of an agent that goes on once the turn is resumed.

    Args:
        call: The call.
        messages: The messages of its turn, if decisions about its calls may come with the resumed turn.
    """
    return Message.tool(call, build_held_result(call, messages))


def build_held_result(call: ToolCallRequest, messages: tuple[Message, ...]) -> ToolCallResult:
    """Return the result of the call of an agent that goes on later. Arguments as for `hold_agent`."""
    pending = PendingApproval(call.id, call, AGENTS, call.name, messages=messages)
    return replace(build_waiting_result(pending), content=HELD, error=HELD)


def read_states(entries: Iterable[Mapping[str, Any]]) -> dict[str, AgentState]:
    """Return the states of agents by the ids of their calls; entries that are wrong are left out."""
    root = AgentState()
    for data in entries:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            root.apply(data["path"], data)
    return root.agents


@dataclass(eq=False, slots=True)
class AgentProgress:
    """The agents of one turn: what earlier processes have stored of them, and what stores their progress."""

    store: StoreEntry | None = None
    """Stores an entry; None if nobody could go on with the turn."""
    open: dict[str, AgentState] = field(default_factory=dict)
    """The agents whose calls have not ended, by the ids of their calls."""
    path: tuple[str, ...] = ()
    """The ids of the calls that lead to the turn; empty for the turn of the user."""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    """The decisions about calls of the agents that wait for approval (`tools.approval.Decisions`)."""

    def resume(self, waiting: Iterable[PendingApproval], decisions: Mapping[str, Any]) -> AgentProgress:
        """Return the progress of a turn that goes on, some of whose calls wait. Stored entries count first."""
        known = {
            pending.waiting_id: AgentState.from_messages(pending.messages) for pending in waiting if pending.messages
        }
        return replace(self, open=known | self.open, decisions=decisions)

    def begin(self, call_id: str) -> tuple[AgentProgress, AgentState | None]:
        """Return the progress of an agent that is called now, and what an earlier process has stored of it."""
        state = self.open.pop(call_id, None)
        agents = {} if state is None else state.agents
        return AgentProgress(self.store, agents, (*self.path, call_id), self.decisions), state

    async def store_message(self, index: int, message: Message) -> None:
        """Store a message of the turn, with its place in it."""
        await self._store(lambda: {"at": index, "message": message.to_dict()})

    async def store_result(self, result: Message) -> None:
        """Store the result of a call before its round has ended."""
        await self._store(lambda: {"message": result.to_dict()})

    async def store_held(self, held: Mapping[str, PendingApproval | None]) -> None:
        """Store which calls wait for approval, and which of them may run now."""
        await self._store(lambda: {"held": {id_: pending and pending.to_dict() for id_, pending in held.items()}})

    async def _store(self, build: Callable[[], Mapping[str, Any]]) -> None:
        # Turns that nobody stores must not pay for the form of entries.
        if self.store is not None:
            await self.store({"path": list(self.path), **build()})

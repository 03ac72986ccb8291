"""The events of a turn: one closed union. Each event that starts something has an event that ends it.

    RoundStarted                        once per level of the recursion
      StatusChanged*                    the current activity, as a sentence; again with the first text
      ReasoningDelta*  TextDelta*       while the model writes
      OutputDelta*                      partial values of a typed answer; its whole text follows as one `TextDelta`
      MessageCompleted                  the assistant's message is complete
      ToolCallStarted                   for each call
        AppOpened                       for a call with an MCP App, once it is approved
        ToolCallProgress*
        AgentEvent*                     for the call of an agent: the beginning and the end of each call of the agent
      ToolCallFinished                  for each call, including failed calls
      MessageCompleted                  each call's result, in the order of the calls
      MessageCompleted                  each message of the user that steers the turn (`TurnHandle.steer`)
      AgentChanged                      an agent takes the conversation over, or hands it back
    Finished                            last, with the `Turn`

Calls that the model's endpoint runs itself (``by_endpoint``) start and finish before the assistant's message is
complete, and have no message of their own. A turn in a conversation that an agent has begins with `AgentChanged`.
`ServerChanged` may occur at any point. So may `InputRequested` and `InputReceived`, which a program emits if it embeds
the client and asks the user itself.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic

from dial_client.messages.mcp_apps import App
from dial_client.messages.message import Message, ToolCallRequest, ToolCallResult
from dial_client.messages.turn_result import OutputT_co, Turn, output_to_json


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A new round starts with a request to the model."""

    depth: int
    """Number of rounds of tool calls before this round."""
    may_call: bool = field(default=True, compare=False)
    """False if no tool is offered in this round, or a limit is reached: the text is the answer, from its first word,
    and a call after it is dropped."""


@dataclass(frozen=True, slots=True)
class AgentChanged:
    """From here on, an agent has the conversation, or the conversation's own model has it again."""

    agent: str
    """The name of the agent; empty for the conversation's own model."""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The current activity, as a sentence for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A fragment of the model's answer, safe to display. Fragments that arrive together are one."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A fragment of the model's reasoning, which is not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """The typed answer so far. Each value is valid for the type; the value of the last `OutputDelta` is complete."""

    output: Any


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """A message is complete, and part of the conversation from now on."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call starts; it may still need approval."""

    call: ToolCallRequest
    server: str
    """The server's name in the configuration; empty for an unknown tool."""
    tool: str = ""
    """The tool's own name at that server."""
    by_endpoint: bool = False
    """Whether the model's endpoint runs the tool itself. `server` is then its name, and the call needs no approval."""
    parent: str = ""
    """The id of the call that makes this one: of the snippet (``run_code``) that it belongs to; empty for a call of the
    model. Such a call has no message of its own."""


@dataclass(frozen=True, slots=True)
class AppOpened:
    """A call with an MCP App is approved and starts: the app can be shown.

    The app's result follows in ``ToolCallFinished.result.app``. A call that is not approved opens no app.
    """

    app: App


@dataclass(frozen=True, slots=True)
class ToolCallProgress:
    """A server reports the progress of a call."""

    id: str
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A call has ended."""

    result: ToolCallResult
    server: str
    duration: float
    """The duration of the call in seconds, without the wait for approval."""
    by_endpoint: bool = False
    """As in `ToolCallStarted`."""
    changed_arguments: Mapping[str, Any] | None = None
    """The arguments the call ran with, if an approver or a middleware changed those of `ToolCallStarted`; else None."""
    changed_tool: str | None = None
    """The own name of the tool that ran, if a middleware changed the tool of `ToolCallStarted`; else None. `server` is
    then the server of the tool that ran."""


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """What an agent does that a call has begun: the beginning and the end of its calls, of agents that it calls too."""

    call_id: str
    """The id of the call of the agent."""
    agent: str
    """The path of the agent: ``main > reviewer``."""
    event: ToolCallStarted | ToolCallFinished | AgentEvent
    """The event of the agent's turn, whose calls have ids of their own."""


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """The state or the tools of a server have changed."""

    name: str
    status: str
    """A value of `ServerState`; ``restarting`` for a server that died and is being restarted."""


@dataclass(frozen=True, slots=True)
class InputRequested:
    """The turn waits for the user's input."""

    id: str
    """Unique among all requests for input."""
    kind: str
    """``approval`` for a call, ``question`` for an elicitation."""
    about: Mapping[str, Any]
    """The details to show to the user; JSON types only."""


@dataclass(frozen=True, slots=True)
class InputReceived:
    """A request for input has ended, with or without an answer."""

    id: str
    kind: str
    answer: str
    """``once``, ``session``, ``conversation``, ``always`` or ``deny`` for an approval; ``accept``, ``decline`` or
    ``cancel`` for a question."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[OutputT_co]):
    """The turn has ended."""

    turn: Turn[OutputT_co]


# ``Event[T]`` is an event of a turn whose output has the type T.
Event = (
    RoundStarted | StatusChanged | TextDelta | ReasoningDelta | OutputDelta | MessageCompleted | ToolCallStarted
    | AgentChanged | AgentEvent | AppOpened | ToolCallProgress | ToolCallFinished | ServerChanged | InputRequested
    | InputReceived | Finished[OutputT_co]
)  # fmt: skip

Emit = Callable[[Event], Awaitable[None]]


async def discard_event(event: Event) -> None:
    """Receive an event of a call that nobody watches."""


def find_type_name(event: Event) -> str:
    """Return the event's name in snake case: ``text_delta``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def to_dict(event: Event) -> dict[str, Any]:
    """Return ``{"type": name, …fields}`` in JSON types only, as in one line of ``--output jsonl``."""
    if isinstance(event, OutputDelta):
        return {"type": find_type_name(event), "output": output_to_json(event.output)}
    if isinstance(event, AgentEvent):
        inner = {"call_id": event.call_id, "agent": event.agent, "event": to_dict(event.event)}
        return {"type": find_type_name(event), **inner}
    values = {field.name: _to_json(getattr(event, field.name)) for field in fields(event)}
    if isinstance(event, ToolCallStarted) and not event.parent:
        del values["parent"]
    return {"type": find_type_name(event), **values}


def _to_json(value: Any) -> Any:
    if isinstance(value, Message | Turn):
        value = value.without_kept()  # for the next program, and not for who watches the turn
    return value.to_dict() if isinstance(value, App | Message | ToolCallRequest | ToolCallResult | Turn) else value

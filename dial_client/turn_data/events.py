"""The events of a turn: one closed union, begin and end in pairs.

    RoundStarted                        once a level
      StatusChanged*                    the current activity, as a sentence; again with the first text
      ReasoningDelta*  TextDelta*       as the model writes
      OutputDelta*                      as a typed answer becomes valid; its text follows whole, as one `TextDelta`
      MessageCompleted                  the assistant's message is whole
      ToolCallStarted                   for each call
        AppOpened                       for a call with an MCP App, once it may run
        ToolCallProgress*
      ToolCallFinished                  always, whatever the result
      MessageCompleted                  each call's result, in the order of the calls
    Finished                            last, with the `Turn`

Calls that the model's endpoint runs itself (``by_endpoint``) start and finish before the assistant's message is whole,
and have no message of their own. `ServerChanged` may come anywhere between. So may `InputRequested` and
`InputReceived`, which come from a program that embeds the client and asks people in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dial_client.messages.mcp_apps import App
from dial_client.messages.message import Message, ToolCallRequest, ToolCallResult
from dial_client.turn_data.turn_result import Turn, output_to_json


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """The model is about to be asked."""

    depth: int
    """Rounds of tool calls before this one."""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The current activity, as a sentence for people."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the model's answer, ready to be shown."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning; not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """The typed answer so far: complete in the last of these events, and of its type in all of them."""

    output: Any


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """A message is complete, and part of the conversation from now on."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call begins; it may still need approval."""

    call: ToolCallRequest
    server: str
    """The server's name in the configuration; empty for a tool nobody offers."""
    tool: str = ""
    """The tool's own name at that server."""
    by_endpoint: bool = False
    """The model's endpoint runs the tool itself, and `server` is its name: the call needs no approval here."""


@dataclass(frozen=True, slots=True)
class AppOpened:
    """A call that has an MCP App may run, and begins: the app can be shown, and its result comes when the call is over.

    The result is in ``ToolCallFinished.result.app``. A call that is not allowed opens no app.
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
    """A call is over."""

    result: ToolCallResult
    server: str
    duration: float
    """Seconds."""
    by_endpoint: bool = False
    """As in `ToolCallStarted`."""
    changed_arguments: Mapping[str, Any] | None = None
    """The arguments the call ran with, if an approver or a middleware changed those of `ToolCallStarted`; else None."""
    changed_tool: str | None = None
    """The own name of the tool that ran, if a middleware changed the tool of `ToolCallStarted`; else None. `server` is
    the server of that tool."""


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """A server became ready, died, failed or was removed."""

    name: str
    status: str
    """As in `ServerState`; ``restarting`` for one that has died and will be back."""


@dataclass(frozen=True, slots=True)
class InputRequested:
    """The turn waits for a person's input."""

    id: str
    """Unique among all requests for input."""
    kind: str
    """``approval`` for a call, ``question`` for an elicitation."""
    about: Mapping[str, Any]
    """The details for the person; JSON types only."""


@dataclass(frozen=True, slots=True)
class InputReceived:
    """A request for input is over, with or without an answer."""

    id: str
    kind: str
    answer: str
    """``once``, ``session`` or ``deny`` for an approval; ``accept``, ``decline`` or ``cancel`` for a question."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is over."""

    turn: Turn


Event = (
    RoundStarted
    | StatusChanged
    | TextDelta
    | ReasoningDelta
    | OutputDelta
    | MessageCompleted
    | ToolCallStarted
    | AppOpened
    | ToolCallProgress
    | ToolCallFinished
    | ServerChanged
    | InputRequested
    | InputReceived
    | Finished
)

Emit = Callable[[Event], Awaitable[None]]


def type_name(event: Event) -> str:
    """Return the event's name in snake case: ``text_delta``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def to_dict(event: Event) -> dict[str, Any]:
    """Return ``{"type": name, …fields}`` in JSON types only: one line of ``--output jsonl``."""
    if isinstance(event, OutputDelta):
        return {"type": type_name(event), "output": output_to_json(event.output)}
    values = {field.name: _to_json(getattr(event, field.name)) for field in fields(event)}
    return {"type": type_name(event), **values}


def _to_json(value: Any) -> Any:
    return value.to_dict() if isinstance(value, App | Message | ToolCallRequest | ToolCallResult | Turn) else value

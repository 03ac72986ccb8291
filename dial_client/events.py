"""What a turn says while it runs: one closed union, begin and end in pairs.

    RoundStarted                        once a level
      StatusChanged*                    what is going on, in a person's words; anew with the first text
      ReasoningDelta*  TextDelta*       as the model writes
      MessageCompleted                  the assistant's message is whole
      ToolCallStarted                   for each call
        ToolCallProgress*
      ToolCallFinished                  always, whatever came of it
      MessageCompleted                  each call's result, in the order of the calls
    Finished                            last, with the `Turn`

`ServerChanged` may come anywhere between, and so may `InputRequested` and `InputReceived`, which a program announces
that embeds the client and asks a person in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dial_client.messages import Message, ToolCallRequest, ToolCallResult
from dial_client.turn_result import Turn


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """The model is about to be asked."""

    depth: int
    """Rounds of tool calls that lie behind."""


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """What is going on, in a person's words."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the model's answer, ready to be shown."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks aloud; not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """A message is whole and belongs to the conversation from now on."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call is taken up; permission may still be asked for."""

    call: ToolCallRequest
    server: str
    """The server's name in the configuration; empty for a tool nobody offers."""
    tool: str = ""
    """The tool's own name at that server."""


@dataclass(frozen=True, slots=True)
class ToolCallProgress:
    """A server says how far a call is."""

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


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """A server came up, died, failed or went away."""

    name: str
    status: str
    """As in `ServerState`; ``restarting`` for one that has died and will be back."""


@dataclass(frozen=True, slots=True)
class InputRequested:
    """A person has to say something before the turn goes on."""

    id: str
    """Unlike that of any other question."""
    kind: str
    """``approval`` for a call, ``question`` for what a server wants to know."""
    about: Mapping[str, Any]
    """All the person needs to know; JSON types only."""


@dataclass(frozen=True, slots=True)
class InputReceived:
    """A question to a person is over, whoever answered it, or nobody."""

    id: str
    kind: str
    answer: str
    """For an approval ``once``, ``session`` or ``deny``; for a question ``accept``, ``decline`` or ``cancel``."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is over."""

    turn: Turn


Event = (
    RoundStarted
    | StatusChanged
    | TextDelta
    | ReasoningDelta
    | MessageCompleted
    | ToolCallStarted
    | ToolCallProgress
    | ToolCallFinished
    | ServerChanged
    | InputRequested
    | InputReceived
    | Finished
)

Emit = Callable[[Event], Awaitable[None]]


def type_name(event: Event) -> str:
    """Give the event's name in snake case: ``text_delta``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def to_dict(event: Event) -> dict[str, Any]:
    """Give ``{"type": name, …fields}`` in JSON types only: one line of ``--output jsonl``."""
    said: dict[str, Any] = {"type": type_name(event)}
    for field in fields(event):
        said[field.name] = _to_json(getattr(event, field.name))
    return said


def _to_json(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Message | ToolCallRequest | ToolCallResult | Turn) else value

"""One exchange with a model: what is asked, what comes back, and the two axes that meet here.

A *provider* turns a `ModelRequest` into a request of its wire, and what comes back into `Delta`s. A *format* says how
tools and calls ride in that exchange: as the wire's own tool calls, or as text. Neither knows the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from dial_client.messages import Message, Role, ToolCallRequest, ToolCallResult, ToolSpec, Usage


class ToolFormat(StrEnum):
    """How tools and calls ride: on the wire's own rails, or as text."""

    NATIVE = "native"
    REACT = "react"
    XML = "xml"


class ToolChoice(StrEnum):
    """Whether the model may call a tool in this exchange."""

    AUTO = "auto"
    NONE = "none"


class InstructionSource(StrEnum):
    """Who wrote an instruction."""

    HOST = "host"
    """The guidance on tools."""
    CONVERSATION = "conversation"
    """The system messages of the conversation, or the client's own."""
    SERVERS = "servers"
    """What the connected servers say about themselves."""
    TOOL_FORMAT = "tool_format"
    """How to call tools in text."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A text the model is to follow in all of the conversation: a system message, in most APIs."""

    source: InstructionSource
    text: str


OnWait = Callable[[str, float], Awaitable[None]]
"""Hears why the endpoint will be asked again (``was busy``) and in how many seconds; then, with 0, that it is asked."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the model is asked.

    Raises:
        ValueError: a system message is among the messages (see `separate_instructions`).
    """

    messages: tuple[Message, ...]
    """The conversation: messages of the user, the assistant and tools."""
    tools: tuple[ToolSpec, ...] = ()
    """What rides as the wire's own tools; empty for a text format."""
    tool_choice: ToolChoice = ToolChoice.AUTO
    stop: tuple[str, ...] = ()
    """Sequences that end the reply; an endpoint may ignore them."""
    grammar: str = ""
    """What the reply may be, in GBNF; empty for anything. An endpoint that cannot be held to it is not told of it."""
    schema: Mapping[str, Any] | None = None
    """The same for an endpoint that knows JSON Schema only: an object whose keys are the reply's labels; the reply
    comes back as lines, ``label: value``."""
    stream: bool = True
    """False: the endpoint may answer in one piece."""
    instructions: tuple[Instruction, ...] = ()
    """In the order in which the model reads them, before the conversation."""
    max_tokens: int | None = None
    """Tokens of the reply; None for the model's own limit."""
    on_wait: OnWait | None = field(default=None, repr=False, compare=False)
    """Nobody has to be told; it is no part of what is asked."""

    def __post_init__(self) -> None:
        if any(message.role is Role.SYSTEM for message in self.messages):
            raise ValueError("a system message among the messages: it belongs in `instructions`")

    @property
    def instruction_text(self) -> str:
        """All instructions as one text."""
        return "\n\n".join(instruction.text for instruction in self.instructions if instruction.text.strip())


def separate_instructions(messages: Iterable[Message]) -> tuple[tuple[Instruction, ...], tuple[Message, ...]]:
    """Return the system messages of a conversation as instructions, and its other messages."""
    instructions: list[Instruction] = []
    conversation: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            instructions.append(Instruction(InstructionSource.CONVERSATION, message.text))
        else:
            conversation.append(message)
    return tuple(instructions), tuple(conversation)


class FinishReason(StrEnum):
    """Why the model stopped writing. Only `STOP` and `TOOL_CALLS` make its calls fit to run."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSED = "refused"
    CUT = "cut"
    """The stream ended without saying why."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """More of the reply's text, as the endpoint sent it."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """More of the model's reasoning, where the wire gives it apart."""

    text: str


@dataclass(frozen=True, slots=True)
class CallChunk:
    """One whole call of the wire's own."""

    call: ToolCallRequest


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of the reply: always the last delta, exactly once."""

    finish: FinishReason
    usage: Usage = field(default_factory=Usage)
    echo: Any = None
    """What this provider wants back with the assistant's message; JSON types only."""
    notes: tuple[str, ...] = ()
    """What the user should know of this exchange: a parameter dropped, a tool left out."""


Delta = TextChunk | ReasoningChunk | CallChunk | Completion


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a client knows of a model without asking it. Only the name is needed; the defaults suit most models."""

    name: str
    """The provider's name. It marks what messages carry for the provider (`Echo`): the same name, the same echoes."""
    model: str = ""
    """The model's id at its endpoint."""
    url: str = ""
    """The endpoint's address. With `model` it tells the price of a token (`prices`); empty for a model without one."""
    context_window: int | None = None
    """Tokens that fit into one request and its reply; None if unknown."""
    tool_format: ToolFormat | str | None = None
    """The tool format to begin with; None for the API's own tool calls."""
    guidance: str | None = None
    """Instructions on tool use in place of the client's own; empty for none."""
    searches_tools: bool = False
    """True if the endpoint itself searches among tools that are `ToolSpec.deferred`."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no recording may contain, such as the API key."""


class Provider(Protocol):
    """A model that can be asked. `DialClient` takes any object with these members as its model."""

    @property
    def info(self) -> ModelInfo:
        """What is known of the model now; it may change between two requests."""
        ...

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model, and give its reply as it comes, a `Completion` last.

        Raises:
            ProviderError: the endpoint could not be reached, refused, or broke off.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and processes; may be called twice."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A provider that has work to do before its first request: imports, connections, a process to start."""

    async def prepare(self) -> None:
        """Do that work now, while the servers start; the first request does it otherwise."""
        ...


class ReplyReader(Protocol):
    """Reads one reply of a model: what of it is for people, and what it calls."""

    def feed(self, text: str) -> str:
        """Take more of the reply, give what of it can be shown; what may be a marker is held back."""
        ...

    def reasoning(self) -> str:
        """Give the reasoning found in the text since this was asked last; nobody has to ask."""
        ...

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """Take the end of the reply, give the rest of what can be shown, and the calls found in the text."""
        ...


class ToolFormatHandler(Protocol):
    """How calls ride. Without state: a reader is made for each reply."""

    format: ToolFormat

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Put the conversation and the tools on offer into the form the model is asked in."""
        ...

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Give what the model is told about calling these tools; empty where the wire does it."""
        ...

    def stop_sequences(self) -> tuple[str, ...]:
        """Give what ends a reply that calls."""
        ...

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Find the calls in a whole reply; give them, and the text that remains for people."""
        ...

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:
        """Give a result the form in which the model reads it."""
        ...

    def sanitize_response(self, text: str) -> str:
        """Give the reply without any markup of this format."""
        ...

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Make a reader for the next reply, which may call these tools."""
        ...

"""One exchange with a model: the request, the reply, and the protocols of providers and tool formats.

A *provider* turns a `ModelRequest` into a request of its API, and the response into `Delta`s. A *tool format* writes
tools and calls into the request, as the API's own tool calls or as text, and reads calls from the reply. Neither knows
the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from dial_client.messages.citations import Citation
from dial_client.messages.message import FilePart, ImagePart, Message, Role, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.turn_data.token_usage import Usage


class ToolFormat(StrEnum):
    """How tools and calls go with requests and replies: as the API's own tool calls, or as text."""

    NATIVE = "native"
    REACT = "react"
    XML = "xml"


class ToolChoice(StrEnum):
    """Which tools the model may call in one exchange: all on offer, or none."""

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
"""Receives why a request is retried (``was busy``) and in how many seconds; then, with 0, that it is sent."""


class StructuredOutput(StrEnum):
    """Whether an endpoint holds replies to a JSON Schema (`ModelRequest.output_format`)."""

    NONE = "none"
    WITHOUT_TOOLS = "without_tools"
    """In requests that offer no tools."""
    WITH_TOOLS = "with_tools"
    """In all requests; replies that call tools are not concerned."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The JSON Schema of an answer."""

    name: str
    """``^[a-zA-Z0-9_-]{1,64}$``."""
    schema: Mapping[str, Any]
    """A schema every provider takes; an object at the top."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, in terms that all APIs share.

    Raises:
        ValueError: a system message is among the messages (see `separate_instructions`).
    """

    messages: tuple[Message, ...]
    """The conversation: messages of the user, the assistant and tools."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools for the API's own tool calls; empty for a text format."""
    tool_choice: ToolChoice = ToolChoice.AUTO
    stop: tuple[str, ...] = ()
    """Sequences that end the reply; an endpoint may ignore them."""
    grammar: str = ""
    """The grammar of the reply in GBNF; empty for any reply. Sent only to endpoints that support it."""
    schema: Mapping[str, Any] | None = None
    """The grammar as a JSON Schema, for endpoints that support only that: an object with the reply's labels as keys.
    The reply comes back as lines, ``label: value``."""
    output_format: OutputFormat | None = None
    """The form of the answer, for endpoints with `ModelInfo.structured_output`; None for text."""
    stream: bool = True
    """False if the endpoint may answer in one piece."""
    instructions: tuple[Instruction, ...] = ()
    """In the order in which the model reads them, before the conversation."""
    max_tokens: int | None = None
    """Tokens of the reply; None for the model's own limit."""
    endpoint_tools: bool = True
    """The model may use the tools that its endpoint runs itself, where the endpoint's profile switches any on."""
    streams_arguments: bool = False
    """True if the arguments of calls are wanted while they are written, as `ArgumentsChunk`s."""
    on_wait: OnWait | None = field(default=None, repr=False, compare=False)
    """Called while a request waits for its retry; not sent."""

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
    """Why the model stopped writing. Calls are run only after `STOP` and `TOOL_CALLS`."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSED = "refused"
    CUT = "cut"
    """The stream ended without a reason."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """More of the reply's text, as the endpoint sent it."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """More of the model's reasoning, where the API keeps it apart from the text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallChunk:
    """One whole call of the API's own."""

    call: ToolCallRequest


@dataclass(frozen=True, slots=True)
class ArgumentsChunk:
    """More of the arguments of a call, as the endpoint sent it, where `ModelRequest.streams_arguments` asks for that.

    The whole call follows as a `CallChunk`; a provider may leave these pieces out.
    """

    index: int
    """The position of the call in the reply; it tells the calls of a reply apart."""
    name: str
    """The tool's name."""
    text: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class CommentaryChunk:
    """More of what the model tells the user about its work, where the API keeps that apart from the answer."""

    text: str
    is_end: bool = False
    """True at the end of one remark."""


@dataclass(frozen=True, slots=True)
class MediaChunk:
    """An image or a file of the reply."""

    part: ImagePart | FilePart


@dataclass(frozen=True, slots=True)
class EndpointCallChunk:
    """A call of a tool that the endpoint itself runs. It is shown, and never run here."""

    call: ToolCallRequest
    result: ToolCallResult | None = None
    """None while the tool is at work; the arguments may then be missing."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of the reply: always the last delta, exactly once."""

    finish: FinishReason
    usage: Usage = field(default_factory=Usage)
    echo: Any = None
    """Data the provider needs back with the assistant's message; JSON types only."""
    notes: tuple[str, ...] = ()
    """Notes for the user on this exchange: a dropped parameter, a tool left out."""
    citations: tuple[Citation, ...] = ()
    """The sources of the text, with spans in the text of all `TextChunk`s together."""
    info: ModelInfo | None = None
    """The model that answered; None for the one of `Provider.info`."""


Delta = (
    TextChunk
    | ReasoningChunk
    | CommentaryChunk
    | MediaChunk
    | ArgumentsChunk
    | CallChunk
    | EndpointCallChunk
    | Completion
)


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
    fenced_calls: bool = False
    """True if a code fence with a call in it, at the end of a reply, is a call: small models write calls so."""
    searches_tools: bool = False
    """True if the endpoint itself searches among tools that are `ToolSpec.deferred`."""
    structured_output: StructuredOutput = StructuredOutput.NONE
    """Whether the endpoint holds replies to `ModelRequest.output_format`."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no recording may contain, such as the API key."""


class Provider(Protocol):
    """A model that can be asked. `DialClient` takes any object with these members as its model."""

    @property
    def info(self) -> ModelInfo:
        """What is known of the model now; it may change between two requests."""
        ...

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Send a request, and yield the reply as it comes, a `Completion` last.

        Raises:
            ProviderError: the endpoint could not be reached, refused, or broke off.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and end processes; may be called twice."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A provider that has work to do before its first request: imports, connections, a process to start."""

    async def prepare(self) -> None:
        """Do that work now, while the servers start; the first request does it otherwise."""
        ...


@runtime_checkable
class AnswerConstraining(Protocol):
    """A tool format whose requests can hold an answer to a JSON Schema, where the endpoint takes a grammar."""

    def constrain_answer(
        self, request: ModelRequest, tools: Sequence[ToolSpec], schema: Mapping[str, Any]
    ) -> ModelRequest:
        """Return a request of this format with the grammar of replies that call these tools, or answer in `schema`."""
        ...


class ReplyReader(Protocol):
    """Reads one reply of a model: its visible text, its reasoning and its calls."""

    def feed(self, text: str) -> str:
        """Add text of the reply, and return what can be shown; what may become a marker is held back."""
        ...

    def reasoning(self) -> str:
        """Return the reasoning found in the text since the last call."""
        ...

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """End the reply, and return the rest of the text and the calls found in it."""
        ...


class ToolFormatHandler(Protocol):
    """Writes tools and calls into requests, and makes readers of replies. It keeps no state of a conversation."""

    format: ToolFormat

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return the request for a conversation (without system messages) and the tools on offer."""
        ...

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Return the instructions on calling these tools; empty where the API sends the tools."""
        ...

    def stop_sequences(self) -> tuple[str, ...]:
        """Return the stop sequences for replies that call tools."""
        ...

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Return the calls in a whole reply, and its visible text."""
        ...

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:
        """Return a result as the model reads it."""
        ...

    def sanitize_response(self, text: str) -> str:
        """Return the reply without the markup of this format."""
        ...

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Return a reader for the next reply, which may call these tools."""
        ...

"""One exchange with a model: the request, the reply, and the protocols of providers and tool formats.

A *provider* converts a `ModelRequest` to a request of its API, and the response to `Delta`s. A *tool format* writes
tools and calls into the request, as the API's own tool calls or as text, and reads calls from the reply. Providers and
tool formats do not depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from dial_client.messages.citations import Citation
from dial_client.messages.message import FilePart, ImagePart, Message, Role, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.token_usage import Usage
from dial_client.runtime.foreign_names import refuse_names
from dial_client.runtime.kept_prefix import KeptPrefix


class ToolFormat(StrEnum):
    """How requests offer tools and replies call them: as the API's own tool calls, or as text."""

    NATIVE = "native"
    REACT = "react"
    XML = "xml"
    CODE = "code"
    """The API's own tool calls, but of one tool, which runs a program that calls the servers' tools."""


class ToolChoice(StrEnum):
    """Whether the model may or must call an offered tool; `ModelSettings.tool_choice` may also be a tool's name."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


class InstructionSource(StrEnum):
    """Who wrote an instruction."""

    HOST = "host"
    """The host itself, such as its guidance on tool use."""
    CONVERSATION = "conversation"
    """A system message of the conversation, or the ``system`` option of the client."""
    FILES = "files"
    """A file of the user or of the working folder, such as ``AGENTS.md``."""
    SERVERS = "servers"
    """A connected MCP server: its instructions, or the system prompt of its sampling request."""
    TOOL_FORMAT = "tool_format"
    """The tool format, with its instructions on calling tools in text."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A text that the model follows in the whole conversation; a system message in most APIs."""

    source: InstructionSource
    text: str


OnWait = Callable[[str, float], Awaitable[None]]
"""Called with the reason for a retry (``was busy``) and the wait in seconds; called with 0 seconds after the wait."""


# Called during the download of a model: the bytes so far, the bytes in total, and the name of the current step.
OnDownload = Callable[[int, int, str], None]
# The name of the step in which bytes arrive: only its speed says how long the download takes.
DOWNLOADING = "downloading the model"


class StructuredOutput(StrEnum):
    """Whether an endpoint makes answers conform to a JSON Schema (`ModelRequest.output_format`)."""

    NONE = "none"
    WITHOUT_TOOLS = "without_tools"
    """Supported only in requests that offer no tools."""
    WITH_TOOLS = "with_tools"
    """Supported in all requests. The schema does not apply to replies that call tools."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The JSON Schema of an answer."""

    name: str
    """The schema's name, which matches ``^[a-zA-Z0-9_-]{1,64}$``."""
    schema: Mapping[str, Any]
    """A schema that every provider supports, with an object at the top level."""
    description: str = ""


# How much a model reasons before it answers.
Thinking = Literal["none", "minimal", "low", "medium", "high", "max"]


@refuse_names(
    max_output_tokens="max_tokens",
    max_completion_tokens="max_tokens",
    reasoning_effort="thinking",
    effort="thinking",
    parallel_tool_calls="parallel_calls",
    timeout="limits=Limits(timeout=…) of the turn",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model writes its replies. A setting that is None is that of the model's profile, else the endpoint's own.

    A setting that the endpoint does not have is left out, with a note in `Completion.notes`. The ranges in the
    annotations hold for the settings of a profile in a file.
    """

    temperature: Annotated[float, (0, math.inf)] | None = None
    """The sampling temperature."""
    top_p: Annotated[float, (0, 1)] | None = None
    """The probability mass of the tokens to sample from (0 to 1)."""
    seed: Annotated[int, (0, 2**63 - 1)] | None = None
    """The seed of the sampling."""
    max_tokens: int | None = None
    """The most tokens of each reply."""
    thinking: Thinking | None = None
    """How much the model reasons before it answers."""
    stop: tuple[str, ...] | None = None
    """Texts that end the reply, which do not belong to it."""
    tool_choice: str | None = None
    """``auto``, ``required``, ``none``, or the offered name of the only tool that the model may call in its first
    reply of the turn. With ``required`` and client-side tools the turn ends with a call of one of them."""
    parallel_calls: bool | None = None
    """False asks for at most one tool call in each reply; with another value the endpoint decides."""

    def with_defaults(self, defaults: ModelSettings) -> ModelSettings:
        """Return these settings, with the values of `defaults` for those that are None."""
        values = {name: getattr(defaults, name) for name in _SETTINGS if getattr(self, name) is None}
        missing = {name: value for name, value in values.items() if value is not None}
        return replace(self, **missing) if missing else self


# Found once: each request looks for settings that are missing.
_SETTINGS = tuple(setting.name for setting in fields(ModelSettings))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, in terms that all APIs share.

    Raises:
        ValueError: A system message is among the messages (see `separate_instructions`).
    """

    messages: tuple[Message, ...]
    """The conversation: messages of the user, the assistant and tools."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools for the API's own tool calls; empty for a text format."""
    settings: ModelSettings = ModelSettings()
    """How the model writes this reply: sampling, length, thinking, and which tools it may call."""
    stop: tuple[str, ...] = ()
    """Sequences that end the reply; an endpoint may ignore them."""
    grammar: str = ""
    """The grammar of the reply in GBNF; empty to allow any reply. Sent only to endpoints that support it."""
    schema: Mapping[str, Any] | None = None
    """`grammar` as a JSON Schema, for endpoints without GBNF grammars: an object with the reply's labels as keys.
    The provider returns the object in the reply as lines, ``label: value``."""
    output_format: OutputFormat | None = None
    """The JSON Schema of the answer, for endpoints with `ModelInfo.structured_output`; None for text."""
    stream: bool = True
    """True to request the reply as a stream; False if the endpoint may send the reply as a whole."""
    instructions: tuple[Instruction, ...] = ()
    """The instructions, in the order in which the model reads them, before the conversation."""
    endpoint_tools: bool = True
    """True if the model may use the tools that its endpoint runs itself; the endpoint's profile enables such tools."""
    streams_arguments: bool = False
    """True to receive the arguments of calls as `ArgumentsChunk`s while the model writes them."""
    on_wait: OnWait | None = field(default=None, repr=False, compare=False)
    """Called when the request waits for a retry; not part of the request that is sent."""
    patience: float = field(default=0.0, repr=False, compare=False)
    """Seconds for which the request is retried while the endpoint limits the rate of requests, beyond a few attempts;
    for a person who sees the wait and can interrupt it."""
    converted: dict[str, KeptPrefix[Any]] = field(default_factory=dict, repr=False, compare=False)
    """What the provider has made of the messages so far, which all requests of a turn repeat: they share this object,
    and the provider uses it as it likes."""

    def __post_init__(self) -> None:
        if Role.SYSTEM in [message.role for message in self.messages]:
            raise ValueError("a system message among the messages: it belongs in `instructions`")

    @property
    def allows_calls(self) -> bool:
        """True unless `ModelSettings.tool_choice` is ``none``."""
        return self.settings.tool_choice != ToolChoice.NONE

    @property
    def instruction_text(self) -> str:
        """All instructions as one text."""
        return "\n\n".join(instruction.text for instruction in self.instructions if instruction.text.strip())


def separate_instructions(messages: Sequence[Message]) -> tuple[tuple[Instruction, ...], tuple[Message, ...]]:
    """Return the system messages of a conversation as instructions, and its other messages."""
    system = (message for message in messages if message.role is Role.SYSTEM)
    instructions = tuple(Instruction(InstructionSource.CONVERSATION, message.text) for message in system)
    return instructions, tuple(message for message in messages if message.role is not Role.SYSTEM)


class FinishReason(StrEnum):
    """Why the model stopped writing. Calls are run only after `STOP` and `TOOL_CALLS`."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSED = "refused"
    CUT = "cut"
    """The stream ended without a stop reason, or with an unknown one."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """The next piece of the reply's text, as the endpoint sent it."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """The next piece of the model's reasoning, from APIs that separate it from the text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallChunk:
    """A complete tool call in the API's own form."""

    call: ToolCallRequest


@dataclass(frozen=True, slots=True)
class ArgumentsChunk:
    """The next piece of a call's arguments, as the endpoint sent it, if `ModelRequest.streams_arguments` is true.

    The complete call follows as a `CallChunk`. A provider may omit the pieces.
    """

    index: int
    """The position of the call in the reply, which identifies the call."""
    name: str
    """The tool's name."""
    text: str
    """A piece of the arguments' JSON text."""


@dataclass(frozen=True, slots=True)
class CommentaryChunk:
    """The next piece of the model's remarks about its work, from APIs that separate them from the answer."""

    text: str
    is_end: bool = False
    """True at the end of a remark."""


@dataclass(frozen=True, slots=True)
class MediaChunk:
    """An image or a file of the reply."""

    part: ImagePart | FilePart


@dataclass(frozen=True, slots=True)
class EndpointCallChunk:
    """A call of a tool that the endpoint itself runs. The client shows the call, and never runs it."""

    call: ToolCallRequest
    result: ToolCallResult | None = None
    """The result; None while the tool runs, when the arguments of the call may still be missing."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of the reply, which is always the last delta and occurs exactly once."""

    finish: FinishReason
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    echo: Any = None
    """Data that the provider needs with the assistant's message in later requests; JSON types only."""
    notes: tuple[str, ...] = ()
    """Notes for the user about this exchange, such as a dropped parameter or an omitted tool."""
    citations: tuple[Citation, ...] = ()
    """The sources of the text, with spans in the text of all `TextChunk`s together."""
    info: ModelInfo | None = None
    """The model that answered; None if it is the model of `Provider.info`."""


Delta = (
    TextChunk | ReasoningChunk | CommentaryChunk | MediaChunk | ArgumentsChunk | CallChunk | EndpointCallChunk
    | Completion
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a client knows about a model without a request. Only `name` is required; the defaults suit most models."""

    name: str
    """The provider's name. A message stores it in its `ProviderState`, sent only to a provider of this name."""
    model: str = ""
    """The model's id at its endpoint."""
    url: str = ""
    """The endpoint's URL; empty for a model without one. With `model` it determines the price of a token (`prices`)."""
    context_window: int | None = None
    """The most tokens of a request and its reply together; None if unknown."""
    tool_format: ToolFormat | str | None = None
    """The tool format of the first request; None for the API's own tool calls."""
    guidance: str | None = None
    """Instructions on tool use that replace the client's own; empty for no instructions, None for the client's own."""
    fenced_calls: bool = False
    """True if a code fence with a call, at the end of a reply, counts as a tool call: small models write calls so."""
    writes_code: bool | None = None
    """Whether the model calls tools by programs where no tool format is named, or ``auto``, and the extra ``code`` is
    there; None if its name decides this, for ``auto`` alone."""
    searches_tools: bool = False
    """True if the endpoint itself searches the tools that are `ToolSpec.deferred`."""
    structured_output: StructuredOutput = StructuredOutput.NONE
    """Whether the endpoint makes answers conform to `ModelRequest.output_format`."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no recording may contain, such as the API key."""
    prices: Mapping[str, float] = field(default_factory=dict, hash=False)
    """US dollars for a million tokens, in place of the price list: ``input`` and ``output``, and ``cached_input`` and
    ``cache_write`` if they differ from ``input``."""


class Provider(Protocol):
    """A model that answers requests. `DialClient` accepts any object with these members as its model."""

    @property
    def info(self) -> ModelInfo:
        """What is known about the model now. It may change between two requests."""

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Send a request, and yield the reply as it arrives. The last delta is a `Completion`.

        Raises:
            ProviderError: The endpoint could not be reached, refused the request, or reported an error, or the
                connection broke.
        """

    async def aclose(self) -> None:
        """Close connections and end processes; may be called twice."""


@runtime_checkable
class Preparable(Protocol):
    """A provider with preparations before its first request: imports, connections, the start of a process."""

    async def prepare(self) -> None:
        """Make the preparations now, while the servers start. Otherwise the first request makes them."""


@runtime_checkable
class Downloading(Protocol):
    """A provider that downloads its model. The client prepares it for the first turn, not when the client opens."""

    @property
    def needs_download(self) -> bool:
        """Whether the model is not on this machine yet."""


@runtime_checkable
class AnswerConstraining(Protocol):
    """A tool format that can constrain answers to a JSON Schema, for endpoints that support a grammar."""

    def constrain_answer(
        self, request: ModelRequest, tools: Sequence[ToolSpec], schema: Mapping[str, Any]
    ) -> ModelRequest:
        """Return the request with a grammar for replies that either call one of the tools or answer in `schema`."""


class ReplyReader(Protocol):
    """Reads one reply of a model: its visible text, its reasoning and its calls."""

    def feed(self, text: str) -> str:
        """Add text of the reply, and return the text to show. Text that may begin a marker is held back."""

    def reasoning(self) -> str:
        """Return the reasoning found in the text since the last call."""

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """End the reply, and return the rest of the text and the calls found in it."""


class ToolFormatHandler(Protocol):
    """Writes tools and calls into requests, and makes readers of replies. It keeps no state between requests."""

    format: ToolFormat

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return the request for a conversation (without system messages) and the tools on offer."""

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Return the instructions on calling these tools; empty if the API itself describes the tools to the model."""

    def stop_sequences(self) -> tuple[str, ...]:
        """Return the stop sequences for replies that call tools."""

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Return the calls in a whole reply, and its visible text."""

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:
        """Return a result in the form in which the model reads it."""

    def sanitize_response(self, text: str) -> str:
        """Return the reply without the markup of this format."""

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Return a reader for the next reply, which may call these tools."""

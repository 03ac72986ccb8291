"""The typed answer of one turn: how it is requested from the model, read from the reply, checked and corrected.

An endpoint with structured output enforces the schema. Other models with native tool calls get a tool for the answer.
If tool calls are text, the answer is text too; a grammar constrains it if the endpoint supports grammars.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count
from typing import Any

from dial_client.messages.events import Emit, Event, OutputDelta, StatusChanged, TextDelta
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Content, Failure, Message, TextPart, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.model import (
    AnswerConstraining,
    ArgumentsChunk,
    Instruction,
    InstructionSource,
    ModelInfo,
    ModelRequest,
    ReplyReader,
    StructuredOutput,
    ToolChoice,
    ToolFormat,
    ToolFormatHandler,
)
from dial_client.runtime.safe_text import sanitize
from dial_client.turns import status_text
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.output_type import InvalidOutput, OutputType, to_text
from dial_client.turns.resolution import Reply
from dial_client.turns.turn_recorder import TurnRecorder

# Maximum number of requests per turn for a corrected answer.
MAX_CORRECTIONS = 2
TOOL_NAME = "final_answer"
_TOOL_TEXT = "Gives the final answer to the user. Call it once, alone, when everything else is done."
_BY_TOOL = """\
A program reads your final answer: give it by calling the tool {name}, alone, once everything else is done. \
Text is not read."""
_BY_TEXT = """\
A program reads your final answer. It must be one JSON object that satisfies this JSON Schema, without any words \
before or behind it:

{schema}"""
_NOT_ALONE = "Not taken: answer when the results of the other calls are known."
_CORRECTION = """\
This answer does not satisfy its JSON Schema:
{problems}
Correct it, and give the whole answer again in the same form."""


class _GrowingText:
    """A text that arrives in fragments, and is parsed at intervals."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = self._next_length = 0

    def add(self, piece: str) -> bool:
        """Add a fragment; return whether the text should be parsed now.

        Each parse reads the whole text. The text has to grow by a sixteenth between two parses, so that the total cost
        stays proportional to its length.
        """
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length < self._next_length:
            return False
        self._next_length = self._length + self._length // 16
        return True

    def join(self) -> str:
        """Return the text so far."""
        return "".join(self._pieces)


class _JsonReader:
    """A `ReplyReader` for a JSON reply, which contains no markup."""

    def feed(self, text: str) -> str:
        return text

    def reasoning(self) -> str:
        return ""

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        return "", ()


class _AnswerMode(Enum):
    """How an answer is requested: by structured output, by a tool, or as text."""

    NATIVE = auto()
    TOOL = auto()
    TEXT = auto()


@dataclass(eq=False, slots=True)
class TypedAnswer:
    """The typed answer of one turn. How it is requested changes if the endpoint refuses a request.

    Args:
        output: The type of the answer.
        recorder: Keeps the valid answer, or the errors of the last answer.
        emit: Receives the events.
    """

    output: OutputType
    _recorder: TurnRecorder
    _emit: Emit
    tool_name: str = TOOL_NAME
    """The name of the answer tool; no offered tool has the same name."""
    latest: Any = None
    """The value of the latest `OutputDelta` of this reply; None before the first."""
    # Number of requests for a corrected answer so far.
    _corrections: int = 0
    _mode: _AnswerMode = _AnswerMode.TEXT
    _is_refused: bool = False
    _is_enforced: bool = False
    # The model's latest message that called only the answer tool.
    _call: Message | None = None
    _offered: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] | None = None
    # The text of this reply, which is held back.
    _text: _GrowingText = field(default_factory=_GrowingText)

    async def receive(self, event: Event) -> None:
        """Process an event of the reply: hold its text back, and emit partial answers instead."""
        if isinstance(event, TextDelta):
            await self._read(self._text, event.text)
        else:
            await self._emit(event)

    def begin_arguments(self) -> Callable[[ArgumentsChunk], Awaitable[None]]:
        """Return a receiver for the call arguments of one reply, which emits the partial answers in them.

        Only the first call is read: an answer that follows another call is refused.
        """
        arguments = _GrowingText()
        index: int | None = None

        async def receive(chunk: ArgumentsChunk) -> None:
            nonlocal index
            index = chunk.index if index is None else index
            if chunk.index == index and chunk.name == self.tool_name:
                await self._read(arguments, chunk.text)

        return receive

    async def _read(self, text: _GrowingText, piece: str) -> None:
        """Add a fragment of the answer, and emit the partial answer if it has changed."""
        if not text.add(piece):
            return
        try:
            value = self.output.parse_partial(text.join())
        except InvalidOutput:
            return
        if value != self.latest:
            self.latest = value
            await self._emit(OutputDelta(value))

    async def release(self) -> None:
        """Emit the text that was held back: it is not an answer of the type."""
        text, self._text = self._text.join(), _GrowingText()
        if text:
            await self._emit(TextDelta(text))

    def choose_mode(self, info: ModelInfo, tool_format: ToolFormat, *, has_tools: bool) -> None:
        """Choose how the next request asks for the answer, and begin a new reply.

        Args:
            info: Describes the model.
            tool_format: How the model writes tool calls.
            has_tools: Whether the request offers tools.
        """
        self._call, self.latest, self._text = None, None, _GrowingText()
        structured = StructuredOutput.NONE if self._is_refused else info.structured_output
        self._is_enforced = structured is StructuredOutput.WITH_TOOLS
        is_native = tool_format is ToolFormat.NATIVE
        is_alone = structured is not StructuredOutput.NONE and not has_tools
        if (self._is_enforced and is_native) or is_alone:
            self._mode = _AnswerMode.NATIVE
        else:
            self._mode = _AnswerMode.TOOL if is_native else _AnswerMode.TEXT

    def record_refusal(self) -> bool:
        """Record that the endpoint does not accept the schema; return whether the answer can be requested otherwise."""
        can_change = self._mode is _AnswerMode.NATIVE and not self._is_refused
        self._is_refused = True
        return can_change

    def offer(self, tools: tuple[ToolSpec, ...], choice: ToolChoice) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
        """Return the tools to offer, and which of them the model may call.

        Args:
            tools: The offered tools; the same tuple object while they do not change.
            choice: Which of `tools` the model may call.
        """
        if self._mode is _AnswerMode.NATIVE and not self._is_enforced:
            return (), ToolChoice.AUTO
        if self._mode is not _AnswerMode.TOOL:
            return tools, choice
        tools = tools if choice is ToolChoice.AUTO else ()
        if self._offered is None or self._offered[0] is not tools:
            names = {tool.name for tool in tools}
            candidates = (f"{TOOL_NAME}_{number}" if number else TOOL_NAME for number in count())
            self.tool_name = next(name for name in candidates if name not in names)
            form = self.output.format
            description = "\n\n".join(part for part in (_TOOL_TEXT, form.description) if part)
            answer_tool = ToolSpec(self.tool_name, description, form.schema, original_schema=self.output.schema)
            self._offered = (tools, (*tools, answer_tool))
        return self._offered[1], ToolChoice.AUTO

    def build_instructions(self) -> tuple[Instruction, ...]:
        """Return the instructions that describe the form of the answer to the model."""
        match self._mode:
            case _AnswerMode.TOOL:
                text = _BY_TOOL.format(name=self.tool_name)
            case _AnswerMode.NATIVE if self._is_enforced:
                return ()
            case _:
                form = self.output.format
                schema = json.dumps(form.schema, ensure_ascii=False)
                text = "\n\n".join(part for part in (_BY_TEXT.format(schema=schema), form.description) if part)
        return (Instruction(InstructionSource.HOST, text),)

    def constrain(self, request: ModelRequest, handler: ToolFormatHandler, tools: tuple[ToolSpec, ...]) -> ModelRequest:
        """Return the request, with its answer constrained to the form if the endpoint or the tool format can do so."""
        if self._mode is _AnswerMode.NATIVE:
            return replace(request, output_format=self.output.format)
        if self._mode is _AnswerMode.TOOL:
            return replace(request, streams_arguments=request.stream)
        if isinstance(handler, AnswerConstraining):
            return handler.constrain_answer(request, tools, self.output.format.schema)
        return request

    def build_reader(self, handler: ToolFormatHandler, tools: tuple[ToolSpec, ...]) -> ReplyReader:
        """Return the reader of the next reply."""
        return _JsonReader() if self._mode is _AnswerMode.NATIVE else handler.reader(tools)

    def take_answer(self, message: Message) -> Message:
        """Return the model's message; if it calls only the answer tool, the call's arguments become its text."""
        calls = message.tool_calls
        if self._mode is not _AnswerMode.TOOL or any(call.name != self.tool_name for call in calls):
            return message
        self._call = message
        call = calls[0]
        text = json.dumps(dict(call.arguments), ensure_ascii=False) if call.unreadable is None else call.unreadable
        return replace(message, content=text, tool_calls=(), echo=None, citations=())

    def refuse_beside_calls(self, calls: Sequence[ToolCallRequest]) -> tuple[Message, ...]:
        """Return a failed result for each answer that was called beside other tools, whose results come first."""
        answers = [call for call in calls if call.name == self.tool_name and self._mode is _AnswerMode.TOOL]
        return tuple(
            Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, _NOT_ALONE)) for call in answers
        )

    async def check(self, reply: Reply) -> Reply | None:
        """Record and emit the answer of a reply, and return it as one line of JSON; None for an invalid answer."""
        message = reply.message
        try:
            parsed = self.output.parse(message.text)
        except InvalidOutput as invalid:
            self._recorder.output_errors = invalid.errors
            return None
        self._recorder.output, self._recorder.output_errors = parsed.value, None
        text = sanitize(to_text(parsed.json))
        if parsed.value is None or parsed.value != self.latest:
            await self._emit(OutputDelta(parsed.value))
        await self._emit(TextDelta(text))
        content: Content = text
        if not isinstance(message.content, str):
            content = (TextPart(text), *(part for part in message.content if not isinstance(part, TextPart)))
        return replace(reply, message=replace(message, content=content, citations=()))

    async def request_correction(self, context: ConversationContext, reply: Reply) -> ConversationContext | None:
        """Return the context that asks the model to correct its answer; None if the limits allow no further request.

        A correction counts as a round. It is not stored in the conversation, which keeps only the last answer.
        """
        if self._corrections == MAX_CORRECTIONS or not context.may_descend:
            return None
        self._corrections += 1
        errors = self._recorder.output_errors or ()
        problems = "; ".join(errors)
        self._recorder.note(f"an answer was not of the requested form and was returned to the model: {problems}")
        await self._emit(StatusChanged(status_text.CORRECTING))
        return context.descend(*self._build_correction(reply.message, errors))

    async def give_up(self, reply: Reply) -> Reply:
        """Return the reply as the end of the turn, with its invalid answer as text."""
        self._recorder.note(f"the answer is not of the requested form: {'; '.join(self._recorder.output_errors or ())}")
        await self._emit(TextDelta(reply.message.text))
        return Reply(reply.message, StopReason.INVALID_OUTPUT)

    def _build_correction(self, message: Message, errors: Sequence[str]) -> tuple[Message, tuple[Message]]:
        """Return the model's original message with the invalid answer, and a message that requests a correction."""
        text = _CORRECTION.format(problems="\n".join(f"- {error}" for error in errors))
        if self._call is None:
            if self._mode is _AnswerMode.TOOL:
                text += f" Call the tool {self.tool_name} for that."
            return message, (Message.user(text),)
        call = self._call.tool_calls[0]
        result = ToolCallResult.failed(call.id, Failure.BAD_ARGUMENTS, text)
        return replace(self._call, tool_calls=(call,)), (Message.tool(call, result),)


def is_answer(reply: Reply) -> bool:
    """Return whether a reply ends the turn with text, which has to be of the turn's type."""
    return reply.stop_reason is StopReason.ANSWERED and bool(reply.message.text.strip())

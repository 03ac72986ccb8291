"""The form of the answer that one turn requests from its model: how it is requested, and where it is read.

An endpoint with structured output is held to the schema. Elsewhere the model is offered a tool for its answer, where it
has tools of its own; where tools are text, the answer is text, and a grammar where the endpoint takes one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import count
from typing import Any

from dial_client.messages.message import Failure, Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.model import (
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
from dial_client.schema.output_type import InvalidOutput, OutputType
from dial_client.turn_data.events import Emit, Event, MessageCompleted, OutputDelta, TextDelta
from dial_client.turns.resolution import CallTools

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


class _Way(Enum):
    NATIVE = auto()
    TOOL = auto()
    TEXT = auto()


class AnswerFormat:
    """How the answer of one turn is requested. It changes with what the endpoint refuses.

    Args:
        output: the type of the answer.
    """

    def __init__(self, output: OutputType[Any]) -> None:
        self.output = output
        self.tool_name = TOOL_NAME
        """The name of the tool for the answer; no tool on offer has it."""
        self._way = _Way.TEXT
        self._is_refused = False
        self._is_enforced = False
        self._call: Message | None = None
        """The model's latest message that called only the tool for the answer."""
        self.latest: Any = None
        """The latest value of an `OutputDelta` of this reply; None before the first."""
        self._offered: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] | None = None

    def choose_way(self, info: ModelInfo, tool_format: ToolFormat, *, has_tools: bool) -> None:
        """Choose how the next request asks for the answer.

        Args:
            info: what is known of the model.
            tool_format: how tool calls are written.
            has_tools: the request offers tools.
        """
        self._call = None
        structured = StructuredOutput.NONE if self._is_refused else info.structured_output
        self._is_enforced = structured is StructuredOutput.WITH_TOOLS
        is_native = tool_format is ToolFormat.NATIVE
        is_alone = structured is not StructuredOutput.NONE and not has_tools
        if (self._is_enforced and is_native) or is_alone:
            self._way = _Way.NATIVE
        else:
            self._way = _Way.TOOL if is_native else _Way.TEXT

    def record_refusal(self) -> bool:
        """Record that the endpoint does not take the schema; return whether there is another way to ask."""
        can_change = self._way is _Way.NATIVE and not self._is_refused
        self._is_refused = True
        return can_change

    def offer(self, tools: tuple[ToolSpec, ...], choice: ToolChoice) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
        """Return the tools to offer, and which of them the model may call.

        Args:
            tools: the tools on offer; the same object for as long as they do not change.
            choice: which of these the model may call.
        """
        if self._way is not _Way.TOOL:
            return ((), ToolChoice.AUTO) if self._way is _Way.NATIVE and not self._is_enforced else (tools, choice)
        tools = tools if choice is ToolChoice.AUTO else ()
        if self._offered is None or self._offered[0] is not tools:
            self._offered = (tools, (*tools, self._build_tool(tools)))
        return self._offered[1], ToolChoice.AUTO

    def _build_tool(self, tools: tuple[ToolSpec, ...]) -> ToolSpec:
        names = {tool.name for tool in tools}
        candidates = (f"{TOOL_NAME}_{number}" if number else TOOL_NAME for number in count())
        self.tool_name = next(name for name in candidates if name not in names)
        form = self.output.format
        description = "\n\n".join(part for part in (_TOOL_TEXT, form.description) if part)
        return ToolSpec(self.tool_name, description, form.schema, original_schema=self.output.schema)

    def instructions(self) -> tuple[Instruction, ...]:
        """Return what the model has to know about the form of its answer."""
        match self._way:
            case _Way.TOOL:
                text = _BY_TOOL.format(name=self.tool_name)
            case _Way.NATIVE if self._is_enforced:
                return ()
            case _:
                form = self.output.format
                schema = json.dumps(form.schema, ensure_ascii=False)
                text = "\n\n".join(part for part in (_BY_TEXT.format(schema=schema), form.description) if part)
        return (Instruction(InstructionSource.HOST, text),)

    def constrain(self, request: ModelRequest, handler: ToolFormatHandler, tools: tuple[ToolSpec, ...]) -> ModelRequest:
        """Return the request with the form of its answer."""
        if self._way is _Way.NATIVE:
            return replace(request, output_format=self.output.format)
        if self._way is _Way.TOOL:
            return replace(request, streams_arguments=request.stream)
        if isinstance(handler, AnswerConstraining):
            return handler.constrain_answer(request, tools, self.output.format.schema)
        return request

    def reader(self, handler: ToolFormatHandler, tools: tuple[ToolSpec, ...]) -> ReplyReader:
        """Return the reader of the next reply."""
        return _JsonReader() if self._way is _Way.NATIVE else handler.reader(tools)

    def take_answer(self, message: Message) -> Message:
        """Return the model's message; one that only calls the tool for the answer becomes the answer as text."""
        calls = message.tool_calls
        if self._way is not _Way.TOOL or any(call.name != self.tool_name for call in calls):
            return message
        self._call = message
        call = calls[0]
        text = json.dumps(dict(call.arguments), ensure_ascii=False) if call.unreadable is None else call.unreadable
        return replace(message, content=text, tool_calls=(), echo=None, citations=())

    def build_correction(self, message: Message, errors: Sequence[str]) -> tuple[Message, Message]:
        """Return the model's message with an invalid answer as it was, and the message that asks for another one."""
        text = _CORRECTION.format(problems="\n".join(f"- {error}" for error in errors))
        if self._call is None:
            if self._way is _Way.TOOL:
                text += f" Call the tool {self.tool_name} for that."
            return message, Message.user(text)
        results = [
            Message.tool(call, ToolCallResult.failed(call.id, Failure.BAD_ARGUMENTS, text))
            for call in self._call.tool_calls[:1]
        ]
        return replace(self._call, tool_calls=self._call.tool_calls[:1]), results[0]

    def answer_own_calls(self, call_tools: CallTools) -> CallTools:
        """Return a `CallTools` that refuses the answer beside other calls: their results come first."""

        async def run(calls: Sequence[ToolCallRequest], emit: Emit) -> tuple[Message, ...]:
            own = [call for call in calls if call.name == self.tool_name]
            if not own or self._way is not _Way.TOOL:
                return tuple(await call_tools(calls, emit))
            results = await call_tools([call for call in calls if call.name != self.tool_name], emit)
            refused = [Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, _NOT_ALONE)) for call in own]
            for message in refused:
                await emit(MessageCompleted(message))
            return (*results, *refused)

        return run


class AnswerStream:
    """Receives the events of one reply: its text is held back, and typed answers that it begins are emitted.

    Args:
        answer: the form of the answer.
        emit: receives all other events.
    """

    def __init__(self, answer: AnswerFormat, emit: Emit) -> None:
        self._answer = answer
        answer.latest = None
        self._emit = emit
        self._text = _GrowingText()

    async def receive(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, TextDelta):
            await self._read(self._text, event.text)
        else:
            await self._emit(event)

    def begin_arguments(self) -> Callable[[ArgumentsChunk], Awaitable[None]]:
        """Return what receives the arguments of the calls of one reply: an answer may be among them.

        A call beside the answer ends that: the answer will not be taken.
        """
        arguments = _GrowingText()
        index: int | None = None

        async def receive(chunk: ArgumentsChunk) -> None:
            nonlocal index
            index = chunk.index if index is None else index
            if chunk.index == index and chunk.name == self._answer.tool_name:
                await self._read(arguments, chunk.text)

        return receive

    async def _read(self, text: _GrowingText, piece: str) -> None:
        """Add a piece of the answer, and emit what the answer is so far."""
        if not text.add(piece):
            return
        try:
            value = self._answer.output.parse_partial(text.join())
        except InvalidOutput:
            return
        if value != self._answer.latest:
            self._answer.latest = value
            await self._emit(OutputDelta(value))

    async def release(self) -> None:
        """Emit the text that was held back: it is no answer of the type."""
        text, self._text = self._text.join(), _GrowingText()
        if text:
            await self._emit(TextDelta(text))


class _GrowingText:
    """A text that comes in pieces, and is read now and then."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = self._next_length = 0

    def add(self, piece: str) -> bool:
        """Add a piece; return whether the text is to be read.

        It is read whole each time: it has to grow by a part of itself, or a long text costs its square.
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
    """Reads a reply that is JSON: nothing in it is markup. A `ReplyReader`."""

    def feed(self, text: str) -> str:
        return text

    def reasoning(self) -> str:
        return ""

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        return "", ()

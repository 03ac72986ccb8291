"""A conversation as a model reads it that has no tool calls of its own: everything is text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, takewhile
from typing import Any

from dial_client.formats.call_syntaxes import TAGS
from dial_client.formats.special_tokens import Markers
from dial_client.messages import NO_OUTPUT, Message, Role, TextPart, ToolCallRequest, ToolCallResult, ToolSpec, describe
from dial_client.model import Instruction, InstructionSource, ModelRequest

NO_RESULT = "(no result: the call was interrupted)"

_SPACE = r"[ \t\xa0\u2000-\u200b\u202f\u3000\ufeff*_#]"
_LABEL = re.compile(
    rf"(?:\A|(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]))"
    rf"(?={_SPACE}*(?:Thought|Action|Action{_SPACE}{{0,4}}Input|Observation|Final{_SPACE}{{1,4}}Answer){_SPACE}*[:\uff1a])",
    re.IGNORECASE,
)
_NAMES = (
    r"tool_call|tool_response|tool_calls|tools|think|function_calls?|s|bos|eos|pad|escape"
    r"|start_of_\w{1,32}|end_of_\w{1,32}|(?:start|end)_function_(?:call|response|declaration)"
)
_TAG = (
    rf"(?={Markers(*TAGS, tokens=True).pattern})[<\[\u25c1]"
    rf"|<(?=\s{{0,4}}/?\s{{0,4}}(?:{_NAMES})\b|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|THINK)\])"
)
_WRITTEN = {"<": "&lt;", "[": "&#91;", "\u25c1": "&#9665;"}


def neutralize(text: str) -> str:
    """Make what a server wrote harmless in a conversation that is text: it can neither end its turn nor begin another.

    Labels at the beginning of a line are quoted (``> Observation:``), and of tags and a template's own tokens the
    bracket is written as an entity (``&lt;tool_call>``), so what was there can still be read.
    """
    return _tags().sub(lambda found: _WRITTEN[found.group()], _LABEL.sub("> ", text))


@cache
def _tags() -> re.Pattern[str]:
    return re.compile(_TAG, re.IGNORECASE)


def as_text(
    messages: Sequence[Message],
    said: Callable[[Message], str],
    format_result: Callable[[ToolCallRequest, ToolCallResult], str],
) -> Iterator[Message]:
    """Give the messages without tool calls and results: the results of a round are one message of the user's.

    Args:
        messages: the conversation; a result without a call is left out, a call without a result is said to have none.
        said: gives what the model said in a message of its own, calls included.
        format_result: gives a result as the model reads it.
    """
    for at, message in enumerate(messages, 1):
        if message.role is Role.ASSISTANT:
            yield Message.assistant(said(message))
            if message.tool_calls:
                answers = takewhile(lambda later: later.role is Role.TOOL, islice(messages, at, None))
                results = _results(message.tool_calls, answers)
                yield Message.user("\n".join(format_result(*pair) for pair in results))
        elif message.role is not Role.TOOL:
            yield _harmless(message)


def _harmless(message: Message) -> Message:
    """Make harmless what servers wrote of a message."""
    if isinstance(message.content, str):
        return message
    parts = (
        replace(part, text=neutralize(part.text)) if isinstance(part, TextPart) and part.foreign else part
        for part in message.content
    )
    return replace(message, content=tuple(parts))


def _results(
    calls: Sequence[ToolCallRequest], answers: Iterator[Message]
) -> Iterator[tuple[ToolCallRequest, ToolCallResult]]:
    waiting: defaultdict[str | None, list[Message]] = defaultdict(list)
    for answer in answers:
        waiting[answer.tool_call_id].append(answer)
    for call in calls:
        if waiting[call.id]:
            answer = waiting[call.id].pop(0)
            yield call, ToolCallResult(call.id, success=not answer.is_error, content=answer.content)
        else:
            yield call, ToolCallResult(call.id, success=False, content=NO_RESULT)


def result_text(result: ToolCallResult) -> str:
    """Give a result in harmless words, marked where it is an error; a line stands for each image and document."""
    if isinstance(result.content, str):
        text = result.content
    else:
        text = "\n".join(
            part.text if isinstance(part, TextPart) else f"[{describe(part)}: it cannot be shown here]"
            for part in result.content
        )
    text = neutralize(text) if text.strip() else NO_OUTPUT
    return text if result.success or text.lower().startswith("error") else f"ERROR: {text}"


def request_in_text(messages: Iterable[Message], instructions: str, stop: tuple[str, ...]) -> ModelRequest:
    """Ask with messages that are text; without instructions nothing is on offer, and nothing stops the reply."""
    if not instructions:
        return ModelRequest(tuple(messages))
    instruction = Instruction(InstructionSource.TOOL_FORMAT, instructions)
    return ModelRequest(tuple(messages), instructions=(instruction,), stop=stop)


class Instructions:
    """What `write` tells about the tools on offer, written once for each tuple of them."""

    def __init__(self, write: Callable[[Sequence[ToolSpec]], str]) -> None:
        self._write = write
        self._last: tuple[Sequence[ToolSpec], str] = ((), "")

    def on(self, tools: Sequence[ToolSpec]) -> str:
        """Give the instructions on these tools; empty for none."""
        if not tools:
            return ""
        if tools is not self._last[0] or not isinstance(tools, tuple):
            self._last = (tools, self._write(tools))
        return self._last[1]


def tool_lines(tools: Iterable[ToolSpec], as_json: Callable[[ToolSpec], dict[str, Any]]) -> str:
    """Give each tool as a line of JSON; what servers wrote in it is harmless."""
    return "\n".join(neutralize(compact(as_json(tool))) for tool in tools)


def definition(tool: ToolSpec) -> dict[str, Any]:
    """Give ``{"name", "description", "parameters"}``."""
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}


def compact(value: Any) -> str:
    """Write JSON in one line, as a model reads it best: other languages' letters are not escaped."""
    return json.dumps(value, ensure_ascii=False)


def arguments_text(call: ToolCallRequest) -> str:
    """Give the arguments as the model wrote them, or would have."""
    return compact(dict(call.arguments)) if call.unreadable is None else call.unreadable

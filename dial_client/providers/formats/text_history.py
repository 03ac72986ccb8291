"""Conversion of conversations to plain text, for models without native tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dial_client.messages.message import (
    NO_OUTPUT,
    Message,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    describe,
)
from dial_client.messages.model import Instruction, InstructionSource, ModelRequest
from dial_client.providers.api_history import pair_results
from dial_client.providers.formats.call_syntaxes import TAGS
from dial_client.providers.formats.stream_buffer import Markers
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.schema.gbnf import Grammar

NO_RESULT = "(no result: the call was interrupted)"

_SPACE = r"[ \t\xa0\u2000-\u200b\u202f\u3000\ufeff*_#]"
# Decorated labels, other spaces and other line ends count too: models read them as labels.
_LABEL = compile_lazily(
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
# An entity keeps the text readable, and no tokenizer turns it back into a special token.
_ENTITIES = {"<": "&lt;", "[": "&#91;", "\u25c1": "&#9665;"}


def neutralize(text: str) -> str:
    """Return an MCP server's text with labels and tags escaped, so that it cannot end its turn or begin a new one.

    Labels at the start of a line are quoted (``> Observation:``). The opening bracket of a tag or special token becomes
    an entity (``&lt;tool_call>``), so the text stays readable.
    """
    # Labels first: the tags of a quoted label are escaped as well.
    return re.compile(_TAG, re.IGNORECASE).sub(lambda found: _ENTITIES[found.group()], _LABEL.sub("> ", text))


def as_text(
    messages: Sequence[Message],
    format_reply: Callable[[Message], str],
    format_result: Callable[[ToolCallRequest, ToolCallResult], str],
) -> Iterator[Message]:
    """Yield the messages with calls and results as text. All results of a reply's calls become one user message.

    Args:
        messages: The conversation. A result without a call is dropped; a call without a result gets a placeholder.
        format_reply: The function that returns an assistant message as text, with its calls.
        format_result: The function that returns a result as text.
    """
    for message, results in pair_results(messages):
        if message.role is Role.ASSISTANT:
            yield Message.assistant(format_reply(message))
            if message.tool_calls:
                yield Message.user("\n".join(map(format_result, message.tool_calls, map(_to_result, results))))
        else:
            content = message.content
            if not isinstance(content, str):  # texts of servers must not imitate a turn
                content = tuple(
                    replace(part, text=neutralize(part.text)) if isinstance(part, TextPart) and part.foreign else part
                    for part in content
                )
            yield replace(message, content=content)


def _to_result(sent: Message | None) -> ToolCallResult:
    if sent is None:
        return ToolCallResult("", success=False, content=NO_RESULT)
    return ToolCallResult(sent.tool_call_id or "", success=not sent.is_error, content=sent.content)


def format_result_text(result: ToolCallResult) -> str:
    """Return a result as escaped text, marked if it is an error, with a line in place of each image or document."""
    if isinstance(result.content, str):
        text = result.content
    else:
        text = "\n".join(
            part.text if isinstance(part, TextPart) else f"[{describe(part)}: it cannot be shown here]"
            for part in result.content
        )
    text = neutralize(text) if text.strip() else NO_OUTPUT
    return text if result.success or text.lower().startswith("error") else f"ERROR: {text}"


def build_text_request(messages: Iterable[Message], instructions: str, stop: tuple[str, ...]) -> ModelRequest:
    """Return a request with text messages; empty instructions mean no tools, and so no stop sequences."""
    if not instructions:
        return ModelRequest(tuple(messages))
    instruction = Instruction(InstructionSource.TOOL_FORMAT, instructions)
    return ModelRequest(tuple(messages), instructions=(instruction,), stop=stop)


def build_json_grammar(schema: Mapping[str, Any]) -> str:
    """Return the grammar of replies that are JSON values of a schema."""
    rules = Grammar()
    return rules.to_text(rules.add_answer(schema))


class ToolText:
    """A text about the tools on offer, cached for the last tuple of tools.

    Args:
        write: The function that returns the text for a sequence of tools.
    """

    def __init__(self, write: Callable[[Sequence[ToolSpec]], str]) -> None:
        self._write = write
        self._latest: tuple[Sequence[ToolSpec], str] = ((), "")

    def for_tools(self, tools: Sequence[ToolSpec]) -> str:
        """Return the text for the tools; empty for no tools."""
        if not tools:
            return ""
        if tools is not self._latest[0] or not isinstance(tools, tuple):
            self._latest = (tools, self._write(tools))
        return self._latest[1]


def format_tool_lines(tools: Iterable[ToolSpec], as_json: Callable[[ToolSpec], dict[str, Any]]) -> str:
    """Return a line of JSON for each tool, with the servers' texts escaped."""
    return "\n".join(neutralize(to_json_line(as_json(tool))) for tool in tools)


def to_definition(tool: ToolSpec) -> dict[str, Any]:
    """Return the definition of a tool: ``{"name", "description", "parameters"}``."""
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}


def to_json_line(value: Any) -> str:
    """Return JSON on one line, with non-ASCII letters unescaped, because models read them better."""
    return json.dumps(value, ensure_ascii=False)


def format_reply(message: Message, call_template: str) -> str:
    """Return the text of an assistant message, and its calls; unreadable arguments are those that the model wrote.

    Args:
        message: The message.
        call_template: The template of a call, with ``{name}`` or ``{json_name}``, and ``{arguments}``.
    """
    calls = (
        call_template.format(
            name=" ".join(call.name.split()),
            json_name=to_json_line(call.name),
            arguments=to_json_line(dict(call.arguments)) if call.unreadable is None else call.unreadable,
        )
        for call in message.tool_calls
    )
    return "\n".join(filter(None, (message.text, *calls)))

"""Calls as tags in the text: ``<tool_call>{"name": …, "arguments": …}</tool_call>``, as Hermes and Qwen have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from dial_client.formats.stream_parser import ReplyParser, read_reply
from dial_client.formats.text_history import (
    Instructions,
    arguments_text,
    as_text,
    compact,
    definition,
    request_in_text,
    result_text,
    tool_lines,
)
from dial_client.logs import get_logger
from dial_client.messages import Message, Role, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.model import ModelRequest, ReplyReader, ToolFormat
from dial_client.schema.gbnf import Grammar, literal

log = get_logger(__name__)

_PROMPT = """\
# Tools

You may call one or more functions to assist with the user query. You cannot act or know live data in any other way.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>

Then stop: the result comes back within <tool_response></tool_response> XML tags. Never write a result yourself.
When no function is needed, or none any more, answer the user in plain words, without tags.

For example, if there were a function "stock_of_book", the question how many copies of "Dune" are left would be met with
<tool_call>
{{"name": "stock_of_book", "arguments": {{"title": "Dune"}}}}
</tool_call>
and, after the result 3, with: There are 3 copies of "Dune" left."""


class XMLFormatHandler:
    """Tools in the instructions, calls in tags. A legacy: a model with tool calls of its own does better with those."""

    format = ToolFormat.XML

    def __init__(self) -> None:
        _say_that_it_is_legacy()
        self._instructions = Instructions(self.system_prompt)
        self._grammar = Instructions(partial(_grammar, bare=True))
        self._grammar_behind_results = Instructions(partial(_grammar, bare=False))

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Make everything text; where nothing is on offer there are no instructions, and nothing stops the reply."""
        told = as_text(messages, _said, self.format_result)
        request = request_in_text(told, self._instructions.on(tools), self.stop_sequences())
        if not tools:
            return request
        is_behind_results = bool(messages) and messages[-1].role is Role.TOOL
        grammar = self._grammar_behind_results if is_behind_results else self._grammar
        return replace(request, grammar=grammar.on(tools))

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Give the instructions: the tools, the tags, an example; empty without tools."""
        return _PROMPT.format(tools=tool_lines(tools, _function)) if tools else ""

    def stop_sequences(self) -> tuple[str, ...]:
        """Give what a model writes that makes up the result of its own call."""
        return ("<tool_response>",)

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Find the calls in a whole reply; broken ones too, with what could not be read of them."""
        return read_reply(ReplyParser(None), text)

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - the order says which
        """Give the result in tags, with nothing in it that could end them."""
        return f"<tool_response>\n{result_text(result)}\n</tool_response>"

    def sanitize_response(self, text: str) -> str:
        """Give the text around calls and thoughts."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Make a reader for the next reply, which may call these tools."""
        return ReplyParser(tools)


def _grammar(tools: Sequence[ToolSpec], *, bare: bool) -> str:
    """Give what a reply may be where it can be held to that: calls that fit, or words and perhaps calls behind them.

    A small model leaves the tags out and, where it must not, answers in words instead: so a call may stand `bare`.
    Behind results it would go on calling. Words do not begin as JSON or a tag does, and no other tag in them begins as
    that of a call does.
    """
    rules = Grammar()
    inputs = [
        f"{literal(_opening(tool.name))} {rules.object(tool.input_schema, f't{at}')}" for at, tool in enumerate(tools)
    ]
    object_ = f'( {" | ".join(inputs)} ) "}}"'
    call = rf'"<tool_call>\n" {object_} "\n</tool_call>"'
    calls = rf'{call} ( "\n" {call} )*'
    words = rf'[^{_NO_WORD}] ( [^<] | "<" [^t] | "<t" [^o] )*'
    replies = [calls, f"{words} ( {calls} )?", *([object_] if bare else [])]
    return rules.text(" | ".join(replies))


_NO_WORD = r"<>{}()\[\]`,;:=/|&^%@!+~\\ \t\n"
"""Characters with which no answer begins, but what is left of a call when its first character was not allowed."""


def _opening(name: str) -> str:
    return f'{{"name": {compact(name)}, "arguments": '


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "function": definition(tool)}


def _said(message: Message) -> str:
    return "\n".join(filter(None, (message.text, *map(_call, message.tool_calls))))


def _call(call: ToolCallRequest) -> str:
    return f"<tool_call>\n{_opening(call.name)}{arguments_text(call)}}}\n</tool_call>"


@cache
def _say_that_it_is_legacy() -> None:
    log.info("legacy_tool_format", format=ToolFormat.XML.value)

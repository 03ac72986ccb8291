"""Thought, Action, Action Input, Observation, Final Answer: for models without tool calls of their own.

What people see is the text of the final answer, and a reply without any of these labels as it is. Thoughts are
reasoning. The first action ends the reply: what a model writes behind it is an observation of its own invention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dial_client.formats.call_syntaxes import TAGS
from dial_client.formats.special_tokens import Markers
from dial_client.formats.stream_buffer import Pieces, StepResult, Steps
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
from dial_client.messages import Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.model import ModelRequest, ReplyReader, ToolFormat
from dial_client.schema.gbnf import Grammar, literal

STOP = ("\nObservation:", "\nObservation")

_PROMPT = """\
## Tools

You can use these tools. You cannot act or know live data in any other way.

{tools}

## How to use a tool

When the request needs a tool, reply in exactly this form, then stop:

Thought: what has to be found out or done, and by which tool
Action: the name of the tool
Action Input: {{"parameter": "value"}}

The tool is then run, and you get its result as an Observation. After it you may use another tool in the same way.

## How to answer

When the Observations tell enough, or the request needs no tool, reply in this form:

Thought: what the Observations tell, or why no tool is needed
Final Answer: the whole answer to the user

## Rules

1. One tool in a reply, no more.
2. Stop after Action Input. Never write an Observation yourself.
3. Action is exactly one of: {names}
4. Action Input is one JSON object, with a value for each parameter the tool requires.
5. Answer from the Observations; do not repeat an Action that has been done.
6. If an Action fails, try another way. If there is none, say in the Final Answer what could not be done.

## An example, with a tool that is not one of yours

To find out how many copies of "Dune" are left:

Thought: The stock of the book has to be looked up with stock_of_book.
Action: stock_of_book
Action Input: {{"title": "Dune"}}
Observation: 3
Thought: The Observation tells that there are 3 copies.
Final Answer: There are 3 copies of "Dune" left."""


class ReActFormatHandler:
    """Tools in the instructions, one call in a reply, its result as an observation."""

    format = ToolFormat.REACT

    def __init__(self) -> None:
        self._instructions = Instructions(self.system_prompt)
        self._grammar = Instructions(_grammar)
        self._schema: tuple[Sequence[ToolSpec], dict[str, Any]] = ((), {})

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Make everything text; where nothing is on offer there are no instructions, and nothing stops the reply."""
        told = as_text(messages, _said if tools else _said_plainly, self.format_result)
        request = request_in_text(told, self._instructions.on(tools), self.stop_sequences())
        if not tools:
            return request
        if tools is not self._schema[0]:
            self._schema = (tools, _schema(tools))
        return replace(request, grammar=self._grammar.on(tools), schema=self._schema[1])

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Give the instructions: the tools, the form, the rules, an example; empty without tools."""
        names = ", ".join(tool.name for tool in tools)
        return _PROMPT.format(tools=tool_lines(tools, definition), names=names) if tools else ""

    def stop_sequences(self) -> tuple[str, ...]:
        """Give what keeps the model from making up its own observation."""
        return STOP

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Find the call in a whole reply, and the text for people: the final answer, or a reply without labels."""
        return read_reply(_ReActReading(None, one_call=True), text)

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - one at a time
        """Give the result as an observation, with nothing in it that could pass for another turn."""
        return f"Observation: {result_text(result)}"

    def sanitize_response(self, text: str) -> str:
        """Give the text for people, without thoughts, actions and labels."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Make a reader for the next reply, which may call one of these tools."""
        return _ReActReading(tools, one_call=True)


def _grammar(tools: Sequence[ToolSpec]) -> str:
    """Give what a reply may be where it can be held to that: a thought, then a call that fits or an answer."""
    rules = Grammar()
    calls = [
        f"{literal(f'{tool.name}{_TO_INPUT}')} {rules.object(tool.input_schema, f't{at}')}"
        for at, tool in enumerate(tools)
    ]
    line = r"[^\n] [^\n]*"
    call = f'"Action: " ( {" | ".join(calls)} )'
    answer = rf'"Final Answer: " {line} ( "\n" "\n"? {line} )*'
    return rules.text(rf'"Thought: " {line} "\n" ( {call} | {answer} )')


_TO_INPUT = "\nAction Input: "


def _schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Give the same as a JSON Schema, whose objects have the labels as keys."""
    text = {"type": "string"}
    calls = [{"Thought": text, "Action": {"enum": [tool.name]}, "Action Input": _input(tool)} for tool in tools]
    return {"anyOf": [_object(**one) for one in (*calls, {"Thought": text, "Final Answer": text})]}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _input(tool: ToolSpec) -> Any:
    """Give a tool's schema, unless it refers to places in itself: inside another one those lie elsewhere."""
    return {"type": "object"} if '"$ref"' in compact(dict(tool.input_schema)) else tool.input_schema


def _said(message: Message) -> str:
    if message.tool_calls or not message.text.strip():
        return _said_plainly(message)
    return f"Final Answer: {message.text}"


def _said_plainly(message: Message) -> str:
    return "\n".join(filter(None, (message.text, *map(_call, message.tool_calls))))


def _call(call: ToolCallRequest) -> str:
    return f"Action: {' '.join(call.name.split())}\nAction Input: {arguments_text(call)}"


_NAMES = ("Thought", "Action", "Action Input", "Action_Input", "ActionInput", "Final Answer", "Observation")
_ANY_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_ANY_PART = "|".join(sorted({name[:end] for name in _NAMES for end in range(1, len(name))}, key=len, reverse=True))
_DECORATION = r"[ \t*#]{0,8}"
_LONGEST = 1 + 8 + max(map(len, _NAMES)) + 4


class _Labels:
    """Labels at the beginning of a line or of a reply, perhaps in bold or indented, and markers anywhere."""

    def __init__(self, markers: Markers | None, decoration: str = _DECORATION) -> None:
        self._markers = markers
        self._label = rf"{decoration}(?:{_ANY_NAME})[ \t*]{{0,4}}:"
        self._begun = rf"{decoration}(?:{_ANY_PART}|(?:{_ANY_NAME})[ \t*]{{0,4}})?\Z"

    @cached_property
    def first(self) -> Callable[[str], object]:
        """Say whether a text has any character with which a marker could begin."""
        return re.compile(f"[\n{re.escape(self._markers.leads if self._markers else '')}]").search

    @cached_property
    def _search(self) -> Callable[[str, int], re.Match[str] | None]:
        strings = f"|{self._markers.pattern}" if self._markers else ""
        return re.compile(rf"(?i:\n{self._label})|\nObservation{strings}").search

    @cached_property
    def _match(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(self._label, re.IGNORECASE).match

    @cached_property
    def _part(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(rf"\n{self._begun}", re.IGNORECASE).match

    @cached_property
    def _first_part(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(self._begun, re.IGNORECASE).match

    def search(self, text: str, at: int, *, fresh: bool) -> re.Match[str] | None:
        """Find the first whole marker from `at` on."""
        return (self._match(text, at) if fresh else None) or self._search(text, at)

    def held(self, text: str, at: int, *, fresh: bool) -> int:
        """Give how many characters at the end of the text, from `at` on, may be the beginning of a marker."""
        size = len(text)
        if fresh and size - at <= _LONGEST and self._first_part(text, at):
            return size - at
        line = text.rfind("\n", max(at, size - _LONGEST))
        held = size - line if line >= 0 and self._part(text, line) else 0
        return max(held, self._markers.held(text, at)) if self._markers else held


_BEFORE_LABELS = _Labels(Markers(*TAGS, "Action:", tokens=True))
_IN_THOUGHT = _Labels(Markers(*TAGS, "Final Answer:", "Action:", "Action Input:", tokens=True))
_IN_ANSWER = _Labels(Markers(*TAGS, tokens=True), decoration="")
_BEHIND_ACTION = _Labels(Markers("Action Input:"))
_BEHIND_INPUT = _Labels(None)


_SENTENCE_END = re.compile(r"(?:\A|\n)[^>\n][^\n]{0,70}[.!?:][ \t]{1,4}\Z")
"""A short line of the model's own, not one it quotes: there a neutralize label may stand."""

_NO_TOOL = frozenset({"", "none", "n/a", "null"})


class _ReActReading(ReplyParser):
    """Goes from label to label, up to the first action or to the end of the answer."""

    def _reply(self) -> Steps:
        self._marked = True
        yield from self._whole()
        marker = yield from self._words()
        thought = Pieces()
        while marker:
            match _label(marker):
                case "observation":
                    return ""
                case "action":
                    marker = yield from self._action()
                    if not marker:
                        return ""
                case "final answer":
                    return (yield from self._answer(is_bold="*" in marker))
                case _:
                    thought = Pieces()
                    marker = yield from self._thought(thought)
        if not (self._begun or self._calls or thought.is_too_long):
            self._show(thought.text.strip(" \t\r\n*"))  # an answer that its label was forgotten of
        return ""

    def _words(self) -> Steps:
        """Show what stands before the first label; an action within a line is one if it names an offered tool."""
        marker = yield from self._through_tags(_BEFORE_LABELS, self._show)
        while marker == "Action:" and self._tail and not self._tail.endswith("\n"):
            if _SENTENCE_END.search(self._tail) and (yield from self._incoming.look(self._may_name_tool)):
                break
            self._show(marker)
            marker = yield from self._through_tags(_BEFORE_LABELS, self._show)
        return marker

    def _may_name_tool(self, text: str) -> StepResult:
        name = text.lstrip(" \t*`'\"")
        return self._offer.begins_with_name(name) if name else None

    def _thought(self, kept: Pieces) -> Steps:
        def take(text: str) -> None:
            self._think(text)
            kept.add(text)

        return (yield from self._through_tags(_IN_THOUGHT, take))

    def _answer(self, *, is_bold: bool) -> Steps:
        """Show the answer; another label behind it ends it, for then the model goes on talking to itself."""
        if self._begun:
            self._visible.append("\n")
        self._begun = False
        self._unshown = " \t\r\n*" if is_bold else None
        yield from self._through_tags(_IN_ANSWER, self._show)
        return ""

    def _action(self) -> Steps:
        """Read a call; without an input it is one only if it names an offered tool, else it is a thought."""
        said, given = Pieces(), Pieces()
        marker = label = yield from self._incoming.until(_BEHIND_ACTION, said.add)
        has_input = _label(label) == "action input"
        if has_input:
            marker = yield from self._incoming.until(_BEHIND_INPUT, given.add)
        if given.is_too_long or said.is_too_long:
            return marker
        name, text = _tool_name(said.text), given.text
        if not has_input and self._offer.offered((apart := _tool_and_input(said.text))[0]):
            name, text = apart
        if name.casefold() in _NO_TOOL or not (has_input or self._offer.offered(name)):
            return marker
        self._found([self._offer.request(name, text.lstrip(" \t\r\n*") if "*" in label else text)])
        return ""


def _label(marker: str) -> str:
    name = marker.strip("\n\t *#:").replace("_", " ").casefold()
    return "action input" if name == "actioninput" else name


def _tool_name(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[0].strip(" \t`'\"*[]()") if lines else ""


def _tool_and_input(said: str) -> tuple[str, str]:
    """Part a tool from an input without a label of its own: ``f {…}``, ``f({…})``, or the input in the next line."""
    name, opening, rest = said.partition("{")
    return name.strip(" \t\r\n`'\"*[(:"), opening + rest.rstrip(" \t\r\n`*)")

"""The ReAct format (Thought, Action, Action Input, Observation, Final Answer), for models without native tool calls.

The user sees the final answer, or the whole reply if it has no labels. Thoughts are reasoning. The first action ends
the reply, because text after it is an observation that the model invents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dial_client.messages.message import Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.model import ModelRequest, ReplyReader, ToolFormat
from dial_client.providers.formats import text_history
from dial_client.providers.formats.call_syntaxes import TAGS
from dial_client.providers.formats.stream_buffer import BoundedText, Lookahead, Markers, MarkerSearch, Parsing
from dial_client.providers.formats.stream_parser import ReplyParser, read_reply
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.schema.gbnf import Grammar

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
    """Describes tools in the instructions, expects one call per reply, and sends its result as an observation."""

    format = ToolFormat.REACT

    def __init__(self) -> None:
        self._prompt = text_history.ToolText(self.system_prompt)
        self._grammar = text_history.ToolText(_build_grammar)
        self._schema: tuple[Sequence[ToolSpec], dict[str, Any]] = ((), {})

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return a request with all messages as text; without tools it has no instructions and no stop sequences."""
        write_reply = _format_labelled_reply if tools else _format_reply
        conversation = text_history.as_text(messages, write_reply, self.format_result)
        request = text_history.build_text_request(conversation, self._prompt.for_tools(tools), self.stop_sequences())
        if not tools:
            return request
        if tools is not self._schema[0]:
            self._schema = (tools, _build_schema(tools))
        return replace(request, grammar=self._grammar.for_tools(tools), schema=self._schema[1])

    def constrain_answer(
        self, request: ModelRequest, tools: Sequence[ToolSpec], schema: Mapping[str, Any]
    ) -> ModelRequest:
        """Return `request` with a grammar for calls of `tools`, and for final answers in JSON that satisfy `schema`."""
        if not tools:
            return replace(request, grammar=text_history.build_json_grammar(schema))
        return replace(request, grammar=_build_grammar(tools, schema), schema=_build_schema(tools, schema))

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Return the instructions, with the tools, the reply format, the rules and an example; empty without tools."""
        names = ", ".join(tool.name for tool in tools)
        return (
            _PROMPT.format(tools=text_history.format_tool_lines(tools, text_history.to_definition), names=names)
            if tools
            else ""
        )

    def stop_sequences(self) -> tuple[str, ...]:
        """Return the label of an observation, which the model would otherwise invent."""
        return STOP

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Return the call of a complete reply, and the text for the user (the final answer, or text without labels)."""
        return read_reply(_ReActParser(None, one_call=True), text)

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - one call per reply
        """Return the result as an observation, escaped so that it cannot imitate another turn."""
        return f"Observation: {text_history.format_result_text(result)}"

    def sanitize_response(self, text: str) -> str:
        """Return the text for the user, without thoughts, actions and labels."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Return a reader for the next reply, which may call one of the tools."""
        return _ReActParser(tools, one_call=True)


def _build_grammar(tools: Sequence[ToolSpec], answer_schema: Mapping[str, Any] | None = None) -> str:
    """Return the grammar of a reply: a thought, then a valid call or an answer, which is JSON if there is a schema."""
    rules = Grammar()
    calls = rules.add_calls((f"{tool.name}\nAction Input: ", tool.input_schema) for tool in tools)
    line = r"[^\n] [^\n]*"
    call = f'"Action: " ( {calls} )'
    text = rf'{line} ( "\n" "\n"? {line} )*'
    answer = f'"Final Answer: " {text if answer_schema is None else rules.add_answer(answer_schema)}'
    return rules.to_text(rf'"Thought: " {line} "\n" ( {call} | {answer} )')


def _build_schema(tools: Sequence[ToolSpec], answer_schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a JSON Schema for the same replies as `_build_grammar`, with the labels as keys."""
    text = {"type": "string"}
    definitions = answer_schema.get("$defs") if answer_schema is not None else None
    answer = {key: value for key, value in (answer_schema or text).items() if key != "$defs"}
    calls = [
        {"Thought": text, "Action": {"enum": [tool.name]}, "Action Input": _choose_input_schema(tool)} for tool in tools
    ]
    replies = [
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
        for properties in (*calls, {"Thought": text, "Final Answer": answer})
    ]
    return {"anyOf": replies, **({"$defs": definitions} if definitions else {})}


def _choose_input_schema(tool: ToolSpec) -> Any:
    """Return a tool's schema; one for any object if it has references, which do not resolve within another schema."""
    return {"type": "object"} if '"$ref"' in text_history.to_json_line(dict(tool.input_schema)) else tool.input_schema


def _format_labelled_reply(message: Message) -> str:
    is_answer = not message.tool_calls and message.text.strip()
    return f"Final Answer: {message.text}" if is_answer else _format_reply(message)


def _format_reply(message: Message) -> str:
    return text_history.format_reply(message, "Action: {name}\nAction Input: {arguments}")


_NAMES = ("Thought", "Action", "Action Input", "Action_Input", "ActionInput", "Final Answer", "Observation")
_ANY_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_ANY_PART = "|".join(sorted({name[:end] for name in _NAMES for end in range(1, len(name))}, key=len, reverse=True))
_DECORATION = r"[ \t*#]{0,8}"
_LONGEST = 1 + 8 + max(map(len, _NAMES)) + 4


class _Labels(Markers):
    """Matches labels at the start of a line or reply, perhaps bold or indented, and markers anywhere."""

    def __init__(self, *markers: str, tokens: bool = False, decoration: str = _DECORATION) -> None:
        super().__init__(*markers, tokens=tokens)
        self._label = rf"{decoration}(?:{_ANY_NAME})[ \t*]{{0,4}}:"
        self._begun = rf"{decoration}(?:{_ANY_PART}|(?:{_ANY_NAME})[ \t*]{{0,4}})?\Z"

    @cached_property
    def has_lead(self) -> Callable[..., re.Match[str] | None]:
        """A function that returns None for a text without any character that could begin a marker."""
        return re.compile(f"[\n{re.escape(self.leads)}]").search

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        """The patterns of a label, of any marker, and of the beginning of a label, also after a line break."""
        strings = f"|{self.pattern}" if self._markers else ""
        anywhere = rf"(?i:\n{self._label})|\nObservation{strings}"
        begun = (re.compile(begun, re.IGNORECASE) for begun in (self._begun, rf"\n{self._begun}"))
        return re.compile(self._label, re.IGNORECASE), re.compile(anywhere), *begun

    def search(self, text: str, start: int, *, at_line_start: bool = False) -> re.Match[str] | None:
        """Return the first complete marker from `start` on."""
        label, anywhere, *_ = self._patterns
        return (label.match(text, start) if at_line_start else None) or anywhere.search(text, start)

    def count_partial(self, text: str, start: int, *, at_line_start: bool = False) -> int:
        """Return the number of characters at the end of the text, from `start` on, that may begin a marker."""
        size = len(text)
        *_, begun, begun_after_break = self._patterns
        if at_line_start and size - start <= _LONGEST and begun.match(text, start):
            return size - start
        line = text.rfind("\n", max(start, size - _LONGEST))
        partial = size - line if line >= 0 and begun_after_break.match(text, line) else 0
        return max(partial, super().count_partial(text, start)) if self._markers else partial


_BEFORE_LABELS = _Labels(*TAGS, "Action:", tokens=True)
_IN_THOUGHT = _Labels(*TAGS, "Final Answer:", "Action:", "Action Input:", tokens=True)
_IN_ANSWER = _Labels(*TAGS, tokens=True, decoration="")
_BEHIND_ACTION = _Labels("Action Input:")
_BEHIND_INPUT = _Labels()


# Matches the end of a sentence in a short line that is not a quotation, which could contain a neutralized label.
_SENTENCE_END = compile_lazily(r"(?:\A|\n)[^>\n][^\n]{0,70}[.!?:][ \t]{1,4}\Z")

_NO_TOOL = frozenset({"", "none", "n/a", "null"})


class _ReActParser(ReplyParser):
    """Parses a reply label by label, up to the first action or to the end of the answer."""

    def _parse(self) -> Parsing:
        self._output.note_marker()
        yield from self._parse_bare_calls()
        marker = yield from self._parse_before_labels()
        thought = BoundedText()
        while marker:
            match _find_label(marker):
                case "observation":
                    return
                case "action":
                    marker = yield from self._parse_action()
                    if not marker:
                        return
                case "final answer":
                    # The next label ends the answer, because the text after it is not meant for the user.
                    self._output.begin_answer(" \t\r\n*" if "*" in marker else None)
                    yield from self._parse_text(_IN_ANSWER, self._output.add_text)
                    return
                case _:
                    thought = BoundedText()
                    marker = yield from self._parse_thought(thought)
        if not (self._output.has_begun or self._calls.calls or thought.is_too_long):
            self._output.add_text(thought.text.strip(" \t\r\n*"))  # an answer without a label

    def _parse_before_labels(self) -> MarkerSearch:
        """Show the text before the first label. An action within a line counts if it names an offered tool."""
        marker = yield from self._parse_text(_BEFORE_LABELS, self._output.add_text)
        while marker == "Action:" and self._output.tail and not self._output.tail.endswith("\n"):
            is_at_sentence_end = _SENTENCE_END.search(self._output.tail)
            if is_at_sentence_end and (yield from self._buffer.look_ahead(self._begins_with_tool)):
                break
            self._output.add_text(marker)
            marker = yield from self._parse_text(_BEFORE_LABELS, self._output.add_text)
        return marker

    def _begins_with_tool(self, text: str) -> Lookahead:
        name = text.lstrip(" \t*`'\"")
        return self._offer.begins_with_name(name) if name else None

    def _parse_thought(self, thought: BoundedText) -> MarkerSearch:
        def add(text: str) -> None:
            self._output.add_reasoning(text)
            thought.add(text)

        return (yield from self._parse_text(_IN_THOUGHT, add))

    def _parse_action(self) -> MarkerSearch:
        """Parse an action, and return an empty marker if it is a call, or else the next label.

        An action without an input is a call only if it names an offered tool; otherwise it is part of the thoughts.
        """
        action, arguments = BoundedText(), BoundedText()
        marker = label = yield from self._buffer.read_until(_BEHIND_ACTION, action.add)
        has_input = _find_label(label) == "action input"
        if has_input:
            marker = yield from self._buffer.read_until(_BEHIND_INPUT, arguments.add)
        if arguments.is_too_long or action.is_too_long:
            return marker
        lines = action.text.strip().splitlines()
        name, text = lines[0].strip(" \t`'\"*[]()") if lines else "", arguments.text
        if not has_input and self._offer.find_name((split := _split_action(action.text))[0]):
            name, text = split
        if name.casefold() in _NO_TOOL or not (has_input or self._offer.find_name(name)):
            return marker
        self._calls.add([self._offer.to_request(name, text.lstrip(" \t\r\n*") if "*" in label else text)])
        return ""


def _find_label(marker: str) -> str:
    name = marker.strip("\n\t *#:").replace("_", " ").casefold()
    return "action input" if name == "actioninput" else name


def _split_action(action: str) -> tuple[str, str]:
    """Return the tool and input of an action without an input label: ``f {…}``, ``f({…})``, or input on a new line."""
    name, opening, rest = action.partition("{")
    return name.strip(" \t\r\n`'\"*[(:"), opening + rest.rstrip(" \t\r\n`*)")

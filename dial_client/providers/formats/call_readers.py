"""Readers of the calls at the beginning of a text: in JSON, Python, tags around values, and Gemma's braces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.schema import tool_arguments

# The most calls of one reply.
MAX_CALLS = 16

_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "function", "tool_name")
_CALL_KEYS = frozenset({*_NAMES, *_ARGUMENTS, "id", "call_id", "tool_call_id", "index", "type"})
_WRAPPER_KEYS = frozenset({"function", "id", "call_id", "tool_call_id", "index", "type"})
_FILLING = compile_lazily(r"(?>(?:[\s;,]|```[\w-]{0,32}+|<[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>|</?tool_calls?>)*)")
# Atomic: a string without an end is scanned once, not again from each quotation mark.
_STRINGS = compile_lazily(r'[^"]*+(?>(?:"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"[^"]*+)*)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonCall:
    """A call as it is written in the text."""

    name: str
    arguments: Any
    """An object, or the text of an object; None for a call without arguments."""
    are_texts: bool = False
    """True if the syntax has no types, so that every value is a string."""


@dataclass(frozen=True, slots=True)
class FoundCalls:
    """The calls at the beginning of a text."""

    calls: list[JsonCall] = field(default_factory=list)
    rest: str = ""
    """The text after the calls."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The JSON value at the beginning of a text."""

    value: dict[str, Any] | list[Any] | None = None
    """An object or an array; None if there is neither."""
    rest: str = ""
    """The text after the value."""


def decode(text: str, *, lenient: bool = True) -> Decoded:
    """Return the object or array at the beginning of a text, after an optional code fence.

    Args:
        text: The text to parse.
        lenient: True to accept Python literals and almost-JSON in short texts.
    """
    text = text.lstrip()
    if fence := tool_arguments.FENCE.match(text):
        text = text[fence.end() :].lstrip()
    if text[:1] not in ("{", "["):
        return Decoded()
    try:
        value, end = tool_arguments.DECODER.raw_decode(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string"):
            return Decoded()  # the end of the string is unknown, so there is nothing to repair
        if not lenient or len(text) > tool_arguments.MAX_LENIENT_CHARS:
            return Decoded()
        value, rest = tool_arguments.parse_leniently(text)
        return Decoded(value, rest.removeprefix("\n```"))
    return Decoded(value, text[end:].removeprefix("\n```")) if tool_arguments.is_shallow(value) else Decoded()


def ends_in_string(text: str) -> bool:
    """Return True if a text ends within a JSON string, so that a following marker belongs to the string."""
    found = _STRINGS.match(text)
    return found is None or found.end() < len(text)


def parse_json_calls(text: str) -> FoundCalls:
    """Return the calls at the beginning of a text: a sequence of JSON objects or arrays of objects.

    Raises:
        Unreadable: One of the values is not a call, or there are no values.
    """
    calls: list[JsonCall] = []
    rest = text
    while len(calls) <= MAX_CALLS:
        decoded = decode(rest)
        if decoded.value is None:
            break
        calls += to_calls(decoded.value)
        rest = decoded.rest
        following = _FILLING.sub("", rest, count=1)
        if following[:1] not in ("{", "["):
            break
        rest = following
    if not calls:
        raise tool_arguments.Unreadable("no call")
    return FoundCalls(calls, rest)


def parse_only_json_calls(text: str) -> FoundCalls:
    """Return the calls of a text that contains only calls as JSON, code fences and special tokens.

    Raises:
        Unreadable: The text contains anything else.
    """
    found = parse_json_calls(_FILLING.sub("", text, count=1))
    if not _FILLING.fullmatch(found.rest):
        raise tool_arguments.Unreadable("there is more than calls")
    return FoundCalls(found.calls)


def to_calls(value: Any) -> list[JsonCall]:
    """Return the calls of a JSON value.

    Raises:
        Unreadable: The value is not a call or a list of calls.
    """
    if isinstance(value, list):
        return [_to_call(item) for item in value[: MAX_CALLS + 1]]
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list) and len(value) == 1:
        return to_calls(value["tool_calls"])
    return [_to_call(value)]


def _to_call(value: Any) -> JsonCall:
    if not isinstance(value, Mapping):
        raise tool_arguments.Unreadable("no object")
    if isinstance(inner := value.get("function"), Mapping):
        if not value.keys() <= _WRAPPER_KEYS:
            raise tool_arguments.Unreadable("more than a call")
        value = inner
    name = next((value[key] for key in _NAMES if key in value), None)
    arguments = [value[key] for key in _ARGUMENTS if key in value]
    if not isinstance(name, str) or len(arguments) != 1 or not value.keys() <= _CALL_KEYS:
        raise tool_arguments.Unreadable("not a call")
    return JsonCall(name, arguments[0])


# The most characters of calls that are parsed value by value.
MAX_LITERAL_CHARS = 16 * 1024

_NEXT_CALL = compile_lazily(r"[\s;]{0,16}+[^\W\d][\w.-]{0,127}+\(")

# Returns the calls at the beginning of a text; raises `Unreadable` if there are none.
CallReader = Callable[[str], FoundCalls]


def parse_python(text: str) -> FoundCalls:
    """Return the calls of ``[f(a=1), g()]``, or of lines with one call each; only keyword arguments are accepted.

    Raises:
        Unreadable: The text does not have this syntax.
    """
    if len(text) > MAX_LITERAL_CHARS:
        raise tool_arguments.Unreadable("too long")
    source = tool_arguments.LiteralParser(text)
    bracketed = source.skip("[")
    calls = [_parse_python_call(source)]
    while (source.skip(",") and source.peek() != "]") or (not bracketed and _NEXT_CALL.match(text, source.position)):
        calls.append(_parse_python_call(source))
    if bracketed and not source.skip("]"):
        raise tool_arguments.Unreadable("the list has no end")
    return FoundCalls(calls, text[source.position :])


def _parse_python_call(source: tool_arguments.LiteralParser) -> JsonCall:
    source.skip(";")
    name = source.parse_word()
    if not name or not source.skip("("):
        raise tool_arguments.Unreadable("no call")
    arguments: dict[str, object] = {}
    while not source.skip(")"):
        if arguments and not source.skip(","):
            raise tool_arguments.Unreadable("something is missing between two arguments")
        if source.skip(")"):
            break
        key = source.parse_word()
        if not key or key in arguments or not source.skip("="):
            raise tool_arguments.Unreadable("no keyword argument")
        arguments[key] = source.parse_value()
    return JsonCall(name, arguments)


def parse_braces(quote: str, text: str) -> FoundCalls:
    """Return the call in ``call:n{k:<escape>v<escape>}``, the syntax of FunctionGemma and Gemma 4 (with another quote).

    Raises:
        Unreadable: The text does not have this syntax.
    """
    if len(text) > MAX_LITERAL_CHARS:
        raise tool_arguments.Unreadable("too long")
    source = tool_arguments.LiteralParser(text, quote=quote)
    if source.parse_word() != "call" or not source.skip(":") or not (name := source.parse_word()):
        raise tool_arguments.Unreadable("no call")
    arguments = source.parse_value() if source.peek() == "{" else None
    if not isinstance(arguments, dict):
        raise tool_arguments.Unreadable("no arguments")
    return FoundCalls([JsonCall(name, arguments)], text[source.position :])


class Tags:
    """A syntax with tags around each value.

    Args:
        pattern: A regular expression for the tags. Its groups identify a tag: ``call`` matches the name of a call,
            ``key`` the name of an argument, and ``typed`` is set for an argument whose value is JSON.
        value_begin: The beginning of the tag before a value.
        value_end: The tag after a value.
    """

    def __init__(self, pattern: str, value_begin: str, value_end: str) -> None:
        self._tag = compile_lazily(rf"{pattern}|(?P<value>{value_end})")
        self._value_begin = value_begin
        self._value_end = value_end

    def is_open(self, text: str) -> bool:
        """Return True if a text ends within a value."""
        return text.rfind(self._value_begin) > text.rfind(self._value_end)

    def read(self, text: str, first: str | None = None) -> FoundCalls:
        """Return the calls of a text. One line break before and after each value is removed.

        Args:
            text: The tags, with names and values between them.
            first: The name of the first call, if no tag contains it.

        Raises:
            Unreadable: There are no calls, or a value has no end.
        """
        calls: list[JsonCall] = []
        values: dict[str, Any] = {}
        if first is not None:
            calls.append(JsonCall(first, values, are_texts=True))
        key: re.Match[str] | None = None
        end = 0
        for tag in self._tag.finditer(text):
            groups, end = tag.groupdict(), tag.end()
            if key is not None:
                if groups.get("call") is not None:
                    continue
                value = text[key.end() : tag.start()].removeprefix("\n").removesuffix("\n")
                values[key["key"].strip()] = _parse_json(value) if key.groupdict().get("typed") else value
            elif groups.get("call") is not None:
                values = {}
                calls.append(JsonCall(tag["call"].strip(), values, are_texts=True))
            key = tag if groups["key"] is not None else None
        if key is not None or not calls:
            raise tool_arguments.Unreadable("a value without an end" if key else "no call")
        return FoundCalls(calls, text[end:])


def _parse_json(text: str) -> Any:
    """Return the value of a JSON text; the text itself if it is not JSON."""
    value = tool_arguments.parse_value(text)
    return text if value is None and text.strip() != "null" else value


_NAME = r"[^<>\"'\n]{1,128}+"

QWEN = Tags(rf"<function=(?P<call>{_NAME})>|<parameter=(?P<key>{_NAME})>|</function>", "<parameter=", "</parameter>")
MINIMAX = Tags(
    rf'<invoke name="(?P<call>{_NAME})">|<parameter name="(?P<key>{_NAME})">|</invoke>',
    "<parameter name=",
    "</parameter>",
)
DSML = Tags(
    rf'<\uff5cDSML\uff5cinvoke name="(?P<call>{_NAME})">|</\uff5cDSML\uff5cinvoke>'
    rf'|<\uff5cDSML\uff5cparameter name="(?P<key>{_NAME})"(?: string="(?:true|(?P<typed>false))")?>',
    "<\uff5cDSML\uff5cparameter",
    "</\uff5cDSML\uff5cparameter>",
)
GLM = Tags(rf"<arg_key>(?P<key>{_NAME})</arg_key>\s{{0,8}}+<arg_value>", "<arg_value>", "</arg_value>")


def parse_glm(text: str) -> FoundCalls:
    """Return the call in GLM's syntax: a name, then alternating ``<arg_key>`` and ``<arg_value>`` tags.

    Raises:
        Unreadable: The text does not have this syntax.
    """
    found = GLM.read(text, text.partition("<")[0].strip())
    if text.count("<arg_key>") > text.count("<arg_value>"):
        raise tool_arguments.Unreadable("a key without a value")
    return found if "<arg_key>" in text else FoundCalls([JsonCall(found.calls[0].name, None, are_texts=True)])


_NAME_FIRST = compile_lazily(r"\s*+([\w.-]{1,128}+)(?:\[CALL_ID\][\w-]{0,64}+)?(?:\[ARGS\])?")
_NUMBERED = compile_lazily(r":\d{1,9}\Z")


def parse_name_first(text: str) -> FoundCalls:
    """Return the call in ``name{…}`` or ``name[ARGS]{…}``, the syntax of Mistral's tokenizers since version 11.

    Raises:
        Unreadable: The text does not have this syntax.
    """
    found = _NAME_FIRST.match(text)
    if found is None:
        raise tool_arguments.Unreadable("no name")
    return parse_arguments(found.group(1), text[found.end() :])


def parse_arguments(name: str, text: str) -> FoundCalls:
    """Return the call of a tool with the arguments at the beginning of a text.

    Raises:
        Unreadable: There are no arguments.
    """
    decoded = decode(text)
    if not isinstance(decoded.value, dict):
        raise tool_arguments.Unreadable("no arguments")
    return FoundCalls([JsonCall(name.strip(), decoded.value)], decoded.rest)


def parse_separated(separator: str, text: str) -> FoundCalls:
    """Return the call in the syntax of Kimi and DeepSeek: a name, a separator and arguments.

    Raises:
        Unreadable: The text does not have this syntax.
    """
    name, found, rest = text.partition(separator)
    if found and name.strip() == "function":
        name, found, rest = rest.lstrip().partition("\n")
    if not found:
        raise tool_arguments.Unreadable("no arguments")
    return parse_arguments(_NUMBERED.sub("", name.strip()), rest)


def parse_function_tag(text: str) -> FoundCalls:
    """Return the calls after ``<function=``, in Qwen's tags or Llama's JSON.

    Raises:
        Unreadable: The text does not have this syntax.
    """
    name, found, rest = text.partition(">")
    if found and rest.lstrip()[:1] == "{":
        return parse_arguments(name, rest)
    return QWEN.read(f"<function={text}")


def parse_tags(opener: str, tags: Tags, text: str) -> FoundCalls:
    """Return the calls of a text in tags, whose first tag is `opener`.

    Raises:
        Unreadable: The text does not have this syntax.
    """
    return tags.read(opener + text)

"""Parses calls in JSON at the beginning of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.schema.json_repair import LiteralParser, Unreadable
from dial_client.schema.tool_arguments import DECODER, FENCE, MAX_LENIENT_CHARS, is_shallow

MAX_CALLS = 16
"""The most calls of one reply."""

_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "function", "tool_name")
_CALL_KEYS = frozenset({*_NAMES, *_ARGUMENTS, "id", "call_id", "tool_call_id", "index", "type"})
_WRAPPER_KEYS = frozenset({"function", "id", "call_id", "tool_call_id", "index", "type"})
_FILLING = re.compile(r"(?>(?:[\s;,]|```[\w-]{0,32}+|<[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>|</?tool_calls?>)*)")
_STRINGS = re.compile(r'[^"]*+(?>(?:"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"[^"]*+)*)', re.DOTALL)


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
    if fence := FENCE.match(text):
        text = text[fence.end() :].lstrip()
    if text[:1] not in ("{", "["):
        return Decoded()
    try:
        value, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string"):
            return Decoded()  # the end of the string is unknown, so there is nothing to repair
        return _decode_lenient(text) if lenient and len(text) <= MAX_LENIENT_CHARS else Decoded()
    return Decoded(value, text[end:].removeprefix("\n```")) if is_shallow(value) else Decoded()


def _decode_lenient(text: str) -> Decoded:
    source = LiteralParser(text)
    try:
        value = source.parse_value()
    except (Unreadable, RecursionError, MemoryError):
        return Decoded()
    return Decoded(value, text[source.position :].removeprefix("\n```"))


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
        filling = _FILLING.match(rest)
        following = rest[filling.end() :] if filling else rest
        if following[:1] not in ("{", "["):
            break
        rest = following
    if not calls:
        raise Unreadable("no call")
    return FoundCalls(calls, rest)


def parse_only_json_calls(text: str) -> FoundCalls:
    """Return the calls of a text that contains only calls as JSON, code fences and special tokens.

    Raises:
        Unreadable: The text contains anything else.
    """
    start = _FILLING.match(text)
    found = parse_json_calls(text[start.end() :] if start else text)
    end = _FILLING.match(found.rest)
    if end is None or end.end() < len(found.rest):
        raise Unreadable("there is more than calls")
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
        raise Unreadable("no object")
    if isinstance(inner := value.get("function"), Mapping):
        if not value.keys() <= _WRAPPER_KEYS:
            raise Unreadable("more than a call")
        value = inner
    name = next((value[key] for key in _NAMES if key in value), None)
    arguments = [value[key] for key in _ARGUMENTS if key in value]
    if not isinstance(name, str) or len(arguments) != 1 or not value.keys() <= _CALL_KEYS:
        raise Unreadable("not a call")
    return JsonCall(name, arguments[0])

"""Calls as JSON: what one looks like, and how it is read from the beginning of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.schema.json_repair import Literals, Unreadable
from dial_client.schema.tool_arguments import MAX_LENIENT_CHARS, is_shallow, refuse

MAX_CALLS = 16
"""Calls taken from one reply."""

_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "function", "tool_name")
_CALL_KEYS = frozenset({*_NAMES, *_ARGUMENTS, "id", "call_id", "tool_call_id", "index", "type"})
_WRAPPER_KEYS = frozenset({"function", "id", "call_id", "tool_call_id", "index", "type"})
_FENCE = re.compile(r"```[\w-]{0,32}+")
_FILLING = re.compile(r"(?:[\s;,]|```[\w-]{0,32}+|<[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>|</?tool_calls?>)*+")
_STRINGS = re.compile(r'[^"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"]*+)*+', re.DOTALL)
_DECODER = json.JSONDecoder(parse_constant=refuse, strict=False)


@dataclass(frozen=True, slots=True)
class JsonCall:
    """One call as it stands in the text."""

    name: str
    arguments: Any
    """An object, or the text of one; None where nothing stands there."""
    are_texts: bool = False
    """The dialect has no types: every value is a text."""


@dataclass(frozen=True, slots=True)
class Found:
    """The calls at the beginning of a text."""

    calls: list[JsonCall] = field(default_factory=list)
    rest: str = ""
    """The text behind them."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The JSON at the beginning of a text."""

    value: dict[str, Any] | list[Any] | None = None
    """An object or an array; None where there is neither."""
    rest: str = ""
    """The text behind it."""
    open_string: bool = False
    """There is no value, because the text ends inside one of its strings."""


def decode(text: str, *, lenient: bool = True) -> Decoded:
    """Read the object or the array a text begins with; a fence before it does not matter.

    Args:
        text: what is read.
        lenient: a short text may be Python's, or JSON almost.
    """
    text = text.lstrip()
    if fence := _FENCE.match(text):
        text = text[fence.end() :].lstrip()
    if text[:1] not in ("{", "["):
        return Decoded()
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string"):
            return Decoded(open_string=True)
        return _lenient(text) if lenient and len(text) <= MAX_LENIENT_CHARS else Decoded()
    return Decoded(value, text[end:].removeprefix("\n```")) if is_shallow(value) else Decoded()


def _lenient(text: str) -> Decoded:
    source = Literals(text)
    try:
        value = source.value()
    except (Unreadable, RecursionError, MemoryError):
        return Decoded()
    return Decoded(value, text[source.at :].removeprefix("\n```"))


def ends_in_string(text: str) -> bool:
    """Whether a text with JSON in it ends inside a string of it: then what looks like a marker is a part of that."""
    found = _STRINGS.match(text)
    return found is None or found.end() < len(text)


def in_json(text: str) -> Found:
    """Read calls as JSON: objects, or arrays of them, one behind the other.

    Raises:
        Unreadable: one of them is none.
    """
    calls: list[JsonCall] = []
    rest = text
    while len(calls) <= MAX_CALLS:
        decoded = decode(rest)
        if decoded.value is None:
            break
        calls += of_value(decoded.value)
        rest = decoded.rest
        behind = _FILLING.match(rest)
        following = rest[behind.end() :] if behind else rest
        if following[:1] not in ("{", "["):
            break
        rest = following
    if not calls:
        raise Unreadable("no call")
    return Found(calls, rest)


def whole_in_json(text: str) -> Found:
    """Read a text that is nothing but calls as JSON, fences and control tokens around them apart.

    Raises:
        Unreadable: it is anything else.
    """
    before = _FILLING.match(text)
    found = in_json(text[before.end() :] if before else text)
    behind = _FILLING.match(found.rest)
    if behind is None or behind.end() < len(found.rest):
        raise Unreadable("there is more than calls")
    return Found(found.calls)


def of_value(value: Any) -> list[JsonCall]:
    """Give the calls a JSON value stands for.

    Raises:
        Unreadable: it stands for something else.
    """
    if isinstance(value, list):
        return [_call(one) for one in value[: MAX_CALLS + 1]]
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list) and len(value) == 1:
        return of_value(value["tool_calls"])
    return [_call(value)]


def _call(value: Any) -> JsonCall:
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

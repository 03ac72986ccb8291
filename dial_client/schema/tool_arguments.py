"""Parses the arguments of a call as a model wrote them, and corrects small mismatches with the tool's schema.

Truncated arguments are not repaired, and no values are invented: a call runs with the values that the model wrote.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, NoReturn

from dial_client.runtime.json_fields import to_list, to_object
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.text import replace_surrogates
from dial_client.schema.argument_check import find_target

# The most levels of nesting; a usual call has two or three.
MAX_LITERAL_DEPTH = 32

_SPACE = compile_lazily(r"\s*+")
_DOUBLE = compile_lazily(r'"([^"\\]*+(?>(?:\\.[^"\\]*+)*))"', re.DOTALL)
_SINGLE = compile_lazily(r"'([^'\\]*+(?>(?:\\.[^'\\]*+)*))'", re.DOTALL)
_ESCAPE = compile_lazily(
    r"\\(?:u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL
)
_NUMBER = compile_lazily(r"[-+]?(\d{1,400}+)?(\.\d{0,400}+)?([eE][-+]?\d{1,3}+)?(?![\w.])")
_WORD = compile_lazily(r"[^\W\d][\w.-]{0,127}+")

_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class Unreadable(ValueError):
    """The text contains no complete value."""


class LiteralParser:
    """Parses a text value by value.

    Args:
        text: The text to parse.
        quote: A delimiter of strings in addition to quotation marks; strings within it have no escapes.
    """

    def __init__(self, text: str, quote: str = "") -> None:
        self.text = text
        self.position = 0
        self._quote = quote

    def parse_value(self, depth: int = MAX_LITERAL_DEPTH) -> Any:
        """Parse and return a value; a tuple becomes a list.

        Raises:
            Unreadable: There is no value, or the value is incomplete.
        """
        first = self.peek()
        if depth <= 0:
            raise Unreadable("nested too deeply")
        if first == "{":
            return dict(self._parse_items(self._parse_pair, depth))
        if first and first in "[(":
            return self._parse_items(self.parse_value, depth)
        if (first and first in "\"'") or self._is_at_quote():
            return self.parse_string()
        number = _NUMBER.match(self.text, self.position)
        if number and (number.group(1) or len(number.group(2) or "") > 1):
            self.position = number.end()
            if number.group(2) is None and number.group(3) is None:
                return int(number.group())
            value = float(number.group())
            if math.isfinite(value):
                return value
            raise Unreadable("a number without an end")
        word = self.parse_word()
        if word not in _CONSTANTS:
            raise Unreadable("no value")
        return _CONSTANTS[word]

    def parse_string(self) -> str:
        """Parse and return a string.

        Raises:
            Unreadable: There is no string, or the string is incomplete.
        """
        self.peek()
        if self._is_at_quote():
            begin = self.position + len(self._quote)
            end = self.text.find(self._quote, begin)
            if end < 0:
                raise Unreadable("a string without an end")
            self.position = end + len(self._quote)
            return self.text[begin:end]
        found = _DOUBLE.match(self.text, self.position) or _SINGLE.match(self.text, self.position)
        if found is None:
            raise Unreadable("no string")
        self.position = found.end()
        text = found.group(1)
        return replace_surrogates(_ESCAPE.sub(_unescape, text)) if "\\" in text else text

    def parse_word(self) -> str:
        """Parse and return a name; empty if there is none."""
        self.peek()
        found = _WORD.match(self.text, self.position)
        if found is None:
            return ""
        self.position = found.end()
        return found.group()

    def peek(self) -> str:
        """Skip white space, and return the next character without reading it; empty at the end."""
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position
        return self.text[self.position : self.position + 1]

    def skip(self, char: str) -> bool:
        """Read the next character if it is `char`, and return True if so."""
        if self.peek() != char:
            return False
        self.position += 1
        return True

    def _is_at_quote(self) -> bool:
        return bool(self._quote) and self.text.startswith(self._quote, self.position)

    def _parse_items(self, parse_item: Any, depth: int) -> list[Any]:
        closing = _CLOSING[self.text[self.position]]
        self.position += 1
        values: list[Any] = []
        while self.peek() != closing:
            values.append(parse_item(depth - 1))
            following = self.peek()
            if following == ",":
                self.position += 1
            elif following != closing:
                raise Unreadable("something is missing between two values")
        self.position += 1
        return values

    def _parse_pair(self, depth: int) -> tuple[str, Any]:
        is_quoted = self.peek() in ("'", '"') or self._is_at_quote()
        key = self.parse_string() if is_quoted else self.parse_word()
        if not (is_quoted or key) or not self.skip(":"):
            raise Unreadable("no key")
        return key, self.parse_value(depth)


def _unescape(found: re.Match[str]) -> str:
    code = found.group(1) or found.group(2) or found.group(3)
    return chr(int(code, 16)) if code else _PLAIN.get(found.group(4), found.group())


# The most characters of a text that is parsed although it is not JSON.
MAX_LENIENT_CHARS = 8 * 1024
# The most levels of nesting; deeper values could exhaust the stack in later code.
MAX_DEPTH = 100
# The most levels of arguments that are corrected.
MAX_SCHEMA_DEPTH = 32

_MAX_REFERENCES = 8
# The most members of one ``anyOf`` or ``oneOf`` that are expanded.
_MAX_BRANCHES = 16
_MAX_ALTERNATIVES = 32
_NULLS = ("null", "None")
FENCE = compile_lazily(r"```[\w-]{0,32}+")
_INTEGER = compile_lazily(r"([-+]?\d{1,18})(?:\.0{1,18})?\Z")
_DECIMAL = compile_lazily(r"[-+]?(?:\d{1,18}(?:\.\d{1,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?\Z")


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments of one call; None if the text is not a complete object.

    JSON is accepted at any length. Up to `MAX_LENIENT_CHARS`, Python literals, single quotes, bare keys, superfluous
    commas, a code fence and a JSON text in a JSON string are accepted too. A truncated text is never completed.
    """
    value = parse_value(text)
    if isinstance(value, str):
        value = parse_value(value)
    return value if isinstance(value, dict) else None


def parse_object_sequence(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that follow each other in a text; empty if it contains anything else.

    Endpoints join the pieces of a call wrongly: an empty object before the arguments, the same object twice, or the
    object after each of its pieces. If the last object is not complete, the arguments are truncated.
    """
    objects: list[dict[str, Any]] = []
    position, end = 0, len(text)
    while (space := _SPACE.match(text, position)) and (position := space.end()) < end:
        try:
            value, position = DECODER.raw_decode(text, position)
        except (ValueError, RecursionError, MemoryError):
            return []
        if not isinstance(value, dict) or not is_shallow(value):
            return []
        objects.append(value)
    return objects


def parse_value(text: str) -> Any:
    """Return a value of any type, parsed with the same tolerance as in `parse_arguments`; None if there is none."""
    text = text.strip()
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError, MemoryError):
        value, rest = parse_leniently(strip_fence(text)) if len(text) <= MAX_LENIENT_CHARS else (None, "")
        value = None if rest.strip() else value
    return value if is_shallow(value) else None


def parse_leniently(text: str) -> tuple[Any, str]:
    """Return the value at the beginning of a text that need not be JSON, and the text after it; None if unreadable."""
    source = LiteralParser(text)
    try:
        value = source.parse_value()
    except (Unreadable, RecursionError, MemoryError):
        return None, ""
    return value, text[source.position :]


def strip_fence(text: str) -> str:
    """Return the text without surrounding white space and code fence."""
    text = text.strip()
    fence = FENCE.match(text)
    return text[fence.end() :].removesuffix("```").strip() if fence else text


def is_shallow(value: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Return True if a value has no more than `max_depth` levels of nesting."""
    level = [value]
    for _ in range(max_depth + 1):
        level = [part for nested in level for part in _list_parts(nested)]
        if not level:
            return True
    return False


def _list_parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else to_list(value)


def refuse_constant(constant: str) -> NoReturn:
    """Raise for NaN and the infinities, which Python accepts as JSON."""
    raise ValueError(f"{constant} is not JSON")


# Decodes JSON, also with line breaks within strings: this is not JSON, but its meaning is clear.
DECODER = json.JSONDecoder(parse_constant=refuse_constant, strict=False)


def coerce(arguments: Mapping[str, Any], schema: Mapping[str, Any], *, are_texts: bool = False) -> dict[str, Any]:
    """Return the arguments with harmless mismatches corrected.

    These are converted: ``"17"`` or ``"17.0"`` to an integer, ``"1.5"`` to a number, ``"true"`` to a boolean, a number
    to a string, JSON text to an object or array, and a single value to an array with this value. A null is removed if
    its property is neither required nor nullable. Other values are not changed.

    Args:
        arguments: The arguments as the model wrote them.
        schema: The tool's JSON Schema; only local references are followed.
        are_texts: True if the model wrote every value as text, including null.
    """
    return _Coercion(schema, are_texts=are_texts).coerce_top(arguments)


class _Coercion:
    def __init__(self, root: Mapping[str, Any], *, are_texts: bool) -> None:
        self._root = root
        self._are_texts = are_texts

    def coerce_top(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        branches = list(self._list_branches(self._root, 8))
        schema = branches[0] if len(branches) == 1 else self._root
        return self._coerce_properties(arguments, schema, MAX_SCHEMA_DEPTH)

    def _coerce_properties(self, values: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, required = to_object(schema.get("properties")), to_list(schema.get("required"))
        additional = schema.get("additionalProperties")
        coerced = {}
        for name, value in values.items():
            property_schema = properties.get(name, additional if name not in properties else None)
            kinds = self._list_kinds(property_schema, depth)
            if self._are_texts and value in _NULLS and kinds and "string" not in kinds:
                value = None  # noqa: PLW2901 - the text of a null
            if value is None and name in properties and name not in required and kinds and "null" not in kinds:
                continue
            coerced[name] = self._coerce(value, property_schema, depth)
        return coerced

    def _coerce(self, value: Any, schema: Any, depth: int) -> Any:
        kinds = self._list_kinds(schema, depth)
        if not kinds or depth <= 0:
            return value
        if _find_kind(value) not in kinds and not (_find_kind(value) == "integer" and "number" in kinds):
            value = self._convert(value, kinds, schema, depth)
        if isinstance(value, Mapping):
            objects = [
                branch for branch in self._list_alternatives(schema, depth) if "object" in _list_own_kinds(branch)
            ]
            return self._coerce_properties(value, objects[0], depth - 1) if len(objects) == 1 else value
        if isinstance(value, list):
            items = self._find_item_schema(schema, depth)
            return [self._coerce(item, items, depth - 1) for item in value]
        return value

    def _convert(self, value: Any, kinds: set[str], schema: Any, depth: int) -> Any:
        if isinstance(value, str):
            for kind in ("boolean", "integer", "number", "object", "array"):
                if kind in kinds and (parsed := _parse_as(kind, value)) is not None:
                    return parsed
        elif _find_kind(value) in ("integer", "number") and "string" in kinds:
            return json.dumps(value)
        if "array" not in kinds or (isinstance(value, str) and value.lstrip()[:1] == "["):
            return value
        item_kinds = self._list_kinds(self._find_item_schema(schema, depth), depth)
        return [value] if _find_kind(value) in item_kinds else value

    def _find_item_schema(self, schema: Any, depth: int) -> Any:
        branches = self._list_alternatives(schema, depth)
        items = [branch.get("items") for branch in branches if "array" in _list_own_kinds(branch)]
        return items[0] if len(items) == 1 else None

    def _list_kinds(self, schema: Any, depth: int) -> set[str]:
        return {kind for branch in self._list_alternatives(schema, depth) for kind in _list_own_kinds(branch)}

    def _list_alternatives(self, schema: Any, depth: int) -> list[Mapping[str, Any]]:
        """Return the alternative schemas of a value; an empty list if one of them has no type, or for too many."""
        branches = list(self._list_branches(schema, min(depth, _MAX_REFERENCES)))
        return branches if len(branches) <= _MAX_ALTERNATIVES and all(map(_list_own_kinds, branches)) else []

    def _list_branches(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        """Yield the schemas that a value may match: references are resolved, and ``anyOf`` and ``oneOf`` expanded.

        Each level of alternatives uses up four of `depth`.
        """
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            schema = find_target(self._root, schema["$ref"])
        if not isinstance(schema, Mapping):
            yield {}
            return
        branches = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), None)
        whole = schema.get("allOf")
        if branches is None and isinstance(whole, list) and len(whole) == 1 and "type" not in schema:
            branches = whole
        if branches is None or depth <= 0:
            yield schema
            return
        for branch in branches[:_MAX_BRANCHES]:
            yield from self._list_branches(branch, depth - 4)


def _list_own_kinds(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type")
    if kind is None and isinstance(values := schema.get("enum"), list):
        return {_find_kind(value) for value in values}
    return {name for name in (kind if isinstance(kind, list) else [kind]) if isinstance(name, str)}


# The types of JSON Schema; booleans first, because in Python they are integers too.
_KINDS = {NoneType: "null", bool: "boolean", str: "string", int: "integer", Mapping: "object"}


def _find_kind(value: Any) -> str:
    """Return the JSON Schema type of a value. A number with a zero fraction is an integer."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return next((kind for type_, kind in _KINDS.items() if isinstance(value, type_)), "array")


def _parse_as(kind: str, text: str) -> Any:
    """Return the value of a JSON Schema type in a text; None if the text contains none."""
    text = text.strip()
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    if kind in ("object", "array"):
        value = parse_value(text) if text[:1] == ("{" if kind == "object" else "[") else None
        return value if isinstance(value, dict if kind == "object" else list) else None
    if found := _INTEGER.match(text):
        return int(found.group(1))
    number = float(text) if kind == "number" and _DECIMAL.match(text) else math.inf
    return number if math.isfinite(number) else None

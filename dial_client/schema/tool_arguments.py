"""What a model wrote as the arguments of a call: its text read, and small mismatches with the tool's schema put right.

Nothing is repaired that may have been cut off, and nothing is invented: whoever runs a call runs what the model said.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from dial_client.schema.json_repair import Literals, Unreadable

MAX_LENIENT_CHARS = 8 * 1024
"""Characters of a text that is read although it is no JSON."""
MAX_DEPTH = 100
"""Levels of nesting; nobody means more, and whoever reads it later could exhaust its stack."""
MAX_SCHEMA_DEPTH = 32
"""Levels down to which arguments are put right."""

_NULLS = ("null", "None")
_FENCE = re.compile(r"```[\w-]{0,32}+")
_INTEGER = re.compile(r"([-+]?\d{1,18})(?:\.0{1,18})?\Z")
_DECIMAL = re.compile(r"[-+]?(?:\d{1,18}(?:\.\d{1,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?\Z")


def read(text: str) -> dict[str, Any] | None:
    """Read a model's text for the arguments of one call; None where it is no whole object.

    JSON of any length; up to `MAX_LENIENT_CHARS` also Python's literals, single quotes, bare keys, commas too many, a
    code fence around it, and a JSON text in a JSON string. A text that ends too early is never completed.
    """
    value = value_of(text)
    if isinstance(value, str):
        value = value_of(value)
    return value if isinstance(value, dict) else None


def value_of(text: str) -> Any:
    """Read one value of any type, as `read` does; None where there is none."""
    text = text.strip()
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError, MemoryError):
        value = _lenient(text) if len(text) <= MAX_LENIENT_CHARS else None
    return value if is_shallow(value) else None


def unfenced(text: str) -> str:
    """Give the text without the white space around it, and without the code fence, if it has one."""
    text = text.strip()
    fence = _FENCE.match(text)
    return text[fence.end() :].removesuffix("```").strip() if fence else text


def is_shallow(value: Any) -> bool:
    """Whether a value is nested no deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for one in level for part in _within(one)]
        if not level:
            return True
    return False


def _within(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _lenient(text: str) -> Any:
    source = Literals(unfenced(text))
    try:
        value = source.value()
    except (Unreadable, RecursionError, MemoryError):
        return None
    return None if source.peek() else value


def refuse(constant: str) -> NoReturn:
    """Refuse what Python takes for JSON: NaN and the infinities."""
    raise ValueError(f"{constant} is not JSON")


# A line break within a string is no JSON, but what it means is plain.
_DECODER = json.JSONDecoder(parse_constant=refuse, strict=False)


def coerced(arguments: Mapping[str, Any], schema: Mapping[str, Any], *, are_texts: bool = False) -> dict[str, Any]:
    """Give the arguments with harmless mismatches put right.

    ``"17"`` (and ``"17.0"``) where an integer is asked for, ``"1.5"`` where a number, ``"true"`` where a boolean, a
    number where a string, the text of an object or of an array where one is asked for, one value where an array of such
    values, null for a property that is neither required nor nullable. What fits is left as it is, and so is everything
    else.

    Args:
        arguments: as the model wrote them.
        schema: the tool's JSON Schema; only references within it are followed.
        are_texts: the model wrote every value as a text, null too.
    """
    return _Coercion(schema, are_texts=are_texts).top(arguments)


class _Coercion:
    def __init__(self, root: Mapping[str, Any], *, are_texts: bool) -> None:
        self._root = root
        self._are_texts = are_texts

    def top(self, said: Mapping[str, Any]) -> dict[str, Any]:
        shapes = list(self._branches(self._root, 8))
        return self.properties(said, shapes[0] if len(shapes) == 1 else self._root, MAX_SCHEMA_DEPTH)

    def properties(self, said: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        known = schema.get("properties")
        known = known if isinstance(known, Mapping) else {}
        others = schema.get("additionalProperties")
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        right = {}
        for name, value in said.items():
            about = known.get(name, others if name not in known else None)
            kinds = self._kinds(about, depth)
            if self._are_texts and value in _NULLS and kinds and "string" not in kinds:
                value = None  # noqa: PLW2901 - the text of a null
            if value is None and name in known and name not in required and kinds and "null" not in kinds:
                continue
            right[name] = self._value(value, about, depth)
        return right

    def _value(self, value: Any, schema: Any, depth: int) -> Any:
        kinds = self._kinds(schema, depth)
        if not kinds or depth <= 0:
            return value
        if _kind(value) not in kinds and not (_kind(value) == "integer" and "number" in kinds):
            value = self._changed(value, kinds, schema, depth)
        if isinstance(value, Mapping):
            shapes = [one for one in self._alternatives(schema, depth) if "object" in _own_kinds(one)]
            return self.properties(value, shapes[0], depth - 1) if len(shapes) == 1 else value
        if isinstance(value, list):
            items = self._items(schema, depth)
            return [self._value(one, items, depth - 1) for one in value]
        return value

    def _changed(self, value: Any, kinds: set[str], schema: Any, depth: int) -> Any:
        if isinstance(value, str):
            for kind in ("boolean", "integer", "number", "object", "array"):
                if kind in kinds and (read_as := _READ_AS[kind](value)) is not None:
                    return read_as
        elif _kind(value) in ("integer", "number") and "string" in kinds:
            return json.dumps(value)
        is_broken = isinstance(value, str) and value.lstrip()[:1] == "["
        if "array" in kinds and not is_broken and _kind(value) in self._kinds(self._items(schema, depth), depth):
            return [value]
        return value

    def _items(self, schema: Any, depth: int) -> Any:
        found = [one.get("items") for one in self._alternatives(schema, depth) if "array" in _own_kinds(one)]
        return found[0] if len(found) == 1 else None

    def _kinds(self, schema: Any, depth: int) -> set[str]:
        return {kind for one in self._alternatives(schema, depth) for kind in _own_kinds(one)}

    def _alternatives(self, schema: Any, depth: int) -> list[Mapping[str, Any]]:
        """Give the schemas one of which a value has to fit; none where that cannot be told by their types."""
        found = list(self._branches(schema, min(depth, 8)))
        return found if all(_own_kinds(one) for one in found) and len(found) <= 32 else []

    def _branches(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        for _ in range(8):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            schema = self._target(schema["$ref"])
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
        for branch in branches[:16]:
            yield from self._branches(branch, depth - 4)

    def _target(self, reference: Any) -> Any:
        if reference == "#":
            return self._root
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        found: Any = self._root
        for step in reference[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found


def _own_kinds(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type")
    if kind is None and isinstance(values := schema.get("enum"), list):
        return {_kind(value) for value in values}
    return {one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)}


def _kind(value: Any) -> str:
    """Give the type JSON Schema has for a value; a number without a fraction is an integer, however it is written."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case Mapping():
            return "object"
        case _:
            return "array"


def _as_boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def _as_integer(text: str) -> int | None:
    found = _INTEGER.match(text.strip())
    return int(found.group(1)) if found else None


def _as_number(text: str) -> int | float | None:
    whole = _as_integer(text)
    if whole is not None or not _DECIMAL.match(text.strip()):
        return whole
    number = float(text)
    return number if math.isfinite(number) else None


def _as_object(text: str) -> dict[str, Any] | None:
    value = value_of(text) if text.lstrip()[:1] == "{" else None
    return value if isinstance(value, dict) else None


def _as_array(text: str) -> list[Any] | None:
    value = value_of(text) if text.lstrip()[:1] == "[" else None
    return value if isinstance(value, list) else None


_READ_AS: Mapping[str, Any] = {
    "boolean": _as_boolean,
    "integer": _as_integer,
    "number": _as_number,
    "object": _as_object,
    "array": _as_array,
}

"""A tool's JSON Schema, adapted to what every provider takes.

What providers refuse is collected from their documentation and from what they answer: no object at the top, combinators
at the top, an array that does not say of what, remote references, keywords of the wrong type, odd property names. One
such schema among hundreds makes a provider refuse every request, so nothing here raises for a server's schema but
`Unsupported`, and then only that tool is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from dial_client.text.safe_text import safe

MAX_DEPTH = 64
"""Levels of nesting; nobody means more, and a server could otherwise exhaust the stack."""
MAX_ALTERNATIVES = 100
"""Schemas behind the references and combinators at the top that are looked at; a few lines can ask for 2^60."""
MAX_HINT_CHARS = 600
"""Characters of a constraint that is said in the description because it cannot stay in the schema."""
MAX_HINTS = 10

Pointer = tuple[str, ...]
"""Where in a schema: the steps of a JSON pointer."""

_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}
_COMBINATORS = ("allOf", "anyOf", "oneOf")
_TOP_ONLY_IN_WORDS = (
    "not", "if", "then", "else", "enum", "const", "dependentSchemas", "dependentRequired", "dependencies",
)  # fmt: skip
_DROPPED = {
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef",
    "$vocabulary", "$comment",
}  # fmt: skip
_NESTED_OR_BOOLEAN = ("additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems")
_NESTED = (
    *_NESTED_OR_BOOLEAN, "items", "contains", "not", "if", "then", "else", "propertyNames", "contentSchema",
)  # fmt: skip
_NESTED_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NESTED_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SAYS_NOTHING = {"type", "title", "description"}
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")


class Unsupported(Exception):
    """No provider can be given this schema; says why."""


@dataclass(frozen=True, slots=True)
class AdaptedSchema:
    """A schema every provider takes, and what it could not say."""

    schema: dict[str, Any]
    hints: tuple[str, ...] = ()
    """Constraints in words, for the tool's description."""


def fit(schema: Any) -> AdaptedSchema:
    """Make a schema fit: an object at the top, no combinators there, only local references.

    Raises:
        Unfit: it does not describe an object, a required property cannot be offered, or it is nested too deeply.
    """
    if not schema:
        return AdaptedSchema({"type": "object", "properties": {}})
    if not isinstance(schema, Mapping):
        raise Unsupported("its schema is not an object")
    cleaned = _cleaned(schema, MAX_DEPTH)
    top, hints = _Flattening(_places(cleaned)).flat(cleaned, frozenset())
    if (kinds := _kinds(top)) and "object" not in kinds:
        raise Unsupported(f"its arguments are of type {json.dumps(top['type'])}, not an object")
    top |= {"type": "object", "properties": dict(top.get("properties", {}))}
    hints += _without_odd_names(top)
    required = [name for name in top.pop("required", ()) if name in top["properties"]]
    fitted = top | ({"required": required} if required else {})
    _without_dangling_references(fitted)
    return AdaptedSchema(fitted, tuple(hints[:MAX_HINTS]))


def _cleaned(schema: Any, depth: int) -> dict[str, Any]:
    """Give a copy without what providers refuse anywhere; references are local, and may lead nowhere."""
    if depth <= 0:
        raise Unsupported("its schema is nested too deeply")
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, Mapping):
        return {}
    kept = {key: value for key, value in schema.items() if key not in _DROPPED and _is_readable(key, value)}
    cleaned = {key: _cleaned_value(key, value, depth - 1) for key, value in kept.items()}
    return _with_sound_keywords(cleaned)


def _is_readable(key: str, value: Any) -> bool:
    """Whether a keyword has no invisible character where one could not be taken away: in its name or in a pattern."""
    is_pattern = key in ("pattern", "patternProperties") and isinstance(value, str)
    return safe(str(key)) == key and not (is_pattern and safe(value) != value)


def _cleaned_value(key: str, value: Any, depth: int) -> Any:
    if key in _NESTED_MAPS and isinstance(value, Mapping):
        return {safe(str(name)): _cleaned(part, depth) for name, part in value.items() if _is_readable(key, str(name))}
    if key in _NESTED_LISTS and isinstance(value, list):
        return [_cleaned(part, depth) for part in value]
    if key == "items" and isinstance(value, list):
        return {"anyOf": [_cleaned(part, depth - 1) for part in value]} if value else {}
    if key in _NESTED_OR_BOOLEAN and isinstance(value, bool):
        return value
    if key in _NESTED:
        return _cleaned(value, depth)
    return _plain(value, depth)


def _plain(value: Any, depth: int) -> Any:
    """Give a value that is no schema (a description, a default, an enum) as JSON has it, and as people would see it."""
    if depth < 0:
        raise Unsupported("its schema is nested too deeply")
    if isinstance(value, Mapping):
        return {safe(str(key)): _plain(part, depth - 1) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, depth - 1) for part in value]
    if isinstance(value, str):
        return safe(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_sound_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(kind for kind in _kinds(schema) if kind in _TYPES))
    schema.pop("type", None)
    if kinds:
        schema["type"] = kinds if len(kinds) > 1 else kinds[0]
    for key in [key for key, value in schema.items() if key in _SOUND and not _SOUND[key](value)]:
        del schema[key]
    if "array" in kinds and "items" not in schema and "prefixItems" not in schema:
        schema["items"] = {}
    if "required" in schema:
        schema["required"] = list(dict.fromkeys(schema["required"]))
    return schema


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)]


def _target(reference: Any) -> Pointer | None:
    """Give where a local reference leads (RFC 6901, section 6); None for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in unquote(reference).split("/")[1:])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_demands(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _are_names(names) and len(set(names)) == len(names) for names in value.values()
    )


_SOUND: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "pattern", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated"), _is_flag),
    **dict.fromkeys((*_NESTED_LISTS, "enum"), _is_list),
    **dict.fromkeys(_NESTED_MAPS, _is_map),
    **dict.fromkeys(("dependentRequired", "dependencies"), _are_demands),
    "$ref": lambda value: _target(value) is not None,
    "examples": lambda value: isinstance(value, list),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "required": _are_names,
}


def _places(top: dict[str, Any]) -> dict[Pointer, dict[str, Any]]:
    """Give every schema within a cleaned one, by its place."""
    places: dict[Pointer, dict[str, Any]] = {}
    left: list[tuple[Pointer, dict[str, Any]]] = [((), top)]
    while left:
        path, schema = left.pop()
        places[path] = schema
        left += [((*path, *steps), part) for steps, part in _parts(schema)]
    return places


def _parts(schema: dict[str, Any]) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    for key, value in schema.items():
        if key in _NESTED_MAPS:
            yield from (((key, name), part) for name, part in value.items())
        elif key in _NESTED_LISTS:
            yield from (((key, str(at)), part) for at, part in enumerate(value))
        elif key in _NESTED and isinstance(value, dict):
            yield (key,), value


def _without_dangling_references(top: dict[str, Any]) -> None:
    """Take away references to what was taken away: a schema keeps its place, so no other one is left dangling."""
    places = _places(top)
    for schema in places.values():
        if "$ref" in schema and _target(schema["$ref"]) not in places:
            del schema["$ref"]


@dataclass(slots=True)
class _Flattening:
    """Takes references and combinators away from the top of a schema; what they demanded is said in words."""

    places: Mapping[Pointer, dict[str, Any]]
    left: int = MAX_ALTERNATIVES

    def flat(self, schema: dict[str, Any], above: frozenset[Pointer]) -> tuple[dict[str, Any], list[str]]:
        """Give the schema with all that lies behind its references; `above` are those it lies behind itself."""
        if self.left == 0:
            return {}, []
        self.left -= 1
        top = dict(schema)
        seen = set(above)
        while (path := _target(top.pop("$ref", None))) is not None and path not in seen:
            seen.add(path)
            top = {**self.places.get(path, {}), **top}
        hints = []
        for key in _COMBINATORS:
            if branches := top.pop(key, None):
                hints += self._merge(top, key, branches, frozenset(seen))
        return top, hints + [_in_words(key, top.pop(key)) for key in _TOP_ONLY_IN_WORDS if key in top]

    def _merge(self, top: dict[str, Any], key: str, branches: list[Any], above: frozenset[Pointer]) -> list[str]:
        pairs = [self.flat(branch, above) for branch in branches]
        flat = [branch for branch, _ in pairs]
        properties = dict(top.get("properties", {}))
        for branch in flat:
            for name, about in branch.get("properties", {}).items():
                properties.setdefault(name, about)
        if properties:
            top["properties"] = properties
        demanded = [set(branch.get("required", ())) for branch in flat]
        shared = set.union(*demanded) if key == "allOf" else set.intersection(*demanded)
        ours = top.get("required", [])
        top["required"] = ours + sorted(shared - set(ours))
        if "type" not in top and all(kinds := [_kinds(branch) for branch in flat]):
            top["type"] = "object" if any("object" in named for named in kinds) else kinds[0][0]
        if key == "allOf":
            return [hint for _, hints in pairs for hint in hints]
        return [] if all(branch.keys() <= _SAYS_NOTHING for branch in branches) else [_in_words(key, branches)]


def _in_words(key: str, constraint: Any) -> str:
    said = json.dumps(constraint, ensure_ascii=False, separators=(",", ":"))
    return f"The arguments must also satisfy this JSON Schema: {{{json.dumps(key)}:{_shortened(said, MAX_HINT_CHARS)}}}"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _without_odd_names(top: dict[str, Any]) -> list[str]:
    required = set(top.get("required", ()))
    odd = [name for name in top["properties"] if not _PROPERTY_NAME.match(name)]
    if wanted := [name for name in odd if name in required]:
        raise Unsupported(f"providers do not take the name of its property {_shortened(wanted[0], 100)!r}")
    for name in odd:
        del top["properties"][name]
    names = _shortened(", ".join(repr(name) for name in odd), MAX_HINT_CHARS)
    return [f"Properties whose names providers do not take were left out: {names}"] if odd else []

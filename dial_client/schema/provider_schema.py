"""Adaptation of a tool's JSON Schema to the subset that every provider accepts.

According to their documentation and responses, providers refuse schemas without an object at the top level, combinators
at the top level, arrays without `items`, remote references, keywords of the wrong type, invalid regular expressions,
and property names with unusual characters. One such schema among hundreds makes a provider refuse every request. For a
schema that cannot be adapted, `adapt` raises only `Unsupported`, and only that tool is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from dial_client.runtime.safe_text import sanitize
from dial_client.schema.argument_check import is_portable

MAX_DEPTH = 64
"""The most levels of nesting; deeper schemas could exhaust the stack."""
MAX_ALTERNATIVES = 100
"""The most schemas in top-level references and combinators that are merged; a few lines can define 2^60 of them."""
MAX_HINT_CHARS = 600
"""The most characters of a constraint that is moved from the schema to the description."""
MAX_HINTS = 10

Pointer = tuple[str, ...]
"""A place in a schema, as the reference tokens of a JSON Pointer."""

_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}
_COMBINATORS = ("allOf", "anyOf", "oneOf")
_MOVED_TO_HINTS = (
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
_WITHOUT_CONSTRAINT = {"type", "title", "description"}
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")


class Unsupported(Exception):
    """The schema cannot be adapted for providers. The message is the reason."""


@dataclass(frozen=True, slots=True)
class AdaptedSchema:
    """A schema that every provider accepts."""

    schema: dict[str, Any]
    hints: tuple[str, ...] = ()
    """The constraints that the schema lacks, as sentences for the tool's description."""
    dropped_patterns: tuple[str, ...] = ()
    """The regular expressions that providers do not accept, which were moved to descriptions."""


def adapt(schema: Any) -> AdaptedSchema:
    """Return a schema with an object and no combinators at the top level, and with only local references.

    Raises:
        Unsupported: The schema does not describe an object, a required property has an unsupported name, or the schema
            is nested too deeply.
    """
    if not schema:
        return AdaptedSchema({"type": "object", "properties": {}})
    if not isinstance(schema, Mapping):
        raise Unsupported("its schema is not an object")
    cleaned = _clean(schema, MAX_DEPTH)
    dropped_patterns, remarks = _drop_invalid_patterns(cleaned)
    top, hints = _Flattening(_index_schemas(cleaned)).flatten(cleaned, frozenset())
    hints += remarks
    if (kinds := _list_kinds(top)) and "object" not in kinds:
        raise Unsupported(f"its arguments are of type {json.dumps(top['type'])}, not an object")
    top |= {"type": "object", "properties": dict(top.get("properties", {}))}
    hints += _remove_odd_names(top)
    required = [name for name in top.pop("required", ()) if name in top["properties"]]
    adapted = top | ({"required": required} if required else {})
    _remove_dangling_references(adapted)
    return AdaptedSchema(adapted, tuple(hints[:MAX_HINTS]), tuple(dropped_patterns))


def _clean(schema: Any, depth: int) -> dict[str, Any]:
    """Return a copy without keywords that providers refuse at any level. Dangling local references are kept."""
    if depth <= 0:
        raise Unsupported("its schema is nested too deeply")
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, Mapping):
        return {}
    kept = {key: value for key, value in schema.items() if key not in _DROPPED and _is_readable(key, value)}
    cleaned = {key: _clean_value(key, value, depth - 1) for key, value in kept.items()}
    return _with_valid_keywords(cleaned)


def _is_readable(key: str, value: Any) -> bool:
    """Return True if there are no invisible characters in a keyword's name or pattern, which cannot be cleaned."""
    is_pattern = key in ("pattern", "patternProperties") and isinstance(value, str)
    return sanitize(str(key)) == key and not (is_pattern and sanitize(value) != value)


def _clean_value(key: str, value: Any, depth: int) -> Any:
    if key in _NESTED_MAPS and isinstance(value, Mapping):
        return {
            sanitize(str(name)): _clean(part, depth) for name, part in value.items() if _is_readable(key, str(name))
        }
    if key in _NESTED_LISTS and isinstance(value, list):
        return [_clean(part, depth) for part in value]
    if key == "items" and isinstance(value, list):
        return {"anyOf": [_clean(part, depth - 1) for part in value]} if value else {}
    if key in _NESTED_OR_BOOLEAN and isinstance(value, bool):
        return value
    if key in _NESTED:
        return _clean(value, depth)
    return _clean_plain_value(value, depth)


def _clean_plain_value(value: Any, depth: int) -> Any:
    """Return a value that is not a schema (a description, a default, an enum) as JSON without invisible characters."""
    if depth < 0:
        raise Unsupported("its schema is nested too deeply")
    if isinstance(value, Mapping):
        return {sanitize(str(key)): _clean_plain_value(part, depth - 1) for key, part in value.items()}
    if isinstance(value, list):
        return [_clean_plain_value(part, depth - 1) for part in value]
    if isinstance(value, str):
        return sanitize(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_valid_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(kind for kind in _list_kinds(schema) if kind in _TYPES))
    schema.pop("type", None)
    if kinds:
        schema["type"] = kinds if len(kinds) > 1 else kinds[0]
    for key in [key for key, value in schema.items() if key in _VALID_VALUES and not _VALID_VALUES[key](value)]:
        del schema[key]
    if "array" in kinds and "items" not in schema and "prefixItems" not in schema:
        schema["items"] = {}
    if "required" in schema:
        schema["required"] = list(dict.fromkeys(schema["required"]))
    return schema


def _list_kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [name for name in (kind if isinstance(kind, list) else [kind]) if isinstance(name, str)]


def _parse_reference(reference: Any) -> Pointer | None:
    """Return the place that a local reference points to (RFC 6901, section 6); None for any other reference."""
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


def _are_dependencies(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _are_names(names) and len(set(names)) == len(names) for names in value.values()
    )


_VALID_VALUES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "pattern", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated"), _is_flag),
    **dict.fromkeys((*_NESTED_LISTS, "enum"), _is_list),
    **dict.fromkeys(_NESTED_MAPS, _is_map),
    **dict.fromkeys(("dependentRequired", "dependencies"), _are_dependencies),
    "$ref": lambda value: _parse_reference(value) is not None,
    "examples": lambda value: isinstance(value, list),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "required": _are_names,
}


def _index_schemas(top: dict[str, Any]) -> dict[Pointer, dict[str, Any]]:
    """Return a cleaned schema and all schemas within it, by place."""
    schemas: dict[Pointer, dict[str, Any]] = {}
    remaining: list[tuple[Pointer, dict[str, Any]]] = [((), top)]
    while remaining:
        place, schema = remaining.pop()
        schemas[place] = schema
        remaining += [((*place, *steps), part) for steps, part in _list_parts(schema)]
    return schemas


def _list_parts(schema: dict[str, Any]) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    for key, value in schema.items():
        if key in _NESTED_MAPS:
            yield from (((key, name), part) for name, part in value.items())
        elif key in _NESTED_LISTS:
            yield from (((key, str(index)), part) for index, part in enumerate(value))
        elif key in _NESTED and isinstance(value, dict):
            yield (key,), value


def _drop_invalid_patterns(top: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Move the regular expressions that providers do not accept to descriptions.

    Returns:
        The regular expressions, and remarks on the top-level schema, whose description models do not read.
    """
    dropped: list[str] = []
    hints: list[str] = []
    for place, schema in reversed(_index_schemas(top).items()):  # inner schemas before outer ones
        remarks: list[str] = []
        if "pattern" in schema and not is_portable(schema["pattern"]):
            dropped.append(schema.pop("pattern"))
            remarks.append(f"Must match the regular expression {_shorten(dropped[-1], MAX_HINT_CHARS)}")
        for name in [name for name in schema.get("patternProperties", ()) if not is_portable(name)]:
            dropped.append(name)
            constraint = json.dumps(schema["patternProperties"].pop(name), ensure_ascii=False, separators=(",", ":"))
            rule = f"{_shorten(name, MAX_HINT_CHARS)} must satisfy {_shorten(constraint, MAX_HINT_CHARS)}"
            remarks.append(f"Properties whose names match the regular expression {rule}")
            # The names that the pattern allowed are now unknown, so no name may be forbidden.
            schema.pop("additionalProperties", None)
            schema.pop("unevaluatedProperties", None)
        if not place:
            hints = remarks
        elif remarks:
            schema["description"] = "\n".join([*filter(None, [schema.get("description")]), *remarks])
    return dropped, hints


def _remove_dangling_references(top: dict[str, Any]) -> None:
    """Remove references whose targets do not exist. The schemas with such references stay, so no new ones dangle."""
    schemas = _index_schemas(top)
    for schema in schemas.values():
        if "$ref" in schema and _parse_reference(schema["$ref"]) not in schemas:
            del schema["$ref"]


@dataclass(slots=True)
class _Flattening:
    """Merges references and combinators into the top level of a schema; other constraints become hints."""

    schemas: Mapping[Pointer, dict[str, Any]]
    remaining: int = MAX_ALTERNATIVES

    def flatten(self, schema: dict[str, Any], above: frozenset[Pointer]) -> tuple[dict[str, Any], list[str]]:
        """Return the schema without references and combinators, and hints; `above` are the references on its path."""
        if self.remaining == 0:
            return {}, []
        self.remaining -= 1
        top = dict(schema)
        seen = set(above)
        while (path := _parse_reference(top.pop("$ref", None))) is not None and path not in seen:
            seen.add(path)
            top = {**self.schemas.get(path, {}), **top}
        hints = []
        for key in _COMBINATORS:
            if branches := top.pop(key, None):
                hints += self._merge(top, key, branches, frozenset(seen))
        return top, hints + [_to_hint(key, top.pop(key)) for key in _MOVED_TO_HINTS if key in top]

    def _merge(self, top: dict[str, Any], key: str, branches: list[Any], above: frozenset[Pointer]) -> list[str]:
        pairs = [self.flatten(branch, above) for branch in branches]
        flat = [branch for branch, _ in pairs]
        properties = dict(top.get("properties", {}))
        for branch in flat:
            for name, property_schema in branch.get("properties", {}).items():
                properties.setdefault(name, property_schema)
        if properties:
            top["properties"] = properties
        required = [set(branch.get("required", ())) for branch in flat]
        shared = set.union(*required) if key == "allOf" else set.intersection(*required)
        own = top.get("required", [])
        top["required"] = own + sorted(shared - set(own))
        if "type" not in top and all(kinds := [_list_kinds(branch) for branch in flat]):
            top["type"] = "object" if any("object" in names for names in kinds) else kinds[0][0]
        if key == "allOf":
            return [hint for _, hints in pairs for hint in hints]
        return [] if all(branch.keys() <= _WITHOUT_CONSTRAINT for branch in branches) else [_to_hint(key, branches)]


def _to_hint(key: str, constraint: Any) -> str:
    text = json.dumps(constraint, ensure_ascii=False, separators=(",", ":"))
    return f"The arguments must also satisfy this JSON Schema: {{{json.dumps(key)}:{_shorten(text, MAX_HINT_CHARS)}}}"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def _remove_odd_names(top: dict[str, Any]) -> list[str]:
    """Remove properties whose names providers refuse, and return a hint that names them."""
    required = set(top.get("required", ()))
    odd = [name for name in top["properties"] if not _PROPERTY_NAME.match(name)]
    if odd_required := [name for name in odd if name in required]:
        raise Unsupported(f"providers do not accept the name of its property {_shorten(odd_required[0], 100)!r}")
    for name in odd:
        del top["properties"][name]
    names = _shorten(", ".join(repr(name) for name in odd), MAX_HINT_CHARS)
    return [f"Properties whose names providers do not accept were left out: {names}"] if odd else []

"""Adaptation of JSON Schemas: to the subset that every provider accepts (`adapt`), then to the dialect of an endpoint.

According to their documentation and responses, providers refuse schemas without an object at the top level, combinators
at the top level, arrays without `items`, remote references, keywords of the wrong type, invalid regular expressions,
and property names with unusual characters. One such schema among hundreds makes a provider refuse every request. For a
schema that cannot be adapted, `adapt` raises only `Unsupported`, and only that tool is left out.

A `Dialect` is a smaller subset, for endpoints that check schemas against it. Constraints outside of a subset are
described in words, in the description of the property or of the tool.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.runtime.json_fields import to_list, to_object
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import sanitize
from dial_client.schema.argument_check import find_target, is_portable, parse_reference

# The most levels of nesting; deeper schemas could exhaust the stack.
MAX_DEPTH = 64
# The most schemas in top-level references and combinators that are merged; a few lines can define 2^60 of them.
MAX_ALTERNATIVES = 100
# The most characters of a constraint that is moved from the schema to the description.
MAX_HINT_CHARS = 600
MAX_HINTS = 10

# A place in a schema, as the reference tokens of a JSON Pointer.
Pointer = tuple[str, ...]

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
_PROPERTY_NAME = compile_lazily(r"[a-zA-Z0-9_.-]{1,64}\Z")


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
        raise Unsupported(f"its schema is nested too deeply (more than {MAX_DEPTH} levels)")
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
        parts = ((str(name), part) for name, part in value.items())
        return {sanitize(name): _clean(part, depth) for name, part in parts if _is_readable(key, name)}
    if key in _NESTED_LISTS and isinstance(value, list):
        return [_clean(part, depth) for part in value]
    if key == "items" and isinstance(value, list):
        return {"anyOf": [_clean(part, depth - 1) for part in value]} if value else {}
    is_schema = key in _NESTED and not (key in _NESTED_OR_BOOLEAN and isinstance(value, bool))
    return _clean(value, depth) if is_schema else _clean_plain_value(value, depth)


def _clean_plain_value(value: Any, depth: int) -> Any:
    """Return a value that is not a schema (a description, a default, an enum) as JSON without invisible characters."""
    if depth < 0:
        raise Unsupported(f"its schema is nested too deeply (more than {MAX_DEPTH} levels)")
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_dependencies(value: Any) -> bool:
    lists: Iterable[Any] = value.values() if isinstance(value, Mapping) else (None,)
    return all(_are_names(names) and len(set(names)) == len(names) for names in lists)


_VALID_VALUES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "pattern"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated"), lambda value: isinstance(value, bool)),
    **dict.fromkeys((*_NESTED_LISTS, "enum"), lambda value: isinstance(value, list) and bool(value)),
    **dict.fromkeys(_NESTED_MAPS, lambda value: isinstance(value, Mapping)),
    **dict.fromkeys(("dependentRequired", "dependencies"), _are_dependencies),
    "$ref": lambda value: parse_reference(value) is not None,
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
            constraint = _to_json(schema["patternProperties"].pop(name))
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
        if parse_reference(schema.get("$ref", "#")) not in schemas:
            del schema["$ref"]


@dataclass(eq=False, slots=True)
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
        while (path := parse_reference(top.pop("$ref", None))) is not None and path not in seen:
            seen.add(path)
            top = {**self.schemas.get(path, {}), **top}
        hints = []
        for key in _COMBINATORS:
            if branches := top.pop(key, None):
                hints += self._merge(top, key, branches, frozenset(seen))
        return top, hints + [_to_hint(key, top.pop(key)) for key in _MOVED_TO_HINTS if key in top]

    def _merge(self, top: dict[str, Any], key: str, branches: list[Any], above: frozenset[Pointer]) -> list[str]:
        """Merge the branches of a combinator, and return hints on what the merged schema does not require.

        Of two properties with one name, the first counts. Required is what all branches of ``allOf`` require together,
        and what every branch of another combinator requires. A missing type becomes that of the branches: an object if
        any branch may be one.
        """
        pairs = [self.flatten(branch, above) for branch in branches]
        flat = [branch for branch, _ in pairs]
        for branch in flat:
            if properties := branch.get("properties"):
                top["properties"] = properties | top.get("properties", {})
        names = [set(branch.get("required", ())) for branch in flat]
        own = top.get("required", [])
        required = set.union(*names) if key == "allOf" else set.intersection(*names)
        top["required"] = own + sorted(required - set(own))
        if "type" not in top and all(kinds := [_list_kinds(branch) for branch in flat]):
            top["type"] = "object" if any("object" in names for names in kinds) else kinds[0][0]
        if key == "allOf":
            return [hint for _, hints in pairs for hint in hints]
        return [] if all(branch.keys() <= _WITHOUT_CONSTRAINT for branch in branches) else [_to_hint(key, branches)]


def _to_hint(key: str, constraint: Any) -> str:
    text = _shorten(_to_json(constraint), MAX_HINT_CHARS)
    return f"The arguments must also satisfy this JSON Schema: {{{json.dumps(key)}:{text}}}"


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


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


# The dialects: one tree walk (`_SubsetWriter`) applies the passes of each.

# The most schemas in the parameters of a tool after references are expanded, which can yield 2^60 from a few lines.
MAX_SCHEMAS = 2_000
# The most levels of nesting after references are expanded.
MAX_EXPANDED_DEPTH = 32
# The most characters of a description of lost constraints.
MAX_NOTE = 300

Schema = dict[str, Any]
# Changes a written schema; receives its lost constraints, and remarks for its description.
Pass = Callable[[Schema, Schema, list[str]], None]

# Keywords that are dropped without a description.
_SILENT_KEYWORDS = frozenset({"unevaluatedProperties", "additionalItems", "readOnly", "writeOnly", "deprecated"})
_TYPE_KEYWORDS = frozenset({"type", "properties", "items", "enum", "const"})
# The type null in Gemini's dialect.
_NULL = {"type": "string", "nullable": True}
_TEXT_FOR_OBJECT = "A JSON object, written as text."
_TYPE_BY_KEYWORD = {
    "properties": "object", "items": "array", "enum": "string", "pattern": "string", "minLength": "string",
    "maxLength": "string", "minItems": "array", "maxItems": "array", "minimum": "number", "maximum": "number",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A subset of JSON Schema. Constraints outside of it are described in words."""

    keywords: frozenset[str]
    formats: frozenset[str]
    references: tuple[str, ...] = ("#/$defs/",)
    """Prefixes of references that are kept; other references are expanded."""
    bare_references: bool = False
    """True if the subset allows no other keyword beside ``$ref``."""
    source_pass: Callable[[Schema], None] | None = None
    """Changes each schema before its keywords are written."""
    passes: tuple[Pass, ...] = ()
    """Change each schema after its keywords are written, in this order."""
    top: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """The keywords that the top level always has."""
    any_value: Mapping[str, Any] = field(default_factory=dict)
    """A schema that allows any value."""
    without_properties: bool = True
    """True if the parameters of a tool without properties are a schema too; otherwise they are left out."""


def to_dialect(schema: Mapping[str, Any], dialect: str, *, strict: bool = False) -> tuple[Mapping[str, Any], str]:
    """Return the parameters of a tool in a dialect, and a description of lost constraints of the top level.

    Arguments are checked against the server's own schema, so the conversion does not affect which calls are valid.

    Args:
        schema: A schema of `adapt`, with an object at the top level and only local references.
        dialect: ``full`` (JSON Schema without changes), ``openai`` (the subset that OpenAI documents, in which optional
            properties stay optional), or ``gemini`` (Google's ``Schema``).
        strict: True if the endpoint makes calls conform to the schema: OpenAI's strict mode, except for ``gemini``.
    """
    if dialect == "full" and not strict:
        return schema, ""
    return _SubsetWriter(schema, _DIALECTS.get(dialect, _OPENAI_STRICT if strict else _OPENAI)).write_parameters()


def to_output_schema(schema: Mapping[str, Any], dialect: str) -> tuple[Schema, bool]:
    """Return the schema of an answer in a dialect, and True if the endpoint can enforce it in strict mode.

    Args:
        schema: The schema of the answer.
        dialect: ``openai`` (in strict mode if possible), ``anthropic``, ``gemini`` or ``full``.
    """
    is_strict = can_be_strict(schema)
    if dialect == "full" or (dialect == "openai" and not is_strict):
        return dict(schema), is_strict
    written, lost = to_dialect(schema, dialect, strict=is_strict)
    described = " ".join(text for text in (written.get("description"), lost) if isinstance(text, str) and text)
    return {**written, **({"description": described} if described else {})}, is_strict


def can_be_strict(schema: Any) -> bool:
    """Return True if no object of the schema is open. Strict mode forbids objects with arbitrary property names."""
    if isinstance(schema, list):
        return all(map(can_be_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    is_open = schema.get("additionalProperties", False) is not False or (
        schema.get("type") == "object" and not schema.get("properties") and "$ref" not in schema
    )
    return not is_open and all(map(can_be_strict, schema.values()))


class _SubsetWriter:
    """Walks through a schema once, and writes it in a dialect."""

    def __init__(self, root: Mapping[str, Any], dialect: Dialect) -> None:
        self._root = root
        self._dialect = dialect
        self._left = MAX_SCHEMAS

    def write_parameters(self) -> tuple[Schema, str]:
        """Return the top level, and a description of its lost constraints: models read no description there."""
        if not (self._dialect.without_properties or self._root.get("properties")):
            has_unknown = bool(self._root.get("additionalProperties"))
            return {}, "It takes arguments, but none that this endpoint can be told of." if has_unknown else ""
        written, remarks = self._write(self._root, ())
        return deepcopy(dict(self._dialect.top)) | written, " ".join(remarks)

    def _write(self, schema: Mapping[str, Any], ancestors: tuple[str, ...]) -> tuple[Schema, list[str]]:
        """Return a schema within the subset, and descriptions of lost constraints.

        Args:
            schema: Any schema within the parameters.
            ancestors: The references on the path to the schema, with "" for each level of nesting.
        """
        lost: Schema = {}
        remarks: list[str] = []
        source, ancestors = self._resolve_reference(dict(schema), ancestors, remarks)
        if self._dialect.source_pass is not None:
            self._dialect.source_pass(source)
        self._merge_all_of(source, lost)
        _distribute_any_of(source, lost)
        written: Schema = {}
        for key, value in source.items():
            self._write_keyword(key, value, (*ancestors, ""), written, lost)
        for change in self._dialect.passes:
            change(written, lost, remarks)
        if isinstance(examples := lost.pop("examples", None), list) and examples:
            remarks.append(f"For example: {_shorten(', '.join(map(_to_json, examples[:3])), MAX_NOTE)}.")
        if lost:
            remarks.append(f"Must also satisfy this JSON Schema: {_shorten(_to_json(lost), MAX_NOTE)}")
        return written, remarks

    def _resolve_reference(
        self, schema: Schema, ancestors: tuple[str, ...], remarks: list[str]
    ) -> tuple[Schema, tuple[str, ...]]:
        """Replace a reference by its target; describe a recursive reference to an ancestor in words."""
        kept, is_bare = self._dialect.references, self._dialect.bare_references
        for _ in range(MAX_EXPANDED_DEPTH):
            reference = str(schema.get("$ref", ""))
            if not reference or (reference.startswith(kept) and not (is_bare and len(schema) > 1)):
                break
            if reference in ancestors and reference.startswith(kept):
                return {"$ref": reference}, ancestors
            del schema["$ref"]
            target = to_object(find_target(self._root, reference))
            if reference in ancestors or reference == "#":
                remarks.append(f"Of the same form as {target.get('title') or 'what it lies in'} (recursive).")
                return {"type": target.get("type", "object"), **schema}, ancestors
            ancestors, schema = (*ancestors, reference), {**target, **schema}
        return schema, ancestors

    def _merge_all_of(self, schema: Schema, lost: Schema) -> None:
        """Merge branches of ``allOf`` where they do not contradict each other, and replace ``oneOf`` by ``anyOf``."""
        for _ in range(MAX_EXPANDED_DEPTH):
            parts = schema.pop("allOf", None)
            if not isinstance(parts, list):
                break
            for part in parts:
                if isinstance(part, Mapping):
                    target = to_object(find_target(self._root, part.get("$ref")))
                    _add_keywords(schema, {**target, **part}, lost)
        if (branches := schema.pop("oneOf", None)) and schema.setdefault("anyOf", branches) != branches:
            lost["oneOf"] = branches

    def _write_keyword(self, key: str, value: Any, ancestors: tuple[str, ...], written: Schema, lost: Schema) -> None:
        keywords = self._dialect.keywords
        match key:
            case "additionalProperties" if isinstance(value, bool):
                if key in keywords:
                    written[key] = value
            case "$defs" | "definitions" if key not in keywords:
                pass
            case "properties" | "$defs" | "definitions" if isinstance(value, Mapping):
                written[key] = {name: self._write_part(part, ancestors) for name, part in value.items()}
            case "items":
                written[key] = self._write_part(value, ancestors)
            case "anyOf" if isinstance(value, list):
                written[key] = [self._write_part(part, ancestors) for part in value]
            case "format" if value not in self._dialect.formats:
                lost[key] = value
            case _ if key in keywords and key != "additionalProperties":
                written[key] = value
            case _ if key not in _SILENT_KEYWORDS:
                lost[key] = value

    def _write_part(self, schema: Any, ancestors: tuple[str, ...]) -> Schema:
        """Return a schema within the subset, with lost constraints in its description."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or len(ancestors) > MAX_EXPANDED_DEPTH:
            return deepcopy(dict(self._dialect.any_value))
        written, remarks = self._write(schema, ancestors)
        if remarks:
            described = written.get("description")
            texts = [described, *remarks] if isinstance(described, str) and described else remarks
            written["description"] = " ".join(texts)
        return written


def _add_keywords(schema: Schema, part: Mapping[str, Any], lost: Schema) -> None:
    """Add the keywords of a schema that must hold too; those that contradict the first schema are lost."""
    for key, value in part.items():
        if key == "properties" and isinstance(value, Mapping):
            schema[key] = {**value, **schema.get(key, {})}
        elif key == "required" and isinstance(value, list):
            schema[key] = list(dict.fromkeys([*schema.get(key, ()), *value]))
        elif key != "$ref" and schema.setdefault(key, value) != value:
            lost[key] = value


def _distribute_any_of(schema: Schema, lost: Schema) -> None:
    """Move type keywords beside ``anyOf`` into its branches: some endpoints refuse type keywords in both places."""
    branches, type_keywords = schema.get("anyOf"), [key for key in _TYPE_KEYWORDS if key in schema]
    if not isinstance(branches, list) or not type_keywords:
        return
    if all(isinstance(branch, Mapping) and _TYPE_KEYWORDS & set(branch) for branch in branches):
        form = {key: schema.pop(key) for key in (*type_keywords, "required") if key in schema}
        schema["anyOf"] = [dict(branch) for branch in branches]
        for branch in schema["anyOf"]:
            _add_keywords(branch, form, {})
    else:
        lost["anyOf"] = schema.pop("anyOf")


# Passes of OpenAI's strict mode and of Anthropic's structured outputs.


def _close_object(written: Schema, _lost: Schema, remarks: list[str]) -> None:
    """Forbid additional properties, as both vendors require."""
    if "properties" in written or "object" in _list_kinds(written):
        if written.get("additionalProperties") is True:
            remarks.append("Properties of other names cannot be given here.")
        written["additionalProperties"] = False


def _require_properties(written: Schema, _lost: Schema, _remarks: list[str]) -> None:
    """Make all properties required, and optional ones nullable.

    Before the tool is called, such a null is removed if the server's schema has a type for the property.
    """
    if "properties" in written or "object" in _list_kinds(written):
        required, properties = written.get("required", ()), written.get("properties", {})
        written["properties"] = {
            name: part if name in required else _allow_null(part) for name, part in properties.items()
        }
        written["required"] = list(properties)


def _allow_null(schema: Schema) -> Schema:
    kinds = _list_kinds(schema)
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not kinds or "const" in schema:
        about = {"description": schema.pop("description")} if "description" in schema else {}
        return {**about, "anyOf": [schema, {"type": "null"}]} if schema else about
    listed = {"enum": [*schema["enum"], None]} if "enum" in schema and None not in schema["enum"] else {}
    return schema | listed | {"type": list(dict.fromkeys([*kinds, "null"]))}


# Passes of Gemini. Its `Schema` has exactly one type, `nullable` instead of the type null, and no references; enum
# values are strings; an object has at least one property. Gemini refuses other schemas: "Unknown name …", "should be
# non-empty for OBJECT type".


def _replace_const_and_bounds(source: Schema) -> None:
    """Replace ``const`` and exclusive bounds by keywords that Gemini supports."""
    if "const" in source:
        source["enum"] = [source.pop("const")]
    if source.get("type") == "integer":
        for key, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            if isinstance(source.get(key), int) and bound not in source:
                source[bound] = source.pop(key) + step


def _keep_string_enum(written: Schema, lost: Schema, _remarks: list[str]) -> None:
    """Keep an enum of strings; move an enum with other values to the lost constraints."""
    if "enum" not in written:
        return
    values = to_list(written.pop("enum"))
    if None in values:
        written["nullable"] = True
    listed = [value for value in values if value is not None]
    if listed and all(isinstance(value, str) and value for value in listed):
        written |= {"enum": listed} if "anyOf" in written else {"enum": listed, "type": "string"}
        return
    lost["enum"] = values
    json_types = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    types = {json_types.get(type(value), "object") for value in listed}
    if len(types) == 1:
        written.setdefault("type", types.pop())


def _split_types(written: Schema, _lost: Schema, _remarks: list[str]) -> None:
    """Replace the type null by ``nullable``, and a list of types by ``anyOf``."""
    types = written.get("type")
    if types == "null":
        written |= _NULL
    if not isinstance(types, list):
        return
    del written["type"]
    if "null" in types:
        written["nullable"] = True
    other_types = [type_ for type_ in types if type_ != "null"]
    if len(other_types) == 1:
        written["type"] = other_types[0]
    elif other_types and "anyOf" not in written:
        keywords = {"object": ("properties", "required"), "array": ("items",), "string": ("enum",)}
        forms = [
            {"type": type_, **{key: written[key] for key in keywords.get(type_, ()) if key in written}}
            for type_ in other_types
        ]
        for key in ("properties", "required", "items", "enum"):
            written.pop(key, None)
        for form in forms:
            about: list[str] = []
            _settle_type(form, {}, about)
            if about:
                form["description"] = about[0]
        written["anyOf"] = forms


def _simplify_any_of(written: Schema, _lost: Schema, _remarks: list[str]) -> None:
    """Replace a null branch of ``anyOf`` by ``nullable``, and an ``anyOf`` with one remaining branch by the branch."""
    if "anyOf" not in written:
        return
    branches = [branch for branch in written.pop("anyOf") if isinstance(branch, dict)]
    other_branches = [branch for branch in branches if branch != _NULL]
    if len(other_branches) < len(branches):
        written["nullable"] = True
    if len(other_branches) == 1:
        written |= {
            key: value for key, value in other_branches[0].items() if key != "description" or key not in written
        }
    elif other_branches:
        written["anyOf"] = other_branches


def _settle_type(written: Schema, lost: Schema, remarks: list[str]) -> None:
    """Leave exactly one type, or an ``anyOf`` without keywords of types beside it."""
    if "anyOf" in written:
        lost |= {key: written.pop(key) for key in ("type", "properties", "required", "items", "enum") if key in written}
        return
    if "type" not in written:
        type_ = next((type_ for key, type_ in _TYPE_BY_KEYWORD.items() if key in written), None)
        written |= {"type": type_} if type_ else deepcopy(dict(_GEMINI.any_value))
    if written.get("type") == "array":
        written.setdefault("items", {"type": "string"})
    if written.get("type") == "object" and not written.get("properties"):
        for key in ("properties", "required", "minProperties", "maxProperties"):
            written.pop(key, None)
        written["type"] = "string"
        remarks.append(_TEXT_FOR_OBJECT)


def _clean_required(written: Schema, _lost: Schema, _remarks: list[str]) -> None:
    required = to_list(written.pop("required", None))
    if kept := [name for name in required if name in written.get("properties", {})]:
        written["required"] = kept


_OPENAI = Dialect(  # https://platform.openai.com/docs/guides/structured-outputs
    keywords=frozenset({
        "type", "title", "description", "enum", "const", "default", "anyOf", "$ref", "$defs", "items", "properties",
        "required", "additionalProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format",
    }),
    formats=frozenset({
        "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
    }),
)  # fmt: skip
_OPENAI_STRICT = replace(
    _OPENAI,
    keywords=_OPENAI.keywords - {"default"},
    bare_references=True,
    passes=(_close_object, _require_properties),
    top={"required": [], "additionalProperties": False, "type": "object", "properties": {}},
)
_ANTHROPIC = Dialect(  # https://platform.claude.com/docs/en/build-with-claude/structured-outputs: no bounds
    keywords=frozenset({
        "type", "title", "description", "enum", "const", "default", "anyOf", "$ref", "$defs", "items", "properties",
        "required", "additionalProperties", "format",
    }),
    formats=_OPENAI.formats | {"uri"},
    bare_references=True,
    passes=(_close_object,),
)  # fmt: skip
_GEMINI = Dialect(  # Google's `Schema`, from OpenAPI 3.0: https://ai.google.dev/api/caching#Schema
    keywords=frozenset({
        "type", "title", "description", "enum", "default", "anyOf", "items", "properties", "required", "nullable",
        "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
        "pattern", "format",
    }),
    formats=frozenset({"date-time", "enum", "int32", "int64", "float", "double"}),
    references=(),
    source_pass=_replace_const_and_bounds,
    passes=(_keep_string_enum, _split_types, _simplify_any_of, _settle_type, _clean_required),
    any_value={"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]},
    without_properties=False,
)  # fmt: skip
# The dialects by name; any other name stands for OpenAI's two.
_DIALECTS = {"anthropic": _ANTHROPIC, "gemini": _GEMINI}

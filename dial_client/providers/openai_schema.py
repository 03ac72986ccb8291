"""The parts of JSON Schema that OpenAI documents, and how a schema is written in such a part.

What is lost is said in the description of the property, or of the tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

MAX_SCHEMAS = 2_000
"""Schemas one tool's parameters may have once references are written out; a few lines can ask for 2^60."""
MAX_DEPTH = 32
"""Levels of nesting once references are written out."""
MAX_NOTE = 300
"""Characters of what is lost in one place."""

Schema = dict[str, Any]


class SubsetWriter:
    """Writes one tool's parameters in what OpenAI documents."""

    known: ClassVar[frozenset[str]] = frozenset(
        {
            "type", "title", "description", "enum", "const", "default", "anyOf", "$ref", "$defs", "items",
            "properties", "required", "additionalProperties", "minimum", "maximum", "exclusiveMinimum",
            "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format",
        }
    )  # fmt: skip
    formats: ClassVar[frozenset[str]] = frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
    )

    references: ClassVar[tuple[str, ...]] = ("#/$defs/",)
    """What references may begin with; others are written out."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self.whole = whole
        self._left = MAX_SCHEMAS

    def parameters(self) -> tuple[Schema, str]:
        """Give the parameters, and in words what is lost at their top: no model reads a description there."""
        said, words = self.write(self.whole, ())
        return {"type": "object", "properties": {}} | said, " ".join(words)

    def write(self, schema: Mapping[str, Any], above: tuple[str, ...]) -> tuple[Schema, list[str]]:
        """Give a schema of it, and what is lost with it; `above` has the references it lies behind, "" for a level."""
        lost: Schema = {}
        words: list[str] = []
        source, above = self.opened(dict(schema), above, words)
        _merge_parts(source, lost, self.target)
        _settle_alternatives(source, lost)
        said: Schema = {}
        for key, value in source.items():
            self._say(key, value, (*above, ""), said, lost)
        said = self.finished(said, lost, words)
        if isinstance(examples := lost.pop("examples", None), list) and examples:
            words.append(f"For example: {_short(', '.join(_text(one) for one in examples[:3]))}.")
        if lost:
            words.append(f"Must also satisfy this JSON Schema: {_short(_text(lost))}")
        return said, words

    def opened(self, schema: Schema, above: tuple[str, ...], words: list[str]) -> tuple[Schema, tuple[str, ...]]:
        """Write what a reference leads to in its place; where it leads back up, only that it does."""
        for _ in range(MAX_DEPTH):
            reference = str(schema.get("$ref", ""))
            if not reference or reference.startswith(self.references):
                break
            del schema["$ref"]
            target = self.target(reference)
            if reference in above or reference == "#":
                words.append(f"Of the same form as {target.get('title') or 'what it lies in'} (recursive).")
                return {"type": target.get("type", "object"), **schema}, above
            above, schema = (*above, reference), {**target, **schema}
        return schema, above

    def finished(self, said: Schema, _lost: Schema, _words: list[str]) -> Schema:
        """Give a schema with all that the dialect wants beside its known words."""
        return said

    def anything(self) -> Schema:
        """Give the schema of any value."""
        return {}

    def target(self, reference: Any) -> Mapping[str, Any]:
        """Give what a local reference leads to; an empty schema where that is none."""
        found: Any = self.whole
        for step in str(reference).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def _say(self, key: str, value: Any, above: tuple[str, ...], said: Schema, lost: Schema) -> None:
        match key:
            case "additionalProperties" if isinstance(value, bool):
                if key in self.known:
                    said[key] = value
            case "$defs" | "definitions" if key not in self.known:
                pass
            case "properties" | "$defs" | "definitions" if isinstance(value, Mapping):
                said[key] = {name: self._described(part, above) for name, part in value.items()}
            case "items":
                said[key] = self._described(value, above)
            case "anyOf" if isinstance(value, list):
                said[key] = [self._described(part, above) for part in value]
            case "format" if value not in self.formats:
                lost[key] = value
            case _ if key in self.known and key != "additionalProperties":
                said[key] = value
            case _ if key not in _UNTOLD:
                lost[key] = value

    def _described(self, schema: Any, above: tuple[str, ...]) -> Schema:
        """Give a schema within the parameters, with what is lost in its description."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or len(above) > MAX_DEPTH:
            return self.anything()
        said, words = self.write(schema, above)
        if words:
            described = said.get("description")
            said["description"] = " ".join([described, *words] if isinstance(described, str) and described else words)
        return said


class StrictSubsetWriter(SubsetWriter):
    """Writes one tool's parameters as strict mode wants them: all properties required, and no others.

    A property that may be left out may be null in place of that; `arguments.coerced` takes such a null away again where
    the server's schema says of what type the property is.
    """

    known: ClassVar[frozenset[str]] = SubsetWriter.known - {"default"}

    def parameters(self) -> tuple[Schema, str]:
        """Give the parameters, and in words what is lost at their top."""
        said, words = super().parameters()
        return {"required": [], "additionalProperties": False} | said, words

    def finished(self, said: Schema, _lost: Schema, words: list[str]) -> Schema:
        """Give a schema with all its properties required."""
        kinds = said.get("type")
        if "properties" not in said and "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            return said
        if said.get("additionalProperties") is True:
            words.append("Properties of other names cannot be given here.")
        demanded = said.get("required", ())
        properties = said.get("properties", {})
        said["properties"] = {name: part if name in demanded else _or_null(part) for name, part in properties.items()}
        return said | {"required": list(properties), "additionalProperties": False}


def _or_null(schema: Schema) -> Schema:
    kinds = schema.get("type")
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not kinds or "const" in schema:
        about = {"description": schema.pop("description")} if "description" in schema else {}
        return {**about, "anyOf": [schema, {"type": "null"}]} if schema else about
    kinds = kinds if isinstance(kinds, list) else [kinds]
    listed = {"enum": [*schema["enum"], None]} if "enum" in schema and None not in schema["enum"] else {}
    return schema | listed | {"type": list(dict.fromkeys([*kinds, "null"]))}


_UNTOLD = frozenset({"unevaluatedProperties", "additionalItems", "readOnly", "writeOnly", "deprecated"})
"""Keywords whose loss nobody needs to hear of."""


def _merge_parts(schema: Schema, lost: Schema, target: Any) -> None:
    """Put the parts of ``allOf`` together where they say different things, and say ``oneOf`` as ``anyOf``."""
    for _ in range(MAX_DEPTH):
        parts = schema.pop("allOf", None)
        if not isinstance(parts, list):
            break
        for part in parts:
            own = {**target(part["$ref"]), **part} if isinstance(part, Mapping) and "$ref" in part else part
            _merge(schema, own if isinstance(own, Mapping) else {}, lost)
    if (branches := schema.pop("oneOf", None)) and schema.setdefault("anyOf", branches) != branches:
        lost["oneOf"] = branches


def _settle_alternatives(schema: Schema, lost: Schema) -> None:
    """Say of what form a value is either beside ``anyOf`` or within it: there are endpoints that refuse it in both."""
    branches, beside = schema.get("anyOf"), [key for key in _FORM if key in schema]
    if not isinstance(branches, list) or not beside:
        return
    if all(isinstance(branch, Mapping) and _FORM & set(branch) for branch in branches):
        form = {key: schema.pop(key) for key in (*beside, "required") if key in schema}
        schema["anyOf"] = [dict(branch) for branch in branches]
        for branch in schema["anyOf"]:
            _merge(branch, form, {})
    else:
        lost["anyOf"] = schema.pop("anyOf")


_FORM = frozenset({"type", "properties", "items", "enum", "const"})


def _merge(schema: Schema, part: Mapping[str, Any], lost: Schema) -> None:
    for key, value in part.items():
        if key == "properties" and isinstance(value, Mapping):
            schema[key] = {**value, **schema.get(key, {})}
        elif key == "required" and isinstance(value, list):
            schema[key] = list(dict.fromkeys([*schema.get(key, ()), *value]))
        elif key != "$ref" and schema.setdefault(key, value) != value:
            lost[key] = value


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _short(text: str) -> str:
    return text if len(text) <= MAX_NOTE else f"{text[:MAX_NOTE]}…"

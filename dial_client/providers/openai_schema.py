"""Conversion of schemas to the subsets of JSON Schema that OpenAI documents.

Constraints that a subset does not support are described in words, in the description of the property or of the tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

MAX_SCHEMAS = 2_000
"""The most schemas in the parameters of a tool after references are expanded, which can yield 2^60 from a few lines."""
MAX_DEPTH = 32
"""The most levels of nesting after references are expanded."""
MAX_NOTE = 300
"""The most characters of a description of lost constraints."""

Schema = dict[str, Any]


class SubsetWriter:
    """Converts the parameters of a tool to the subset that OpenAI documents."""

    keywords: ClassVar[frozenset[str]] = frozenset(
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
    """Prefixes of references that are kept; other references are expanded."""
    bare_references: ClassVar[bool] = False
    """True if the subset allows no other keyword beside ``$ref``."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._left = MAX_SCHEMAS

    def write_parameters(self) -> tuple[Schema, str]:
        """Return the parameters, and a description of lost top-level constraints: models read no description there."""
        written, remarks = self.write(self.root, ())
        return {"type": "object", "properties": {}} | written, " ".join(remarks)

    def write(self, schema: Mapping[str, Any], ancestors: tuple[str, ...]) -> tuple[Schema, list[str]]:
        """Return a schema within the subset, and descriptions of lost constraints.

        Args:
            schema: Any schema within the parameters.
            ancestors: The references on the path to the schema, with "" for each level of nesting.
        """
        lost: Schema = {}
        remarks: list[str] = []
        source, ancestors = self.resolve_reference(dict(schema), ancestors, remarks)
        _merge_all_of(source, lost, self.find_target)
        _distribute_any_of(source, lost)
        written: Schema = {}
        for key, value in source.items():
            self._write_keyword(key, value, (*ancestors, ""), written, lost)
        written = self.complete(written, lost, remarks)
        if isinstance(examples := lost.pop("examples", None), list) and examples:
            remarks.append(f"For example: {_shorten(', '.join(map(_to_json, examples[:3])))}.")
        if lost:
            remarks.append(f"Must also satisfy this JSON Schema: {_shorten(_to_json(lost))}")
        return written, remarks

    def resolve_reference(
        self, schema: Schema, ancestors: tuple[str, ...], remarks: list[str]
    ) -> tuple[Schema, tuple[str, ...]]:
        """Replace a reference by its target; describe a recursive reference to an ancestor in words."""
        for _ in range(MAX_DEPTH):
            reference = str(schema.get("$ref", ""))
            if not reference or (
                reference.startswith(self.references) and not (self.bare_references and len(schema) > 1)
            ):
                break
            if reference in ancestors and reference.startswith(self.references):
                return {"$ref": reference}, ancestors
            del schema["$ref"]
            target = self.find_target(reference)
            if reference in ancestors or reference == "#":
                remarks.append(f"Of the same form as {target.get('title') or 'what it lies in'} (recursive).")
                return {"type": target.get("type", "object"), **schema}, ancestors
            ancestors, schema = (*ancestors, reference), {**target, **schema}
        return schema, ancestors

    def complete(self, written: Schema, _lost: Schema, _remarks: list[str]) -> Schema:
        """Return the schema with further changes that the subset requires."""
        return written

    def get_any_schema(self) -> Schema:
        """Return a schema that allows any value."""
        return {}

    def find_target(self, reference: Any) -> Mapping[str, Any]:
        """Return the target of a local reference; an empty schema if there is none."""
        target: Any = self.root
        for step in str(reference).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = target[int(name)] if name.isdecimal() and int(name) < len(target) else None
            else:
                target = target.get(name) if isinstance(target, Mapping) else None
        return target if isinstance(target, Mapping) else {}

    def _write_keyword(self, key: str, value: Any, ancestors: tuple[str, ...], written: Schema, lost: Schema) -> None:
        match key:
            case "additionalProperties" if isinstance(value, bool):
                if key in self.keywords:
                    written[key] = value
            case "$defs" | "definitions" if key not in self.keywords:
                pass
            case "properties" | "$defs" | "definitions" if isinstance(value, Mapping):
                written[key] = {name: self._write_part(part, ancestors) for name, part in value.items()}
            case "items":
                written[key] = self._write_part(value, ancestors)
            case "anyOf" if isinstance(value, list):
                written[key] = [self._write_part(part, ancestors) for part in value]
            case "format" if value not in self.formats:
                lost[key] = value
            case _ if key in self.keywords and key != "additionalProperties":
                written[key] = value
            case _ if key not in _SILENT_KEYWORDS:
                lost[key] = value

    def _write_part(self, schema: Any, ancestors: tuple[str, ...]) -> Schema:
        """Return a schema within the subset, with lost constraints in its description."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or len(ancestors) > MAX_DEPTH:
            return self.get_any_schema()
        written, remarks = self.write(schema, ancestors)
        if remarks:
            described = written.get("description")
            written["description"] = " ".join(
                [described, *remarks] if isinstance(described, str) and described else remarks
            )
        return written


class StrictSubsetWriter(SubsetWriter):
    """Converts the parameters of a tool for strict mode: all properties are required, and none are additional.

    An optional property may be null instead. Before the tool is called, such a null is removed if the server's schema
    has a type for the property.
    """

    keywords: ClassVar[frozenset[str]] = SubsetWriter.keywords - {"default"}
    bare_references: ClassVar[bool] = True

    def write_parameters(self) -> tuple[Schema, str]:
        """Return the parameters, and a description of lost top-level constraints."""
        written, remarks = super().write_parameters()
        return {"required": [], "additionalProperties": False} | written, remarks

    def complete(self, written: Schema, _lost: Schema, remarks: list[str]) -> Schema:
        """Return the schema with all its properties required."""
        types = written.get("type")
        if "properties" not in written and "object" not in (types if isinstance(types, list) else [types]):
            return written
        if written.get("additionalProperties") is True:
            remarks.append("Properties of other names cannot be given here.")
        required = written.get("required", ())
        properties = written.get("properties", {})
        written["properties"] = {
            name: part if name in required else _allow_null(part) for name, part in properties.items()
        }
        return written | {"required": list(properties), "additionalProperties": False}


def _allow_null(schema: Schema) -> Schema:
    types = schema.get("type")
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not types or "const" in schema:
        about = {"description": schema.pop("description")} if "description" in schema else {}
        return {**about, "anyOf": [schema, {"type": "null"}]} if schema else about
    types = types if isinstance(types, list) else [types]
    listed = {"enum": [*schema["enum"], None]} if "enum" in schema and None not in schema["enum"] else {}
    return schema | listed | {"type": list(dict.fromkeys([*types, "null"]))}


_SILENT_KEYWORDS = frozenset({"unevaluatedProperties", "additionalItems", "readOnly", "writeOnly", "deprecated"})
"""Keywords that are dropped without a description."""


def _merge_all_of(schema: Schema, lost: Schema, find_target: Any) -> None:
    """Merge the branches of ``allOf`` where they do not contradict each other, and replace ``oneOf`` by ``anyOf``."""
    for _ in range(MAX_DEPTH):
        parts = schema.pop("allOf", None)
        if not isinstance(parts, list):
            break
        for part in parts:
            own = {**find_target(part["$ref"]), **part} if isinstance(part, Mapping) and "$ref" in part else part
            _merge(schema, own if isinstance(own, Mapping) else {}, lost)
    if (branches := schema.pop("oneOf", None)) and schema.setdefault("anyOf", branches) != branches:
        lost["oneOf"] = branches


def _distribute_any_of(schema: Schema, lost: Schema) -> None:
    """Move type keywords beside ``anyOf`` into its branches: some endpoints refuse type keywords in both places."""
    branches, type_keywords = schema.get("anyOf"), [key for key in _TYPE_KEYWORDS if key in schema]
    if not isinstance(branches, list) or not type_keywords:
        return
    if all(isinstance(branch, Mapping) and _TYPE_KEYWORDS & set(branch) for branch in branches):
        form = {key: schema.pop(key) for key in (*type_keywords, "required") if key in schema}
        schema["anyOf"] = [dict(branch) for branch in branches]
        for branch in schema["anyOf"]:
            _merge(branch, form, {})
    else:
        lost["anyOf"] = schema.pop("anyOf")


_TYPE_KEYWORDS = frozenset({"type", "properties", "items", "enum", "const"})


def _merge(schema: Schema, part: Mapping[str, Any], lost: Schema) -> None:
    for key, value in part.items():
        if key == "properties" and isinstance(value, Mapping):
            schema[key] = {**value, **schema.get(key, {})}
        elif key == "required" and isinstance(value, list):
            schema[key] = list(dict.fromkeys([*schema.get(key, ()), *value]))
        elif key != "$ref" and schema.setdefault(key, value) != value:
            lost[key] = value


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_NOTE else f"{text[:MAX_NOTE]}…"

"""Conversion of schemas to Google's ``Schema``, from OpenAPI 3.0: https://ai.google.dev/api/caching#Schema.

A schema has exactly one type, ``nullable`` instead of the type null, and no references. Enum values are strings. An
object has at least one property. Gemini refuses other schemas: "Unknown name …", "should be non-empty for OBJECT type".
"""

from __future__ import annotations

from typing import Any, ClassVar

from dial_client.providers.openai_schema import Schema, SubsetWriter

_TYPE_KEYWORDS = ("type", "properties", "required", "items", "enum")
"""Keywords that are not allowed beside ``anyOf``."""
_NULL = {"type": "string", "nullable": True}
_TYPE_BY_KEYWORD = {
    "properties": "object", "items": "array", "enum": "string", "pattern": "string", "minLength": "string",
    "maxLength": "string", "minItems": "array", "maxItems": "array", "minimum": "number", "maximum": "number",
}  # fmt: skip


class GeminiSubsetWriter(SubsetWriter):
    """Converts the parameters of a tool for Gemini."""

    keywords: ClassVar[frozenset[str]] = frozenset(
        {
            "type", "title", "description", "enum", "default", "anyOf", "items", "properties", "required", "nullable",
            "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
            "pattern", "format",
        }
    )  # fmt: skip
    formats: ClassVar[frozenset[str]] = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
    references: ClassVar[tuple[str, ...]] = ()

    def write_parameters(self) -> tuple[Schema, str]:
        """Return the parameters, empty for a tool without any, and a description of lost top-level constraints."""
        if self.root.get("properties"):
            return super().write_parameters()
        additional = self.root.get("additionalProperties")
        return {}, "It takes arguments, but none that this endpoint can be told of." if additional else ""

    def resolve_reference(
        self, schema: Schema, ancestors: tuple[str, ...], remarks: list[str]
    ) -> tuple[Schema, tuple[str, ...]]:
        """Replace a reference by its target, and ``const`` and exclusive bounds by keywords that Gemini supports."""
        schema, ancestors = super().resolve_reference(schema, ancestors, remarks)
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        if schema.get("type") == "integer":
            for key, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
                if isinstance(schema.get(key), int) and bound not in schema:
                    schema[bound] = schema.pop(key) + step
        return schema, ancestors

    def complete(self, written: Schema, lost: Schema, remarks: list[str]) -> Schema:
        """Return the schema with exactly one type, and with the further changes that Gemini requires."""
        _keep_string_enum(written, lost)
        _split_types(written)
        _simplify_any_of(written)
        if "anyOf" in written:
            lost |= {key: written.pop(key) for key in _TYPE_KEYWORDS if key in written}
            return written
        if "type" not in written:
            type_ = next((type_ for key, type_ in _TYPE_BY_KEYWORD.items() if key in written), None)
            written |= {"type": type_} if type_ else self.get_any_schema()
        if written.get("type") == "array":
            written.setdefault("items", {"type": "string"})
        if written.get("type") == "object" and not written.get("properties"):
            for key in ("properties", "required", "minProperties", "maxProperties"):
                written.pop(key, None)
            written["type"] = "string"
            remarks.append("A JSON object, written as text.")
        _clean_required(written)
        return written

    def get_any_schema(self) -> Schema:
        """Return a schema that allows any scalar: a schema must have a type, or branches with types."""
        return {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}


def _keep_string_enum(written: Schema, lost: Schema) -> None:
    """Keep an enum of strings; move an enum with other values to the lost constraints."""
    if "enum" not in written:
        return
    values = written.pop("enum")
    values = values if isinstance(values, list) else []
    if None in values:
        written["nullable"] = True
    listed = [value for value in values if value is not None]
    if listed and all(isinstance(value, str) and value for value in listed):
        written |= {"enum": listed} if "anyOf" in written else {"enum": listed, "type": "string"}
        return
    lost["enum"] = values
    types = {_get_json_type(value) for value in listed}
    if len(types) == 1:
        written.setdefault("type", types.pop())


def _split_types(written: Schema) -> None:
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
        written["anyOf"] = [_complete_branch(form) for form in forms]


def _complete_branch(form: Schema) -> Schema:
    if form["type"] == "array":
        form.setdefault("items", {"type": "string"})
    if form["type"] == "object" and not form.get("properties"):
        return {"type": "string", "description": "A JSON object, written as text."}
    return form


def _simplify_any_of(written: Schema) -> None:
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


def _clean_required(written: Schema) -> None:
    required = written.get("required")
    kept = [name for name in required if name in written.get("properties", {})] if isinstance(required, list) else []
    if kept:
        written["required"] = kept
    else:
        written.pop("required", None)


def _get_json_type(value: Any) -> str:
    types = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return types.get(type(value), "object")

"""The part of JSON Schema that Google's ``Schema`` has: https://ai.google.dev/api/caching#Schema, out of OpenAPI 3.0.

One type each, with ``nullable`` in place of null; no references; enums of strings only; an object has at least one
property. A request with anything else is refused whole: "Unknown name …", "should be non-empty for OBJECT type".
"""

from __future__ import annotations

from typing import Any, ClassVar

from dial_client.providers.openai_schema import Schema, SubsetWriter

_FORM = ("type", "properties", "required", "items", "enum")
"""Keywords that cannot stand beside ``anyOf``."""
_NULL = {"type": "string", "nullable": True}
_TYPE_BY_KEYWORD = {
    "properties": "object", "items": "array", "enum": "string", "pattern": "string", "minLength": "string",
    "maxLength": "string", "minItems": "array", "maxItems": "array", "minimum": "number", "maximum": "number",
}  # fmt: skip


class GeminiSubsetWriter(SubsetWriter):
    """Writes one tool's parameters for Gemini."""

    known: ClassVar[frozenset[str]] = frozenset(
        {
            "type", "title", "description", "enum", "default", "anyOf", "items", "properties", "required", "nullable",
            "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
            "pattern", "format",
        }
    )  # fmt: skip
    formats: ClassVar[frozenset[str]] = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
    references: ClassVar[tuple[str, ...]] = ()

    def parameters(self) -> tuple[Schema, str]:
        """Give the parameters, empty where the tool takes none, and in words what is lost at their top."""
        if self.whole.get("properties"):
            return super().parameters()
        others = self.whole.get("additionalProperties")
        return {}, "It takes arguments, but none that this endpoint can be told of." if others else ""

    def opened(self, schema: Schema, above: tuple[str, ...], words: list[str]) -> tuple[Schema, tuple[str, ...]]:
        """Do so for all references, and say with other words what can be said so."""
        schema, above = super().opened(schema, above, words)
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        if schema.get("type") == "integer":
            for key, other, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
                if isinstance(schema.get(key), int) and other not in schema:
                    schema[other] = schema.pop(key) + step
        return schema, above

    def finished(self, said: Schema, lost: Schema, words: list[str]) -> Schema:
        """Give a schema the one type it must have, and what else must be there."""
        _list_strings(said, lost)
        _one_type(said)
        _one_branch(said)
        if "anyOf" in said:
            lost |= {key: said.pop(key) for key in _FORM if key in said}
            return said
        if "type" not in said:
            kind = next((kind for key, kind in _TYPE_BY_KEYWORD.items() if key in said), None)
            said |= {"type": kind} if kind else self.anything()
        if said.get("type") == "array":
            said.setdefault("items", {"type": "string"})
        if said.get("type") == "object" and not said.get("properties"):
            for key in ("properties", "required", "minProperties", "maxProperties"):
                said.pop(key, None)
            said["type"] = "string"
            words.append("A JSON object, written as text.")
        _require_what_is_there(said)
        return said

    def anything(self) -> Schema:
        """Give the schema of any value: one must have a type, or alternatives that do."""
        return {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}


def _list_strings(said: Schema, lost: Schema) -> None:
    """Keep an enum of strings; values of other types cannot be listed."""
    if "enum" not in said:
        return
    values = said.pop("enum")
    values = values if isinstance(values, list) else []
    if None in values:
        said["nullable"] = True
    listed = [value for value in values if value is not None]
    if listed and all(isinstance(value, str) and value for value in listed):
        said |= {"enum": listed} if "anyOf" in said else {"enum": listed, "type": "string"}
        return
    lost["enum"] = values
    kinds = {_kind_of(value) for value in listed}
    if len(kinds) == 1:
        said.setdefault("type", kinds.pop())


def _one_type(said: Schema) -> None:
    """Say null in a word of its own, and several types as alternatives."""
    kinds = said.get("type")
    if kinds == "null":
        said |= _NULL
    if not isinstance(kinds, list):
        return
    del said["type"]
    if "null" in kinds:
        said["nullable"] = True
    others = [kind for kind in kinds if kind != "null"]
    if len(others) == 1:
        said["type"] = others[0]
    elif others and "anyOf" not in said:
        beside = {"object": ("properties", "required"), "array": ("items",), "string": ("enum",)}
        forms = [{"type": kind, **{key: said[key] for key in beside.get(kind, ()) if key in said}} for kind in others]
        for key in ("properties", "required", "items", "enum"):
            said.pop(key, None)
        said["anyOf"] = [_with_parts(form) for form in forms]


def _with_parts(form: Schema) -> Schema:
    if form["type"] == "array":
        form.setdefault("items", {"type": "string"})
    if form["type"] == "object" and not form.get("properties"):
        return {"type": "string", "description": "A JSON object, written as text."}
    return form


def _one_branch(said: Schema) -> None:
    """Take null out of the alternatives; the only one that is left needs none."""
    if "anyOf" not in said:
        return
    branches = [branch for branch in said.pop("anyOf") if isinstance(branch, dict)]
    others = [branch for branch in branches if branch != _NULL]
    if len(others) < len(branches):
        said["nullable"] = True
    if len(others) == 1:
        said |= {key: value for key, value in others[0].items() if key != "description" or key not in said}
    elif others:
        said["anyOf"] = others


def _require_what_is_there(said: Schema) -> None:
    required = said.get("required")
    kept = [name for name in required if name in said.get("properties", {})] if isinstance(required, list) else []
    if kept:
        said["required"] = kept
    else:
        said.pop("required", None)


def _kind_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return kinds.get(type(value), "object")

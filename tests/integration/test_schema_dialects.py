"""Schema dialects: parameters use only keywords that the endpoint supports; lost keywords are in the description."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import ToolSpec, coerce, provider_schema, to_dialect
from tests.support.model_endpoint import Say, hear, model_endpoint, provider_of

GEMINI_FORMATS = {"date-time", "enum", "int32", "int64", "float", "double"}
GEMINI_KEYS = {
    "type", "title", "description", "enum", "default", "anyOf", "items", "properties", "required", "nullable",
    "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
    "pattern", "format",
}  # fmt: skip
OPENAI_LOST = {"allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentRequired", "prefixItems"}


def tool_of(schema: Mapping[str, Any], description: str = "Does it") -> ToolSpec:
    return ToolSpec("do", description, provider_schema.adapt(schema).schema, original_schema=schema)


def convert(property_: Any, dialect: str = "gemini", defs: Any = None) -> Any:
    schema = {"type": "object", "properties": {"p": property_, "q": {"type": "integer"}}, "$defs": defs or {}}
    tool = to_dialect(tool_of(schema), dialect)
    (check_gemini if dialect == "gemini" else check_openai)(tool.input_schema)
    return tool.input_schema["properties"]["p"]


def check_gemini(schema: Any) -> None:
    """Assert that Gemini accepts a schema: no unknown keyword, missing type, empty object or non-string enum."""
    assert set(schema) <= GEMINI_KEYS, set(schema) - GEMINI_KEYS
    if "anyOf" in schema:
        assert len(schema["anyOf"]) > 1
        assert not {"type", "properties", "items", "enum"} & set(schema)
    else:
        assert schema["type"] in {"string", "number", "integer", "boolean", "array", "object"}
    assert schema.get("format", "enum") in GEMINI_FORMATS
    if schema.get("type") == "object":
        assert schema["properties"]
    if schema.get("type") == "array":
        assert "items" in schema
    if "enum" in schema:
        assert schema["type"] == "string"
        assert schema["enum"]
        assert all(isinstance(value, str) and value for value in schema["enum"])
    assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
    for part in parts_of(schema):
        check_gemini(part)


def check_openai(schema: Any) -> None:
    assert not OPENAI_LOST & set(schema)
    assert str(schema.get("$ref", "#/$defs/")).startswith("#/$defs/")
    assert "anyOf" not in schema or not {"type", "properties", "items", "enum", "const"} & set(schema)
    assert isinstance(schema.get("additionalProperties", False), bool)
    for part in parts_of(schema):
        check_openai(part)


def parts_of(schema: Any) -> Iterator[Any]:
    yield from schema.get("properties", {}).values()
    yield from schema.get("$defs", {}).values()
    yield from schema.get("anyOf", ())
    if "items" in schema:
        yield schema["items"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        ({"enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, {"anyOf": [{"type": "string"}, {"type": "number"}]}),
        (
            {"type": "array"},
            {"type": "array", "items": {"anyOf": [{"type": k} for k in ("string", "number", "boolean")]}},
        ),
        ({}, {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}),
        ({"minimum": 3}, {"type": "number", "minimum": 3}),
        (
            {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "boolean"}}},
            {"type": "object", "properties": {"a": {"type": "boolean"}}},
        ),
        ({"$ref": "#/$defs/A"}, {"type": "boolean", "description": "An A"}),
        (
            {"allOf": [{"$ref": "#/$defs/A"}], "title": "Mine"},
            {"type": "boolean", "description": "An A", "title": "Mine"},
        ),
    ],
)
def test_schemas_for_gemini_use_its_own_keywords(schema: Any, expected: Any) -> None:
    defs = {"A": {"type": "boolean", "description": "An A"}}

    assert convert(schema, defs=defs) == expected


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"type": "string", "format": "uri", "description": "Where"}, '{"format":"uri"}'),
        ({"type": "integer", "enum": [1, 2]}, '{"enum":[1,2]}'),
        ({"type": "number", "multipleOf": 2}, '{"multipleOf":2}'),
        ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {"type": "string"}}}, "^x"),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            '{"additionalProperties":{"type":"integer"}}',
        ),
        ({"type": "object"}, "A JSON object, written as text."),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            '{"anyOf":[{"required":["a"]},{"required":["b"]}]}',
        ),
        ({"type": "string", "examples": ["a", "b"]}, 'For example: "a", "b".'),
        ({"not": {"const": 1}}, '{"not":{"const":1}}'),
    ],
)
def test_keywords_unknown_to_gemini_are_in_the_description(schema: Any, lost: str) -> None:
    description = convert(schema)["description"]

    assert lost in description
    assert description.startswith(schema.get("description", ""))


def test_lost_top_level_keywords_are_in_the_description_of_the_tool() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "patternProperties": {"^x": {}}}

    tool = to_dialect(tool_of(schema), "gemini")

    assert tool.description.startswith("Does it\n\nMust also satisfy this JSON Schema: ")
    assert "^x" in tool.description
    assert "description" not in tool.input_schema


def test_a_tool_without_parameters_has_an_empty_schema_for_gemini() -> None:
    assert to_dialect(tool_of({"type": "object"}), "gemini").input_schema == {}
    free = to_dialect(tool_of({"type": "object", "additionalProperties": True}), "gemini")
    assert "none that this endpoint can be told of" in free.description


def test_a_cycle_is_expanded_once_and_described() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}

    converted = convert({"$ref": "#/$defs/Node"}, defs={"Node": node})

    assert converted["properties"]["name"] == {"type": "string"}
    assert "recursive" in converted["properties"]["next"]["description"]
    assert "$ref" not in json.dumps(converted)


def test_the_size_of_expanded_references_is_limited() -> None:
    defs: dict[str, Any] = {
        f"D{at}": {"properties": {side: {"$ref": f"#/$defs/D{at + 1}"} for side in "ab"}} for at in range(60)
    }
    defs["D60"] = {"type": "string"}
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/D0"}}, "$defs": defs}

    tool = to_dialect(ToolSpec("do", "", schema), "gemini")

    check_gemini(tool.input_schema)
    assert len(json.dumps(tool.input_schema)) < 500_000


@pytest.mark.parametrize(
    ("schema", "expected", "lost"),
    [
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"anyOf": [{"type": "string"}, {"const": 1}]}, ""),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {"type": "string", "minLength": 1}, ""),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, ""),
        ({"$ref": "#/properties/q"}, {"type": "integer"}, ""),
        ({"$ref": "#"}, {"type": "object"}, "(recursive)"),
        (
            {"type": "string", "anyOf": [{"enum": ["a"]}, {"enum": ["b"]}]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b"]}]},
            "",
        ),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": {}, "b": {}}},
            '{"anyOf":[{"required":["a"]},{"required":["b"]}]}',
        ),
        ({"type": "string", "format": "uri"}, {"type": "string"}, '{"format":"uri"}'),
        ({"type": "integer", "not": {"const": 0}}, {"type": "integer"}, '{"not":{"const":0}}'),
    ],
)
def test_the_openai_dialect_has_anyof_as_its_only_combinator(schema: Any, expected: Any, lost: str) -> None:
    converted = convert(schema, "openai", defs={"A": {"type": "boolean"}})
    words = converted.pop("description", "")

    assert converted == expected
    assert lost in words


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"$ref": "#/$defs/A"}, {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
        ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"const": 1}, {"anyOf": [{"const": 1}, {"type": "null"}]}),
        ({}, {}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {
                "type": ["object", "null"],
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_in_strict_mode_optional_properties_may_be_null(schema: Any, expected: Any) -> None:
    whole = {"type": "object", "properties": {"p": schema, "q": {"type": "string"}}, "required": ["q"]}
    tool = tool_of(whole | {"$defs": {"A": {"type": "boolean"}}})

    converted = to_dialect(tool, "full", strict=True).input_schema

    assert converted["properties"] == {"p": expected, "q": {"type": "string"}}
    assert converted["required"] == ["p", "q"]
    assert converted["additionalProperties"] is False
    given = {"p": None, "q": "x"}
    if expected and "const" not in schema and "null" not in schema.get("type", ()):
        assert coerce(given, tool.original_schema) == {"q": "x"}


def test_the_full_dialect_leaves_a_schema_unchanged() -> None:
    tool = tool_of({"type": "object", "properties": {"a": {"oneOf": [{"const": 1}, {"const": 2}]}}})

    assert to_dialect(tool, "full") is tool


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["string", "object", "array", "null", "#/$defs/A", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "type", "$ref"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYWORDS = sorted({*GEMINI_KEYS, *OPENAI_LOST, "const", "$ref", "$defs", "examples", "additionalProperties"})
wild = st.recursive(
    st.dictionaries(st.sampled_from(KEYWORDS), values, max_size=5),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", ["object", "null"], ["array", "string", "object"]]),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "items": inner,
            **{key: st.lists(inner, min_size=1, max_size=3) for key in ("anyOf", "oneOf", "allOf")},
            "$defs": st.fixed_dictionaries({"A": inner}),
            "$ref": st.sampled_from(["#/$defs/A", "#", "#/properties/a"]),
        },
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(wild)
def test_any_schema_is_converted_to_supported_keywords(schema: dict[str, Any]) -> None:
    try:
        tool = tool_of(schema | {"type": "object"})
    except provider_schema.Unsupported:
        return
    before = copy.deepcopy(tool.input_schema)

    for dialect, check in (("gemini", check_gemini), ("openai", check_openai)):
        parameters = to_dialect(tool, dialect).input_schema
        if parameters:
            check(parameters)
        json.dumps(parameters)

    assert tool.input_schema == before
    assert tool.original_schema == schema | {"type": "object"}


@pytest.mark.anyio
async def test_a_profile_selects_the_dialect_and_the_original_schema_is_unchanged() -> None:
    tools = (tool_of({"type": "object", "properties": {"a": {"const": "x"}}}), tool_of({"type": "object"}))
    with model_endpoint([Say("Hi")]) as endpoint:
        for dialect in ("full", "gemini"):
            provider = provider_of(endpoint, quirks={"schema_dialect": dialect})
            await hear(provider, tools=tools)
            await provider.aclose()

    full, gemini = ([tool["function"] for tool in request.json["tools"]] for request in endpoint.requests)
    assert full[0]["parameters"]["properties"]["a"] == {"const": "x"}
    assert gemini[0]["parameters"]["properties"]["a"] == {"type": "string", "enum": ["x"]}
    assert full[1]["parameters"] == {"type": "object", "properties": {}}
    assert "parameters" not in gemini[1]
    assert tools[0].original_schema == {"type": "object", "properties": {"a": {"const": "x"}}}

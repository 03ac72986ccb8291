"""Schemas of servers are adapted so that every provider accepts them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.inner import PROVIDER_SCHEMA_MAX_DEPTH as MAX_DEPTH
from tests.inner import AdaptedSchema, Unsupported, adapt
from tests.support.call_counter import count_calls
from tests.support.fakes import unhurried

COMBINATORS = {"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "$ref"}
MAPS_OF_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
LISTS_OF_SCHEMAS = {"anyOf", "oneOf", "allOf", "prefixItems"}
SCHEMAS = {
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
}  # fmt: skip
WORDS = {
    "type", "required", "enum", "const", "default", "description", "title", "format", "pattern", "minimum", "maximum",
    "exclusiveMinimum", "multipleOf", "minLength", "maxItems", "minProperties", "minContains", "uniqueItems",
    "readOnly", "examples", "dependentRequired", "dependencies", "contentEncoding", "id", "$id", "$anchor", "$schema",
    "$comment", "$dynamicRef", "$recursiveRef", "x-vendor",
}  # fmt: skip
NAMES = st.sampled_from(["a", "b", "A", "type", "required", "properties", "$ref", "a b", "ü", "a/b~", "x" * 65, ""])
REFERENCES = st.sampled_from(
    ["#", "#/", "#/$defs/A", "#/$defs/a", "#/$defs/a~1b~0", "#/definitions/A", "#/properties/a", "#/properties",
     "#/properties/a/items", "#/anyOf/0", "#/allOf/1/properties/a", "#/not", "#/default", "#/x-vendor", "#/$defs/a%20b",
     "#A", "A", "http://e.test/a", "file:///etc/passwd", "//e.test", ""]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | NAMES | st.sampled_from(["object", "array", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for schemas with every keyword: mostly valid, with mistakes that real servers made."""
    right: dict[str, st.SearchStrategy[Any]] = {"$ref": REFERENCES}
    right |= dict.fromkeys(MAPS_OF_SCHEMAS, st.dictionaries(NAMES, inner, max_size=3))
    right |= dict.fromkeys(LISTS_OF_SCHEMAS, st.lists(inner, max_size=3))
    right |= dict.fromkeys(SCHEMAS, inner)
    right |= {"type": st.sampled_from(["object", "array", "string", ["object", "null"], "any", ["string", "string"]])}
    right |= {"required": st.lists(NAMES, max_size=3)}
    wrong = st.dictionaries(st.sampled_from(sorted(right.keys() | WORDS)), VALUES, max_size=2)
    sound = st.fixed_dictionaries({}, optional=right)
    return st.builds(lambda sound_part, wrong_part: {**sound_part, **wrong_part}, sound, wrong) | st.booleans()


JSONISH = st.recursive(VALUES, schemas_of, max_leaves=12)


def schemas_within(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each subschema of a schema, with its path."""
    yield path, schema
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in SCHEMAS:
            yield from schemas_within(value, (*path, key))
        elif key in LISTS_OF_SCHEMAS:
            for at, part in enumerate(value):
                yield from schemas_within(part, (*path, key, str(at)))
        elif key in MAPS_OF_SCHEMAS:
            for name, part in value.items():
                yield from schemas_within(part, (*path, key, name))


def pointer(reference: str) -> tuple[str, ...]:
    assert reference.startswith("#"), f"{reference} refers to a different document"
    steps = unquote(reference[1:]).split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def check_is_supported(schema: dict[str, Any]) -> None:
    """Fail unless every provider accepts the schema."""
    assert schema["type"] == "object"
    assert COMBINATORS & schema.keys() == set()
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in schema["properties"])
    assert set(schema.get("required", ())) <= schema["properties"].keys()
    places = dict(schemas_within(schema))
    for part in places.values():
        if isinstance(part, dict) and "$ref" in part:
            assert pointer(part["$ref"]) in places, f"{part['$ref']} refers to no subschema"
    json.dumps(schema, allow_nan=False)
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@unhurried
@given(JSONISH)
@example({"anyOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}})
@example({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}})
@example({"$ref": "#/default", "default": {"required": 5, "properties": 7, "type": {}}})
@example({"properties": {"a": {"$ref": "#/not"}}, "not": {"type": "string"}})
@example({"type": ["object", {}], "properties": {"a": {"type": {"a": 1}}}})
def test_any_schema_is_adapted_or_refused_with_a_reason(schema: Any) -> None:
    before = json.dumps(schema)
    try:
        fitted = adapt(schema)
    except Unsupported as reason:
        assert str(reason)
        return
    assert isinstance(fitted, AdaptedSchema)
    check_is_supported(fitted.schema)
    assert adapt(fitted.schema) == AdaptedSchema(fitted.schema), "an adapted schema is not changed again"
    assert json.dumps(schema) == before, "the server's own schema is not changed"


UNCHANGED: list[tuple[str, dict[str, Any]]] = [
    ("plain", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    (
        "combinators below the top",
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
    ),
    (
        "a tree",
        {
            "type": "object",
            "properties": {"root": {"$ref": "#/$defs/N"}},
            "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
        },
    ),
    ("itself", {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}),
    (
        "a reference to a neighbour",
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}},
    ),
    (
        "a reference into a list",
        {
            "type": "object",
            "properties": {"a": {"anyOf": [{"type": "string"}]}, "b": {"$ref": "#/properties/a/anyOf/0"}},
        },
    ),
    (
        "an encoded reference",
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/List%3Cint%3E"}},
            "$defs": {"List<int>": {"type": "array", "items": {"type": "integer"}}},
        },
    ),
    (
        "a property named like a keyword",
        {"type": "object", "properties": {"id": {"type": "string"}, "anyOf": {"type": "string"}}},
    ),
    (
        "values that look like schemas",
        {"type": "object", "properties": {"a": {"enum": [{"$ref": "http://e.test"}], "default": {"type": "nonsense"}}}},
    ),
    ("closed", {"type": "object", "properties": {}, "additionalProperties": False}),
]


@pytest.mark.parametrize("schema", [schema for _, schema in UNCHANGED], ids=[name for name, _ in UNCHANGED])
def test_a_schema_that_every_provider_accepts_is_unchanged(schema: dict[str, Any]) -> None:
    assert adapt(schema) == AdaptedSchema(schema)


ADAPTED: list[tuple[str, Any, dict[str, Any]]] = [
    ("nothing", None, {"type": "object", "properties": {}}),
    ("an empty object", {}, {"type": "object", "properties": {}}),
    ("no type", {"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ("an object or null", {"type": ["object", "null"]}, {"type": "object", "properties": {}}),
    ("null keywords", {"type": "object", "properties": None, "required": None}, {"type": "object", "properties": {}}),
    (
        "an array without items",
        {"properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
    ),
    (
        "booleans of draft 4",
        {"properties": {"a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "required": True}}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}},
    ),
    (
        "tuples of draft 7",
        {"properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [{"type": "string"}]}}}},
    ),
    (
        "an unknown type",
        {"properties": {"a": {"type": "any", "description": "it"}}},
        {"type": "object", "properties": {"a": {"description": "it"}}},
    ),
    (
        "a remote reference",
        {"properties": {"a": {"$ref": "http://e.test/a", "description": "it"}}},
        {"type": "object", "properties": {"a": {"description": "it"}}},
    ),
    (
        "a remote reference in a rare keyword",
        {"additionalProperties": {"unevaluatedProperties": {"$ref": "http://e.test/a"}}},
        {"type": "object", "properties": {}, "additionalProperties": {"unevaluatedProperties": {}}},
    ),
    (
        "a required property that is not defined",
        {"properties": {"a": {}}, "required": ["a", "b", "a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
    ),
    (
        "all of several",
        {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
    ),
    (
        "a reference at the top",
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}}}},
        {"type": "object", "properties": {"a": {}}, "$defs": {"A": {"type": "object", "properties": {"a": {}}}}},
    ),
    (
        "a dialect",
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://e.test", "type": "object"},
        {"type": "object", "properties": {}},
    ),
]


@pytest.mark.parametrize(("schema", "fitted"), [case[1:] for case in ADAPTED], ids=[case[0] for case in ADAPTED])
def test_a_schema_that_a_provider_refuses_is_adapted(schema: Any, fitted: dict[str, Any]) -> None:
    assert adapt(schema) == AdaptedSchema(fitted)


LEFT_OUT: list[tuple[str, Any, str]] = [
    ("a list", [1], "not an object"),
    ("a string", "object", "not an object"),
    ("arguments that are a string", {"type": "string"}, 'of type "string"'),
    ("arguments that are one of no objects", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "not an object"),
    (
        "a required property with a name no provider takes",
        {"properties": {"größe": {}}, "required": ["größe"]},
        "größe",
    ),
    ("nested too deeply", json.loads('{"items":' * 100 + "{}" + "}" * 100), r"too deeply \(more than 64 levels\)"),
    ("a constant nested too deeply", {"const": json.loads("[" * 900 + "]" * 900)}, "too deeply"),
]


@pytest.mark.parametrize(("schema", "why"), [case[1:] for case in LEFT_OUT], ids=[case[0] for case in LEFT_OUT])
def test_a_schema_that_cannot_be_adapted_is_refused_with_the_reason(schema: Any, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        adapt(schema)


def test_a_schema_nested_up_to_the_limit_is_adapted() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 2):
        schema = {"type": "array", "items": schema}
    assert adapt({"type": "object", "properties": {"a": schema}}).hints == ()


IN_WORDS: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "one of two properties is needed",
        {"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['"oneOf":[{"required":["a"]},{"required":["b"]}]'],
    ),
    ("a condition", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, ['"if":', '"then":']),
    (
        "a condition in all of several",
        {"allOf": [{"if": {"required": ["a"]}, "then": {"required": ["b"]}}]},
        ['"if":', '"then":'],
    ),
    (
        "alternatives in all of several",
        {"allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]},
        ['"anyOf":'],
    ),
    ("a negation", {"not": {"required": ["a", "b"]}}, ['"not":']),
    (
        "alternatives that only differ in a limit",
        {"anyOf": [{"minProperties": 1}, {"maxProperties": 5}]},
        ['"minProperties":1'],
    ),
    ("a property whose name cannot be offered", {"properties": {"größe": {}}}, ["'größe'"]),
]


@pytest.mark.parametrize(("schema", "words"), [case[1:] for case in IN_WORDS], ids=[case[0] for case in IN_WORDS])
def test_constraints_removed_from_the_schema_are_described_in_words(schema: dict[str, Any], words: list[str]) -> None:
    hints = "\n".join(adapt(schema).hints)
    assert [word for word in words if word not in hints] == []


@pytest.mark.parametrize("branches", [[{"type": "object"}, {"type": "null"}], [{"type": "object", "description": "x"}]])
def test_alternatives_without_constraints_are_not_described(branches: list[Any]) -> None:
    assert adapt({"anyOf": branches}) == AdaptedSchema({"type": "object", "properties": {}})


def test_alternatives_offer_the_properties_of_all_and_require_what_all_require() -> None:
    shared = {"type": "object", "properties": {"kind": {}}, "required": ["kind"]}
    schema = {
        "anyOf": [
            {"allOf": [{"$ref": "#/$defs/S"}, {"properties": {"a": {}}, "required": ["a"]}]},
            {"allOf": [{"$ref": "#/$defs/S"}, {"properties": {"b": {}}, "required": ["b"]}]},
        ],
        "$defs": {"S": shared},
    }
    fitted = adapt(schema)
    assert fitted.schema["properties"].keys() == {"kind", "a", "b"}
    assert fitted.schema["required"] == ["kind"]


def test_the_description_of_removed_constraints_is_bounded() -> None:
    schema = {
        "not": {"enum": ["x" * 10_000]},
        "properties": {f"ä{at}" + "x" * 1000: {} for at in range(1000)},
        "allOf": [{"not": {"const": at}} for at in range(1000)],
    }
    assert sum(len(hint) for hint in adapt(schema).hints) < 20_000


# --- time, measured as the number of function calls -----------------------------


def wide(n: int) -> dict[str, Any]:
    return {"properties": {f"p{at}": {"$ref": "#/$defs/A"} for at in range(n)}, "$defs": {"A": {"type": "string"}}}


def alternatives(n: int) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/d{at}"} for at in range(n)], "$defs": {f"d{at}": wide(2) for at in range(n)}}


def odd_names(n: int) -> dict[str, Any]:
    names = [f"n{at}" for at in range(n)]
    return {"properties": {name: {} for name in [*names, *(f"ä{at}" for at in range(n))]}, "required": names}


def chain(n: int) -> dict[str, Any]:
    links = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{n}": {"type": "object"}}}


@pytest.mark.parametrize("make", [wide, alternatives, odd_names, chain])
def test_adapting_a_schema_takes_linear_time(make: Callable[[int], dict[str, Any]]) -> None:
    adapt({})
    small, large = count_calls(lambda: adapt(make(400))), count_calls(lambda: adapt(make(800)))
    assert large < 2.5 * small


def exponential_schema(key: str) -> dict[str, Any]:
    """Return a schema in which each definition refers to the next definition twice: 2^60 alternatives."""
    defs = {f"d{at}": {key: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(60)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, "d60": {"type": "object", "properties": {"a": {}}}}}


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_a_schema_with_exponentially_many_alternatives_is_adapted_in_bounded_time(key: str) -> None:
    assert count_calls(lambda: check_is_supported(adapt(exponential_schema(key)).schema)) < 1_000_000

"""A server's schemas made fit for every provider."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dial_client.schema.provider_schema import MAX_DEPTH, AdaptedSchema, Unsupported, adapt
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
    """Schemas with every keyword there is, most of them rightly made; what is wrong in them, servers have sent."""
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
    """Each place in a schema where a schema stands."""
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
    assert reference.startswith("#"), f"{reference} leads somewhere else"
    steps = unquote(reference[1:]).split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def check_it_is_fit(schema: dict[str, Any]) -> None:
    """Fail unless every provider takes this."""
    assert schema["type"] == "object"
    assert COMBINATORS & schema.keys() == set()
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in schema["properties"])
    assert set(schema.get("required", ())) <= schema["properties"].keys()
    places = dict(schemas_within(schema))
    for part in places.values():
        if isinstance(part, dict) and "$ref" in part:
            assert pointer(part["$ref"]) in places, f"{part['$ref']} leads nowhere"
    json.dumps(schema, allow_nan=False)
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@unhurried
@given(JSONISH)
@example({"anyOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}})
@example({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}})
@example({"$ref": "#/default", "default": {"required": 5, "properties": 7, "type": {}}})
@example({"properties": {"a": {"$ref": "#/not"}}, "not": {"type": "string"}})
@example({"type": ["object", {}], "properties": {"a": {"type": {"a": 1}}}})
def test_whatever_a_server_sends_is_made_fit_or_left_out(schema: Any) -> None:
    before = json.dumps(schema)
    try:
        fitted = adapt(schema)
    except Unsupported as reason:
        assert str(reason)
        return
    assert isinstance(fitted, AdaptedSchema)
    check_it_is_fit(fitted.schema)
    assert adapt(fitted.schema) == AdaptedSchema(fitted.schema), "what is fit is left as it is"
    assert json.dumps(schema) == before, "the server's own schema is not changed"


AS_THEY_ARE: list[tuple[str, dict[str, Any]]] = [
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


@pytest.mark.parametrize("schema", [schema for _, schema in AS_THEY_ARE], ids=[name for name, _ in AS_THEY_ARE])
def test_what_every_provider_takes_is_left_as_it_is(schema: dict[str, Any]) -> None:
    assert adapt(schema) == AdaptedSchema(schema)


MADE_FIT: list[tuple[str, Any, dict[str, Any]]] = [
    ("nothing", None, {"type": "object", "properties": {}}),
    ("an empty object", {}, {"type": "object", "properties": {}}),
    ("no type", {"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ("an object or null", {"type": ["object", "null"]}, {"type": "object", "properties": {}}),
    ("null keywords", {"type": "object", "properties": None, "required": None}, {"type": "object", "properties": {}}),
    (
        "an array of what",
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
        "a type nobody knows",
        {"properties": {"a": {"type": "any", "description": "it"}}},
        {"type": "object", "properties": {"a": {"description": "it"}}},
    ),
    (
        "a remote reference",
        {"properties": {"a": {"$ref": "http://e.test/a", "description": "it"}}},
        {"type": "object", "properties": {"a": {"description": "it"}}},
    ),
    (
        "a remote reference where few look",
        {"additionalProperties": {"unevaluatedProperties": {"$ref": "http://e.test/a"}}},
        {"type": "object", "properties": {}, "additionalProperties": {"unevaluatedProperties": {}}},
    ),
    (
        "a property that is required and not there",
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


@pytest.mark.parametrize(("schema", "fitted"), [case[1:] for case in MADE_FIT], ids=[case[0] for case in MADE_FIT])
def test_what_a_provider_refuses_is_put_right(schema: Any, fitted: dict[str, Any]) -> None:
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
    ("nested without end", json.loads('{"items":' * 100 + "{}" + "}" * 100), "too deeply"),
    ("a constant nested without end", {"const": json.loads("[" * 900 + "]" * 900)}, "too deeply"),
]


@pytest.mark.parametrize(("schema", "why"), [case[1:] for case in LEFT_OUT], ids=[case[0] for case in LEFT_OUT])
def test_what_cannot_be_put_right_is_left_out_with_the_reason(schema: Any, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        adapt(schema)


def test_as_deep_as_anybody_means_is_not_too_deep() -> None:
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
    ("what must not be", {"not": {"required": ["a", "b"]}}, ['"not":']),
    (
        "alternatives that only differ in a limit",
        {"anyOf": [{"minProperties": 1}, {"maxProperties": 5}]},
        ['"minProperties":1'],
    ),
    ("a property whose name cannot be offered", {"properties": {"größe": {}}}, ["'größe'"]),
]


@pytest.mark.parametrize(("schema", "words"), [case[1:] for case in IN_WORDS], ids=[case[0] for case in IN_WORDS])
def test_constraints_outside_the_schema_are_described_in_words(schema: dict[str, Any], words: list[str]) -> None:
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


def test_words_about_a_schema_have_an_end() -> None:
    schema = {
        "not": {"enum": ["x" * 10_000]},
        "properties": {f"ä{at}" + "x" * 1000: {} for at in range(1000)},
        "allOf": [{"not": {"const": at}} for at in range(1000)],
    }
    assert sum(len(hint) for hint in adapt(schema).hints) < 20_000


# --- time: calls of functions are counted, the clock is not looked at -----------------------------


def work(of: Callable[[], object]) -> int:
    """Count the function calls, of Python and C, that `of` takes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        of()
    finally:
        sys.setprofile(None)
    return calls


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
def test_twice_the_schema_is_about_twice_the_work(make: Callable[[int], dict[str, Any]]) -> None:
    adapt({})
    small, large = work(lambda: adapt(make(400))), work(lambda: adapt(make(800)))
    assert large < 2.5 * small


def laughs(key: str) -> dict[str, Any]:
    """Each definition asks for the next one twice: 2^60 alternatives in a few lines."""
    defs = {f"d{at}": {key: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(60)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, "d60": {"type": "object", "properties": {"a": {}}}}}


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_grows_without_end_when_it_is_unfolded_is_not(key: str) -> None:
    assert work(lambda: check_it_is_fit(adapt(laughs(key)).schema)) < 1_000_000

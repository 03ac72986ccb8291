"""A GBNF grammar of a JSON Schema accepts the values that fit the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.inner import MAX_OPTIONAL, Grammar, to_literal
from tests.support.gbnf_acceptor import accepts


def grammar_of(schema: dict[str, Any]) -> str:
    rules = Grammar()
    return rules.to_text(rules.add_object(schema, "it"))


def object_of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def with_property(schema: dict[str, Any]) -> dict[str, Any]:
    return object_of({"x": schema}, "x")


STRING: dict[str, Any] = {"type": "string"}
NESTED = object_of({"a": {"type": "integer"}, "b": STRING}, "a")


@pytest.mark.parametrize(
    ("schema", "value", "is_accepted"),
    [
        (with_property(STRING), 'with "quotes" and \\ and \n', True),
        (with_property(STRING), "Grüße, 東京 \N{GRINNING FACE}", True),
        (with_property(STRING), 3, False),
        (with_property({"type": "integer"}), -17, True),
        (with_property({"type": "integer"}), 1.5, False),
        (with_property({"type": "number"}), 0.25, True),
        (with_property({"type": "number"}), 123456, True),
        (with_property({"type": "boolean"}), True, True),
        (with_property({"type": "boolean"}), "true", False),
        (with_property({"enum": ["km", "mi", 3, None]}), "mi", True),
        (with_property({"enum": ["km", "mi", 3, None]}), None, True),
        (with_property({"enum": ["km", "mi"]}), "ft", False),
        (with_property({"const": 'say "hi"'}), 'say "hi"', True),
        (with_property({"const": "a"}), "b", False),
        (with_property({"anyOf": [STRING, {"type": "null"}]}), None, True),
        (with_property({"anyOf": [STRING, {"type": "null"}]}), 1, False),
        (with_property({"oneOf": [NESTED, {"type": "integer"}]}), {"a": 1}, True),
        (with_property({"type": ["string", "null"]}), None, True),
        (with_property({"type": ["string", "null"]}), True, False),
        (with_property({"type": "array", "items": {"type": "integer"}}), [], True),
        (with_property({"type": "array", "items": {"type": "integer"}}), [1, 2, 3], True),
        (with_property({"type": "array", "items": {"type": "integer"}}), ["a"], False),
        (with_property({"type": "array", "items": STRING, "minItems": 1}), [], False),
        (with_property({"type": "array"}), [1, {"b": [None]}], True),
        (with_property(NESTED), {"a": 1}, True),
        (with_property(NESTED), {"a": 1, "b": "c"}, True),
        (with_property(NESTED), {"b": "c"}, False),
        (with_property({"type": "object"}), {"any": [1, 2]}, True),
        (with_property({"$ref": "#/$defs/x"}), {"whatever": True}, True),
        (with_property({}), None, True),
    ],
)
def test_a_grammar_accepts_a_value_that_fits_its_schema_and_no_other_value(
    schema: dict[str, Any], value: Any, is_accepted: bool
) -> None:
    assert accepts(grammar_of(schema), json.dumps({"x": value}, ensure_ascii=False)) is is_accepted


def test_required_properties_come_first_and_optional_properties_may_be_left_out() -> None:
    grammar = grammar_of(object_of({"a": STRING, "b": STRING, "c": STRING}, "b"))
    for text in ('{"b": "1"}', '{"b": "1", "a": "2"}', '{"b": "1", "c": "3"}', '{"b": "1", "a": "2", "c": "3"}'):
        assert accepts(grammar, text), text
    for text in ("{}", '{"a": "2"}', '{"a": "2", "b": "1"}', '{"b": "1", "d": "4"}', '{"b": "1",}'):
        assert not accepts(grammar, text), text


def test_without_required_properties_any_property_may_be_present() -> None:
    grammar = grammar_of(object_of({"a": STRING, "b": STRING}))
    for text in ("{}", '{"a": "1"}', '{"b": "2"}', '{"a": "1", "b": "2"}'):
        assert accepts(grammar, text), text
    assert not accepts(grammar, '{, "b": "2"}')


def test_the_grammar_of_an_object_without_properties_accepts_only_an_empty_object() -> None:
    grammar = grammar_of({"type": "object"})
    assert accepts(grammar, "{}")
    assert not accepts(grammar, '{"a": 1}')


def test_the_size_of_a_grammar_is_bounded_for_deep_and_wide_schemas() -> None:
    deep: dict[str, Any] = STRING
    for _ in range(200):
        deep = with_property(deep)
    wide = object_of({f"p{number}": STRING for number in range(500)})
    assert len(grammar_of(deep)) < 5_000
    assert len(grammar_of(wide)) < 20_000
    assert accepts(grammar_of(wide), json.dumps({f"p{MAX_OPTIONAL - 1}": "a"}))


@pytest.mark.parametrize("text", ['"', "\\", "a\nb\tc\r", "\x00\x1b", "é東\N{GRINNING FACE}", "\N{LINE SEPARATOR}"])
def test_any_text_can_be_a_terminal(text: str) -> None:
    assert accepts(f"root ::= {to_literal(text)}\n", text)
    assert "\n" not in to_literal(text)

"""Arguments are checked against the server's own schema: the problems are short, and the time is bounded."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from tests.inner import ArgumentCheck

CHECKED: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    ("valid arguments", {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}, []),
    (
        "a value of the wrong type",
        {"properties": {"a": {"type": "integer"}}},
        {"a": "x"},
        ['a: "x" is not of type "integer"'],
    ),
    ("a missing property", {"required": ["a"]}, {}, ['"a" is a required property']),
    (
        "a wrong value in a nested list",
        {"properties": {"a": {"items": {"type": "null"}}}},
        {"a": [None, 1]},
        ['a.1: 1 is not of type "null"'],
    ),
    (
        "a keyword that the adapted schema lacks",
        {"not": {"required": ["a"]}},
        {"a": 1},
        ['{"required":["a"]} is not allowed for {"a":1}'],
    ),
    ("a lone surrogate", {"properties": {"a": {"type": "integer"}}}, {"a": "\ud800"}, ["surrogates"]),
    ("a value of no JSON type", {"properties": {"a": {"type": "integer"}}}, {"a": object()}, ["type"]),
    ("without a schema", {}, {"a": 1}, []),
    ("a schema that is invalid itself", {"type": "nonsense"}, {"a": 1}, []),
    (
        "a schema with a pattern that is no regular expression",
        {"properties": {"a": {"pattern": "[a-"}, "b": {"type": "integer"}}},
        {"a": "x", "b": "x"},
        ['b: "x" is not of type "integer"'],
    ),
    (
        "a schema with names that are no regular expression",
        {"patternProperties": {"[a-": {}, "^n": {"type": "null"}}, "additionalProperties": False},
        {"b": 1, "n": 1},
        ['n: 1 is not of type "null"'],
    ),
    (
        "a property that is called pattern",
        {"properties": {"pattern": {"pattern": "("}, "b": {"const": {"pattern": "("}}}},
        {"pattern": "x", "b": {"pattern": "x"}},
        ["b: "],
    ),
    ("a schema that refers to a URL", {"$ref": "http://127.0.0.1:1/schema"}, {"a": 1}, []),
    ("a schema that refers to a file", {"$ref": "file:///etc/hostname"}, {"a": 1}, []),
    ("a schema with a lone surrogate", {"description": "\ud800"}, {"a": 1}, []),
    ("a schema that is its own reference", {"$ref": "#"}, {"a": 1}, []),
]


@pytest.mark.parametrize(("schema", "arguments", "problems"), [c[1:] for c in CHECKED], ids=[c[0] for c in CHECKED])
def test_arguments_are_checked_against_the_original_schema(
    schema: Any, arguments: dict[str, Any], problems: list[str]
) -> None:
    found = ArgumentCheck(schema).find_problems(arguments)
    assert len(found) == len(problems)
    assert all(problem in text for problem, text in zip(problems, found, strict=True))


def test_arguments_need_not_be_a_dict() -> None:
    check = ArgumentCheck({"properties": {"a": {"type": "integer"}}})
    assert check.find_problems(MappingProxyType({"a": 1})) == []
    assert len(check.find_problems(MappingProxyType({"a": "x"}))) == 1


def test_at_most_five_problems_are_reported() -> None:
    check = ArgumentCheck({"additionalProperties": {"type": "integer"}})
    assert len(check.find_problems({f"p{at}": "x" for at in range(100)})) == 5


def test_a_problem_does_not_repeat_a_long_value() -> None:
    check = ArgumentCheck({"properties": {"a": {"type": "integer"}}})
    [problem] = check.find_problems({"a": "x" * 100_000})
    assert len(problem) < 1000
    assert 'is not of type "integer"' in problem


def test_a_pattern_with_catastrophic_backtracking_is_stopped() -> None:
    check = ArgumentCheck({"properties": {"a": {"type": "string", "pattern": r"(?=a)(a+)+\1$"}}})
    assert len(check.find_problems({"a": "a" * 5000 + "!"})) == 1


PLAIN_SCHEMAS: list[Any] = [
    *({"type": kind} for kind in ("string", "boolean", "integer", "number", "array", "object", "null", "nonsense")),
    {"type": ["string", "null"]},
    {"type": "string", "enum": ["a", "b"]},
    {"type": "integer", "enum": [1]},
    {"type": "string", "enum": "abc"},
    {"type": "string", "minLength": 2},
    {"enum": ["a"]},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": [{"type": "string"}]},
    {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
    {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
    {"type": "object", "properties": [], "required": "b"},
    {"type": "object", "required": [["b"]]},
    True,
    {},
]
VALUES: list[Any] = [
    *("", "a", "\u00e9", "\ud800", True, False, None, 0, 1, 2**53, 2**70, -1, 1.0, 1.5, float("nan"), float("inf")),
    *([], ["a"], [1], ["a", 1], {}, {"b": 1}, {"b": True}, {"b": 1, "c": 2}, {"c": 1}, {1: 2}, b"a"),
]


@pytest.mark.parametrize("schema", PLAIN_SCHEMAS, ids=repr)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_schema_of_plain_keywords_has_the_same_problems_as_within_another(schema: Any, value: Any) -> None:
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    plain, nested = ArgumentCheck(whole), ArgumentCheck({"allOf": [whole]})
    for arguments in ({"a": value}, {"a": value, "b": 1}, {}):
        assert plain.find_problems(arguments) == nested.find_problems(arguments)
        assert plain.is_valid(arguments) == nested.is_valid(arguments)

"""Arguments that a model wrote as text: parsed if unambiguous, and corrected to the schema if that is harmless."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.inner import (
    MAX_LENIENT_CHARS,
    ApprovalChecker,
    ArgumentCheck,
    Deadline,
    Failure,
    Limits,
    PolicyRules,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    ToolExecutor,
    build_catalog,
    coerce,
    parse_arguments,
)
from tests.inner import TOOL_ARGUMENTS_MAX_DEPTH as MAX_DEPTH
from tests.support.fakes import ReceivedEvents, server, text_result, tool_named, unhurried

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)

READABLE = {
    "JSON": ('{"a": [1, 2.5, true, null]}', {"a": [1, 2.5, True, None]}),
    "JSON with a line break in a string": ('{"a": "x\ny"}', {"a": "x\ny"}),
    "Python": ("{'a': True, 'b': None, 'c': (1, 2)}", {"a": True, "b": None, "c": [1, 2]}),
    "quotes of both kinds": ("""{'a': "it's", "b": 'say "hi"'}""", {"a": "it's", "b": 'say "hi"'}),
    "escapes": (r"{'a': 'it\'s \x41\u00e4\n\d', 'b': '\ud83d\ude00'}", {"a": "it's A\u00e4\n\\d", "b": "\U0001f600"}),
    "commas too many": ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}),
    "bare keys": ("{a: 1, b_c: {d: 'e'}}", {"a": 1, "b_c": {"d": "e"}}),
    "a fence": ('```json\n{"a": 1}\n```', {"a": 1}),
    "a fence and Python": ("```\n{'a': 1}\n```", {"a": 1}),
    "JSON in a string": (json.dumps('{"a": "b"}'), {"a": "b"}),
    "Python in a string": (json.dumps("{'a': 1}"), {"a": 1}),
    "numbers": ("{'a': -1.5e3, 'b': .5, 'c': +7, 'd': 1.}", {"a": -1500.0, "b": 0.5, "c": 7, "d": 1.0}),
    "empty": (" {} ", {}),
}
UNREADABLE = [
    '{"a": 1', '{"a": "b', "{'a': [1, 2", '{"a":', '"{\\"a\\": 1"', '```json\n{"a": 1', "{'a': 'b",
    '{"a": 1}}', '{"a": 1} and more', "[1]", "a", "", "null", "{'a'}", "{1: 2}", "{'a': b}", "{'a': 1 'b': 2}", "{,}",
    '{"a": NaN}', "{'a': inf}", "{'a': 1e999}", "{'a': 0x10}", "{'a': __import__('os')}", "{'a': 'b' 'c'}",
    json.dumps(json.dumps('{"a": 1}')), "{" * 100_000, "{'a':" * 1000, '{"a":' * 100_000, "[" * 100_000,
    '{"a": ' + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1) + "}", "{'a': " + "9" * 500 + "}",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), READABLE.values(), ids=READABLE)
def test_an_unambiguous_text_is_parsed(text: str, value: dict[str, Any]) -> None:
    assert parse_arguments(text) == value


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: text[:20])
def test_a_truncated_or_ambiguous_text_is_not_parsed(text: str) -> None:
    assert parse_arguments(text) is None


@unhurried
@given(OBJECTS)
def test_json_is_parsed_as_by_the_json_module(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == value
    assert parse_arguments(json.dumps(value, ensure_ascii=False, indent=1)) == value


@unhurried
@given(OBJECTS)
def test_the_repr_of_a_value_is_parsed(value: dict[str, Any]) -> None:
    assert parse_arguments(repr(value)) == value


@unhurried
@given(OBJECTS, st.integers(0, 1000))
def test_a_truncated_text_is_never_parsed(value: dict[str, Any], cut: int) -> None:
    for text in (json.dumps(value), repr(value)):
        assert parse_arguments(text[: cut % len(text)]) is None


@unhurried
@given(st.text())
@example("\\")
def test_any_text_gives_an_object_or_none(text: str) -> None:
    assert parse_arguments(text) is None or isinstance(parse_arguments(text), dict)
    assert parse_arguments("{" + text + "}") is None or isinstance(parse_arguments("{" + text + "}"), dict)


def test_a_long_text_is_parsed_only_as_json() -> None:
    long = "x" * MAX_LENIENT_CHARS
    assert parse_arguments(json.dumps({"a": long})) == {"a": long}
    assert parse_arguments(repr({"a": long})) is None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "name": {"type": "string"},
        "names": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "array", "items": {"$ref": "#/$defs/count"}},
        "place": {"$ref": "#/$defs/place"},
        "some": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "level": {"enum": [1, 2, 3]},
        "whatever": {},
        "loop": {"$ref": "#/properties/loop"},
    },
    "required": ["count"],
    "$defs": {
        "count": {"type": "integer"},
        "place": {"type": "object", "properties": {"x": {"type": "number"}, "note": {"type": "string"}}},
    },
}
HARMLESS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"count": "17"}, {"count": 17}),
    ({"count": " -3 "}, {"count": -3}),
    ({"count": "17.0"}, {"count": 17}),
    ({"share": "1.5"}, {"share": 1.5}),
    ({"share": "2"}, {"share": 2}),
    ({"flag": "true"}, {"flag": True}),
    ({"flag": "False"}, {"flag": False}),
    ({"name": 17}, {"name": "17"}),
    ({"name": 1.5}, {"name": "1.5"}),
    ({"names": '["a", "b"]'}, {"names": ["a", "b"]}),
    ({"names": "a"}, {"names": ["a"]}),
    ({"names": [1, "a"]}, {"names": ["1", "a"]}),
    ({"counts": ["1", 2]}, {"counts": [1, 2]}),
    ({"counts": 3}, {"counts": [3]}),
    ({"place": '{"x": "1"}'}, {"place": {"x": 1}}),
    ({"place": "{'x': 1.5}"}, {"place": {"x": 1.5}}),
    ({"place": {"x": "1.5", "note": 2}}, {"place": {"x": 1.5, "note": "2"}}),
    ({"place": {"x": None}}, {"place": {}}),
    ({"some": "5"}, {"some": 5}),
    ({"level": "2"}, {"level": 2}),
    ({"name": None, "count": 1}, {"count": 1}),
]
LEFT: list[dict[str, Any]] = [
    {"count": "many"}, {"count": "17.5"}, {"count": "1e3"}, {"count": True}, {"count": None}, {"count": []},
    {"count": "9" * 30}, {"share": "1,5"}, {"share": "nan"}, {"share": "1e999"}, {"flag": "yes"}, {"flag": 1},
    {"name": True}, {"name": {"a": 1}}, {"name": ["a"]}, {"names": True}, {"names": "[a"}, {"counts": "[1"},
    {"place": "here"}, {"place": "[1]"}, {"some": None}, {"either": "17"}, {"either": 17}, {"whatever": "17"},
    {"whatever": None}, {"unknown": "17"}, {"unknown": None}, {"loop": "17"}, {"level": "high"},
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "meant"), HARMLESS, ids=str)
def test_a_harmless_type_mismatch_is_corrected(arguments: dict[str, Any], meant: dict[str, Any]) -> None:
    assert coerce(arguments, SCHEMA) == meant
    assert ArgumentCheck(SCHEMA).find_problems({"count": 1} | meant) == []


@pytest.mark.parametrize("arguments", LEFT, ids=str)
def test_other_type_mismatches_are_unchanged(arguments: dict[str, Any]) -> None:
    assert coerce(arguments, SCHEMA) == arguments


KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null"])
SIMPLE = st.builds(lambda kind: {"type": kind}, KINDS) | st.builds(
    lambda kinds: {"type": kinds}, st.lists(KINDS, min_size=1, max_size=2, unique=True)
)
PROPERTIES = SIMPLE | st.one_of(
    st.just({}),
    st.builds(lambda items: {"type": "array", "items": items}, SIMPLE),
    st.builds(lambda parts: {"anyOf": parts}, st.lists(SIMPLE, min_size=1, max_size=2)),
    st.builds(lambda inner: {"type": "object", "properties": {"a": inner}}, SIMPLE),
)
TEXTS = st.sampled_from(["17", "17.0", "1.5", "true", "null", "[1]", '{"a": "1"}', "a", ""])
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES | TEXTS | st.lists(TEXTS, max_size=2), max_size=3)


@unhurried
@given(st.dictionaries(st.sampled_from("abc"), PROPERTIES), ARGUMENTS)
def test_valid_arguments_are_never_changed(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": properties}
    if not ArgumentCheck(schema).find_problems(arguments):
        assert coerce(arguments, schema) == arguments


def test_arguments_are_corrected_under_a_recursive_schema() -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}}
    arguments: dict[str, Any] = {"n": "1"}
    for _ in range(60):
        arguments = {"n": "1", "next": arguments}
    right = coerce(arguments, node)
    assert right["next"]["next"]["n"] == 1
    both = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert coerce({"a": "1"}, both) == {"a": "1"}


def test_an_invalid_schema_changes_no_arguments() -> None:
    for schema in (
        {"properties": 1},
        {"properties": {"a": 7}},
        {"required": "a"},
        {"anyOf": [1]},
        {"$ref": 3},
        {"type": 1},
    ):
        assert coerce({"a": "1"}, schema) == {"a": "1"}


COUNTER = tool_named("count", input_schema=SCHEMA | {"additionalProperties": False})


async def execute(call: ToolCallRequest) -> tuple[ToolCallResult, ToolCallRequest, list[Any]]:
    """Execute a call; return the result, the call of the started event, and the arguments that reached the server."""
    reached: list[Any] = []

    async def answer(tool: str, arguments: Any, on_progress: Any) -> Any:
        reached.append(arguments)
        return text_result("done")

    catalog = build_catalog([server("s", COUNTER, call=answer)])
    events = ReceivedEvents()
    executor = ToolExecutor(lambda: catalog, ApprovalChecker(PolicyRules(), None), Limits())
    [result] = await executor.execute_all([call], events.emit, Deadline(1000))
    [started] = events.of(ToolCallStarted)
    return result, started.call, reached


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (ToolCallRequest("1", "count", {}, unreadable="{'count': 3,}"), {"count": 3}),
        (ToolCallRequest("1", "count", {}, unreadable="{'count': '3'}"), {"count": 3}),
        (ToolCallRequest("1", "count", {"count": "3", "name": None}), {"count": 3}),
        (ToolCallRequest("1", "count", {"count": 3, "either": "3"}), {"count": 3, "either": "3"}),
    ],
)
async def test_a_call_is_run_with_the_arguments_of_its_started_event(
    call: ToolCallRequest, meant: dict[str, Any]
) -> None:
    result, started, reached = await execute(call)
    assert result.success
    assert reached == [meant]
    assert started == ToolCallRequest("1", "count", meant)


@pytest.mark.anyio
async def test_arguments_that_cannot_be_corrected_are_refused_unchanged() -> None:
    result, started, reached = await execute(ToolCallRequest("1", "count", {"count": "many", "share": "1.5"}))
    assert (result.failure, reached) == (Failure.BAD_ARGUMENTS, [])
    assert started.arguments == {"count": "many", "share": "1.5"}


@pytest.mark.anyio
async def test_a_call_with_truncated_arguments_is_never_run() -> None:
    call = ToolCallRequest("1", "count", {}, unreadable='{"count": 3')
    result, started, reached = await execute(call)
    assert (result.failure, reached, started) == (Failure.BAD_ARGUMENTS, [], call)

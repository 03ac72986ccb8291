"""JSON with comments: values, places of errors, and typed access to values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import CONFIG_VALUES_MAX_DEPTH as MAX_DEPTH
from tests.inner import ConfigError, Node, build_choice_reader, read

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(-1e300, 1e300) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


def error_of(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text, "servers.json")
    return caught.value


@given(JSON, st.booleans(), st.sampled_from([None, 2]))
@settings(deadline=None)
def test_any_json_value_is_read_back(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read(text).value == value
    assert read(text.encode()).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} // the end', {"a": 1}),
        ('// first\n{/* in */"a"/**/:/* x */1/* * / */,}', {"a": 1}),
        ("[1, 2, ]", [1, 2]),
        ("[]", []),
        ("{}", {}),
        ('["// no comment", "/* nor this */"]', ["// no comment", "/* nor this */"]),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('{\r\n"a": 1\r}', {"a": 1}),
        (r'"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"', '"\\/\b\f\n\r\té😀'),
        ("[-0, 1.5, 2e3, -1E-2, 0]", [0, 1.5, 2000.0, -0.01, 0]),
        ("/**/null", None),
    ],
)
def test_comments_and_trailing_commas_are_accepted(text: str, value: Any) -> None:
    assert read(text).value == value


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_the_usual_unicode_encodings_are_read(encoding: str) -> None:
    assert read('{"name": "Ünï"}'.encode(encoding)).value == {"name": "Ünï"}


SYNTAX = [
    ("", 1, 1, "the file is empty", "mcpServers"),
    ("  // nothing\n", 2, 1, "the file is empty", "mcpServers"),
    ("{", 1, 2, "found the end of the file", "the '{' of line 1, column 1 is not closed"),
    (
        '{"a": [1,\n 2',
        2,
        3,
        "expected ',' or ']', found the end of the file",
        "the '[' of line 1, column 7 is not closed",
    ),
    ('{"a": [1]', 1, 10, "expected ',' or '}', found the end of the file", "the '{' of line 1, column 1"),
    ('{"a": 1 "b": 2}', 1, 9, "expected ',' or '}', found '\"'", "comma missing"),
    ('{\n  "a": 1\n  "b": 2\n}', 3, 3, "expected ',' or '}', found '\"'", "comma missing"),
    ('{"a": [1, 2}', 1, 12, "expected ',' or ']', found '}'", ""),
    ('{"a" 1}', 1, 6, "expected ':' after the key, found '1'", ""),
    ('{"a": }', 1, 7, "expected a value, found '}'", ""),
    ("[1,,2]", 1, 4, "expected a value, found ','", "one comma too many"),
    ("{,}", 1, 2, "expected a key in double quotes or '}', found ','", "one comma too many"),
    ('{"a": 1,, "b": 2}', 1, 9, "expected a key in double quotes, found ','", "one comma too many"),
    ("{'a': 1}", 1, 2, "expected a key in double quotes", "strings are written in double quotes"),
    ("{\"a\": 'x'}", 1, 7, 'expected a value, found "\'"', "strings are written in double quotes"),
    ("{a: 1}", 1, 2, "expected a key in double quotes or '}', found 'a'", ""),
    ("{“a”: 1}", 1, 2, "found '“'", "typographic quotes"),
    ('{"a":\u00a01}', 1, 6, "expected a value, found U+00A0", "no-break space"),
    ('{"a": 1} # the end', 1, 10, "there is text after the end", "one object"),
    ('{# a\n"a": 1}', 1, 2, "found '#'", "comments begin with //"),
    ('{"a": True}', 1, 7, "expected a value, found 'T'", "JSON writes true"),
    ('{"a": None}', 1, 7, "expected a value, found 'N'", "JSON writes null"),
    ('{"a": NaN}', 1, 7, "expected a value", "no such number"),
    ('{"a": -Infinity}', 1, 7, "expected a value", "no such number"),
    ('{"a": tok}', 1, 7, "expected a value, found 't'", "text is written in double quotes"),
    ('{"a": .5}', 1, 7, "expected a value, found '.'", "a number is written like"),
    ('{"a": 01}', 1, 7, "expected a value, found '0'", "a number is written like"),
    ('{"a": 1e999}', 1, 7, "this number is too large", ""),
    ('{"a": ' + "9" * 5000 + "}", 1, 7, "this number is too large", ""),
    ('{"a": "x\n}', 1, 7, "a string is not closed", "on its line"),
    ('{"a": "x', 1, 7, "a string is not closed", "on its line"),
    (r'{"a": "C:\dir\"}', 1, 10, r"'\d' is not an escape", r"a backslash is written \\"),
    (r'{"a": "C:\Users"}', 1, 10, r"'\U' is not an escape", r"a backslash is written \\"),
    (r'{"a": "C:\users"}', 1, 10, r"'\u' is not an escape", r"a backslash is written \\"),
    ('{"a": "x\\\x1b"}', 1, 9, "'\\' is not an escape", "backslash"),
    ('{"a": "\\', 1, 8, "'\\' is not an escape", "backslash"),
    ('{"a": "x\ty"}', 1, 9, "U+0009 inside a string", r"\u0009"),
    ('{"a": "x\0y"}', 1, 9, "U+0000 inside a string", r"\u0000"),
    ("\0", 1, 1, "expected a value, found U+0000", ""),
    ('{"a": "\\ud800"}', 1, 7, "half of a surrogate pair", ""),
    ('{"a": "\ud800"}', 1, 8, "half of a surrogate pair", ""),
    ('{"a": 1, "b": 2,\n "a": 3}', 2, 2, "the key 'a' occurs twice in one object", "first in line 1"),
    ('{"a": 1} {"b": 2}', 1, 10, "there is text after the end", "one object"),
    ("{} /* x", 1, 4, "a comment is not closed", "*/"),
    ("[" * 5000, 1, MAX_DEPTH + 2, "nested more than 100 deep", ""),
    ('{"a":' * 5000, 1, 5 * (MAX_DEPTH + 1) + 1, "nested more than 100 deep", ""),
    (b'{\n"a": "\xff"}', 2, 7, "this is not text in UTF-8", "UTF-8"),
    (b'\xef\xbb\xbf{"a": "\xff"}', 1, 8, "this is not text in UTF-8", "UTF-8"),
]


@pytest.mark.parametrize(("text", "line", "column", "problem", "hint"), SYNTAX)
def test_a_syntax_error_is_reported_with_its_place(
    text: str | bytes, line: int, column: int, problem: str, hint: str
) -> None:
    error = error_of(text)
    assert (error.path, error.line, error.column) == ("servers.json", line, column)
    assert problem in error.problem
    assert hint in error.hint


def places(node: Node) -> list[Node]:
    inside: list[Node] = []
    if isinstance(node.value, dict):
        inside = list(node.read_members().values())
    elif isinstance(node.value, list):
        inside = node.read_elements()
    return [node, *(below for child in inside for below in places(child))]


@given(JSON, st.sampled_from([None, 2]))
@settings(deadline=None)
def test_the_place_of_every_value_is_its_position_in_the_text(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    lines = text.split("\n")
    for node in places(read(text)):
        line, column = node.source.find_place(node.keys)
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert json.JSONDecoder().raw_decode(rest)[0] == node.value
        line, column = node.source.find_place(node.keys, at_name=True)
        if node.keys and isinstance(node.keys[-1], str):
            assert lines[line - 1][column - 1 :].startswith(json.dumps(node.keys[-1]) + ":")


def test_the_place_of_a_missing_value_is_that_of_its_container() -> None:
    source = read('{"mcpServers":\n  {"time": {"args": ["a", "b"]}}}').source
    assert source.find_place(("mcpServers", "time", "args", 1)) == (2, 27)
    assert source.find_place(("mcpServers", "time"), at_name=True) == (2, 4)
    assert source.find_place(("mcpServers", "time", "command")) == (2, 12)
    assert source.find_place(("nothing", 3, "known")) == (1, 1)


def test_an_error_about_a_value_made_in_python_has_no_place() -> None:
    error = Node([1], ("time", "args")).read_elements()[0].build_type_error("a string")
    assert str(error) == "time.args[0]: expected a string, found a number"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (("a", "b-c", 0), "a.b-c[0]: wrong"),
        (("a b", "c"), "['a b'].c: wrong"),
        (("x\x1b[31m", ""), "['x\\x1b[31m']['']: wrong"),
        (("y" * 70,), "['" + "y" * 60 + "…']: wrong"),
        ((), "wrong"),
    ],
)
def test_an_error_shows_the_keys_and_no_control_characters(keys: tuple[str | int, ...], error: str) -> None:
    assert Node(None, keys).build_error("wrong").problem == error


@pytest.mark.parametrize(
    ("ask", "value", "problem"),
    [
        (Node.read_string, 3, "expected a string, found a number"),
        (Node.read_string, None, "expected a string, found null"),
        (Node.read_strings, "a", "expected a list, found a string"),
        (Node.read_strings, ["a", 1], "[1]: expected a string, found a number"),
        (Node.read_boolean, "true", "expected true or false, found a string"),
        (Node.read_boolean, 1, "expected true or false, found a number"),
        (Node.read_number, True, "expected a finite number, found true or false"),
        (Node.read_number, math.nan, "expected a finite number, found a number"),
        (Node.read_number, math.inf, "expected a finite number, found a number"),
        (Node.read_number, 10**400, "expected a finite number, found a number"),
        (Node.read_number, -1, "expected a number that is not negative"),
        (Node.read_positive, 0, "expected a number greater than 0"),
        (Node.read_count, 1.5, "expected a whole number"),
        (Node.read_count, [], "expected a finite number, found a list"),
        (Node.read_scalar, {}, "expected a string, found an object"),
        (Node.read_scalar, 10**400, "expected a string, found a number"),
        (Node.read_members, [], "expected an object, found a list"),
        (Node.read_members, {1: 2}, "expected keys that are strings"),
        (Node.read_elements, {}, "expected a list, found an object"),
        (Node.read_string, b"x", "expected a string, found bytes"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(ask: Any, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(Node(value))
    assert caught.value.problem == problem


def test_values_are_converted_to_the_requested_type() -> None:
    assert Node(Path("a") / "b").read_string() == str(Path("a") / "b")
    assert Node(("a", "b")).read_strings() == ("a", "b")
    assert Node(2.0).read_count() == 2
    assert Node({"a": 1, "b": True, "c": "x", "d": None, "e": 1.5}).read_scalars() == {
        "a": "1",
        "b": "true",
        "c": "x",
        "e": "1.5",
    }


def test_a_list_that_contains_itself_is_an_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="nested more than"):
        Node(endless).with_strings(Node.read_string)


def test_strings_are_replaced_at_every_depth_and_keep_their_places() -> None:
    node = read('{"a": ["x", 1, {"b": "y"}]}').with_strings(lambda leaf: leaf.read_string().upper())
    assert node.value == {"a": ["X", 1, {"b": "Y"}]}
    assert node.read_members()["a"].read_elements()[2].source.find_place(("a", 2, "b")) == (1, 22)


def test_keys_are_recognized_in_camel_case_snake_case_and_upper_case() -> None:
    node = Node({"auto_approve": ["a"], "URL": "x", "ENV": None, "other": 1, "none": None})
    found, unknown = node.split_members(("autoApprove", "url", "env"), {})
    assert {key: child.value for key, child in found.items()} == {"autoApprove": ["a"], "url": "x"}
    assert list(unknown) == ["other", "none"]


def test_the_values_of_two_names_of_one_key_must_agree() -> None:
    assert (
        Node({"type": "http", "transport": "http"}).split_members(("type",), {"transport": "type"})[0]["type"].value
        == "http"
    )
    with pytest.raises(ConfigError, match="transport: contradicts type"):
        Node({"type": "http", "transport": "sse"}).split_members(("type",), {"transport": "type"})


def test_a_word_must_be_a_known_value() -> None:
    word = build_choice_reader({"streamable-http": 1, "sse": 2, "false": 3})
    assert [word(Node(value)) for value in ("streamableHttp", "STREAMABLE_HTTP", "sse", False)] == [1, 1, 2, 3]
    with pytest.raises(ConfigError) as caught:
        word(Node("see"))
    assert caught.value.problem == 'expected one of "streamable-http", "sse", "false"'
    assert caught.value.hint == ""
    with pytest.raises(ConfigError) as caught:
        word(Node("streamible-http"))
    assert caught.value.hint == 'did you mean "streamable-http"?'


@given(st.text() | st.binary())
@settings(max_examples=300, deadline=None)
def test_any_input_gives_a_value_or_a_config_error(text: str | bytes) -> None:
    try:
        assert read(text).source.path == ""
    except ConfigError as error:
        assert error.line >= 1
        assert error.column >= 1


@given(st.text(st.sampled_from("{}[]\",:\\/*\n 1etru'ud8"), max_size=60))
@settings(max_examples=500, deadline=None)
def test_text_similar_to_json_gives_the_value_of_the_json_module_or_a_config_error(text: str) -> None:
    try:
        value = read(text).value
    except ConfigError:
        with pytest.raises((ValueError, AssertionError)):  # json refuses the text too, or a key is duplicated
            json.loads(text, object_pairs_hook=refuse_duplicate_keys)
    else:
        if not set("/,") & set(text):  # neither comments nor trailing commas
            assert json.loads(text) == value


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(
    "piece", ["//\n", "/**/", "/*", " ", '"', "\\", '{"":', "[", "[],", "1", "-", '"a":1,', '\\"', "\\u00e9"]
)
def test_large_input_is_read_in_linear_time(piece: str) -> None:
    many = piece * 200_000
    for text in (many, f"[{many}", f'"{many}', f'{{"a": "{many}"}}'):
        try:
            read(text)
        except ConfigError as error:
            assert len(str(error)) < 300

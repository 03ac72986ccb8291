"""Edits of the text of a configuration: the edited value changes, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import ConfigError, read, remove_value, set_value

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | NAMES
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)
GAPS = st.sampled_from(["", " ", "\n", "\r\n", "\t", "  \n    ", "/* a, } */", '// "b": {\n', " /**/ ", "\n  // c\n  "])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw an object, and its JSON text with comments, blanks and trailing commas in any place."""
    value = draw(OBJECTS)
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + draw(GAPS) + written(draw, value) + draw(GAPS), value


def written(draw: st.DrawFn, value: Any) -> str:
    def gap() -> str:
        return draw(GAPS)

    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    opener, closer = "{}" if isinstance(value, dict) else "[]"
    items = []
    for item in value:
        key = f"{json.dumps(item)}{gap()}:{gap()}" if isinstance(value, dict) else ""
        child = value[item] if isinstance(value, dict) else item
        items.append(f"{gap()}{key}{written(draw, child)}{gap()}")
    has_comma: bool = draw(st.booleans())
    trailing = "," + gap() if items and has_comma else ""
    return opener + ",".join(items) + trailing + (gap() if not items else "") + closer


def paths(value: Any) -> list[tuple[str, ...]]:
    """Return the paths of all members of an object and of its nested objects."""
    if not isinstance(value, dict):
        return []
    return [(key, *rest) for key, child in value.items() for rest in [(), *paths(child)]]


@given(documents(), st.data())
@settings(deadline=None)
def test_setting_a_value_in_the_text_equals_setting_the_value_in_the_object(
    document: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, value = document
    objects = [(), *(path for path in paths(value) if isinstance(at(value, path), dict))]
    path = (*data.draw(st.sampled_from(objects)), data.draw(NAMES | st.sampled_from(["a"])))
    new = data.draw(JSON)
    expected = copy.deepcopy(value)
    at(expected, path[:-1])[path[-1]] = new
    edited = set_value(text, path, new)
    assert ordered(read(edited).value) == ordered(expected)
    if path not in paths(value):
        kept = text if at(value, path[:-1]) else "".join(text.split())  # the blanks of an empty object are not kept
        assert is_subsequence(kept, edited)


@given(documents(), st.data())
@settings(deadline=None)
def test_removing_a_member_from_the_text_equals_removing_the_member_from_the_object(
    document: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, value = document
    if not paths(value):
        return
    path = data.draw(st.sampled_from(paths(value)))
    expected = copy.deepcopy(value)
    del at(expected, path[:-1])[path[-1]]
    edited = remove_value(text, path)
    assert ordered(read(edited).value) == ordered(expected)
    assert is_subsequence(edited, text)


@given(documents(), NAMES, JSON)
@settings(deadline=None)
def test_adding_and_removing_a_member_restores_the_values(
    document: tuple[str, dict[str, Any]], name: str, new: Any
) -> None:
    text, value = document
    if name not in value:
        assert ordered(read(remove_value(set_value(text, [name], new), [name])).value) == ordered(value)


def at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def ordered(value: Any) -> Any:
    """Convert a value for a comparison that respects the order of members and the types of scalars."""
    if isinstance(value, dict):
        return [(key, ordered(child)) for key, child in value.items()]
    return [ordered(child) for child in value] if isinstance(value, list) else (type(value).__name__, value)


def is_subsequence(short: str, long: str) -> bool:
    characters = iter(long)
    return all(character in characters for character in short)


FILE = """\
// my servers
{
    "mcpServers": {
        // the clock
        "time": {"command": "uvx", "args": ["mcp-server-time"]}, // of Berlin
        /* "old": {"command": "x"}, */
        "docs": {
            "url": "https://docs.example/mcp",
        }, // last
        // nothing behind this
    },
    "defaultModel": "local", /* small */
}
"""


def test_a_new_member_is_written_in_the_style_of_its_siblings() -> None:
    edited = set_value(FILE, ["mcpServers", "git"], {"command": "git-mcp", "args": ["--repository", "."], "env": {}})
    assert edited == FILE.replace(
        "        // nothing behind this\n",
        "        // nothing behind this\n"
        '        "git": {\n'
        '            "command": "git-mcp",\n'
        '            "args": ["--repository", "."],\n'
        '            "env": {}\n'
        "        },\n",
    )


def test_a_member_of_an_object_on_one_line_stays_on_the_line() -> None:
    edited = set_value(FILE, ["mcpServers", "time", "disabled"], True)
    assert edited == FILE.replace('["mcp-server-time"]}', '["mcp-server-time"], "disabled": true}')
    assert remove_value(edited, ["mcpServers", "time", "disabled"]) == FILE
    assert set_value(FILE, ["defaultModel"], "gpt") == FILE.replace('"local"', '"gpt"')


def test_comments_stay_when_their_member_is_removed() -> None:
    removed = remove_value(FILE, ["mcpServers", "time"])
    entry = '"time": {"command": "uvx", "args": ["mcp-server-time"]}, '
    assert removed == FILE.replace(entry, "")
    assert remove_value(FILE, ["mcpServers", "docs"]).count("// last") == 1


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ("{ }\r\n", '{\r\n  "a": {\r\n    "b": 1\r\n  }\r\n}\r\n'),
        ("{ // c\n}", '{ // c\n  "a": {\n    "b": 1\n  }\n}'),
        ('{\n\t"x": 1\n}', '{\n\t"x": 1,\n\t"a": {\n\t\t"b": 1\n\t}\n}'),
        ('{"x": 1}', '{"x": 1, "a": {"b": 1}}'),
        ('{"x": 1,}', '{"x": 1, "a": {"b": 1},}'),
        ('{"a": {}}', '{"a": {\n  "b": 1\n}}'),
        ('{\n  "x": 1 // c\n}', '{\n  "x": 1, // c\n  "a": {\n    "b": 1\n  }\n}'),
        ('\ufeff{\r\n  "a": {\r\n    "b": 2\r\n  }\n}', '\ufeff{\r\n  "a": {\r\n    "b": 1\r\n  }\n}'),
    ],
)
def test_missing_objects_are_created_in_the_style_of_the_text(text: str, edited: str) -> None:
    assert set_value(text, ["a", "b"], 1) == edited


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2}'),
        ('{"b": 2, "a": 1}', '{"b": 2}'),
        ('{"a": 1}', "{}"),
        ('{\n  "a": {\n    "x": 1\n  },\n  "b": 2\n}', '{\n  "b": 2\n}'),
        ('{\n  "b": 2,\n  "a": 1\n}', '{\n  "b": 2\n}'),
        ('{\n  "b": 2,\r\n  "a": 1,\r\n}', '{\n  "b": 2,\r\n}'),
        ('{\n  "b": 2, // two\n  "a": 1 // one\n}', '{\n  "b": 2 // two\n  // one\n}'),
    ],
)
def test_the_line_and_the_comma_of_a_removed_member_are_removed(text: str, edited: str) -> None:
    assert remove_value(text, ["a"]) == edited


def test_an_impossible_edit_is_an_error() -> None:
    with pytest.raises(ConfigError, match="expected an object"):
        set_value('{"a": 1}', ["a", "b"], 1)
    with pytest.raises(ConfigError):
        set_value("{", ["a"], 1)
    with pytest.raises(KeyError):
        remove_value("{}", ["a"])

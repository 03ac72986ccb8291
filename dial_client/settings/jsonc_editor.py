"""Edits of JSON with comments that change one member, and preserve every other character of the text.

    set_value      replaces a value, or appends a member to its object
    remove_value   removes a member

Comments, order, trailing commas, indentation and line ends are preserved; a new member is indented like the members
around it. Time is linear in the text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.settings.jsonc import GAP, Keys, Node, find_match_end, read

MAX_WIDTH = 100
"""Maximum columns of a new list on one line."""


def set_value(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with the value at `keys` replaced, or appended to its object as a new member.

    Args:
        text: JSON; comments and trailing commas are accepted.
        keys: The path from the top level to the value; missing objects on the path are created.
        value: Any JSON value.

    Raises:
        ConfigError: The text is not JSON, or a value on the path is no object.
    """
    return _Text(text).with_value(tuple(keys), value)


def remove_value(text: str, keys: Sequence[str]) -> str:
    """Return the text without the member at `keys`; the comments around the member stay.

    Raises:
        ConfigError: The text is not JSON, or a value on the path is no object.
        KeyError: There is no such member.
    """
    return _Text(text).without(tuple(keys))


_Change = tuple[int, int, str]
"""Start and end offset of the characters to replace, and their replacement."""
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|//[^\n]*|/\*.*?\*/|[\[\]{}]|[^"/\[\]{}]+', re.DOTALL)
_SCALAR = re.compile(r"[\w.+-]+")
_BLANKS = re.compile(r"[ \t]*")


class _Text:
    """A parsed text that can be edited. Offsets count a line end as one character, like those of `jsonc.read`."""

    def __init__(self, text: str) -> None:
        self._root = read(text)
        self._original = text
        self._mark = len(text) - len(text.removeprefix("\ufeff"))
        body = text[self._mark :]
        self._pairs = [found.start() - index for index, found in enumerate(re.finditer("\r\n", body))]
        self._line_end = next((end for end in ("\r\n", "\n", "\r") if end in body), "\n")
        self._text = body.replace("\r\n", "\n").replace("\r", "\n")

    def with_value(self, keys: Keys, value: Any) -> str:
        """Return the text with a value replaced or appended."""
        depth = self._count_existing(keys)
        if depth == len(keys):
            start = self._root.source.values[keys]
            pretty = not keys or self._begins_its_line(self._root.source.names[keys])
            layout = _Layout(self._indent_at(start), self._find_unit()) if pretty else None
            return self._apply_changes([(start, self._find_value_end(start), _format_value(value, layout))])
        for key in reversed(keys[depth + 1 :]):
            value = {key: value}
        return self._apply_changes(self._build_addition(keys[:depth], str(keys[depth]), value))

    def without(self, keys: Keys) -> str:
        """Return the text without a member and its comma."""
        if not keys or self._count_existing(keys) < len(keys):
            raise KeyError(keys)
        start = self._root.source.names[keys]
        end = self._find_value_end(self._root.source.values[keys])
        comma = self._find_comma_after(end)
        if comma is not None and not self._text[end:comma].strip():
            return self._apply_changes([self._build_removal(start, comma + 1)])
        if comma is None and (previous := self._find_comma_before(keys)) is not None:
            if not self._text[previous + 1 : start].strip(" \t"):
                return self._apply_changes([(previous, end, "")])
            return self._apply_changes([(previous, previous + 1, ""), self._build_removal(start, end)])
        commas = [] if comma is None else [(comma, comma + 1, "")]
        return self._apply_changes([self._build_removal(start, end), *commas])

    def _count_existing(self, keys: Keys) -> int:
        """Return the number of leading keys that exist in the text."""
        node: Node = self._root
        for depth, key in enumerate(keys):
            children = node.read_members()
            if key not in children:
                return depth
            node = children[str(key)]
        return len(keys)

    def _build_addition(self, parent: Keys, key: str, value: Any) -> list[_Change]:
        """Return the changes that append a member to an object."""
        start = self._root.source.values[parent]
        close = self._find_value_end(start) - 1
        members = list(_get_value(self._root.value, parent))
        if not members:
            return [self._build_first_member(start, close, key, value)]
        last = (*parent, members[-1])
        end = self._find_value_end(self._root.source.values[last])
        comma = self._find_comma_after(end)
        missing = [] if comma is not None else [(end, end, ",")]
        name_at = self._root.source.names[last]
        if not self._begins_its_line(name_at):
            at = end if comma is None else comma + 1
            return [*missing, (at, at, f" {_format_member(key, value, None)}{'' if comma is None else ','}")]
        at = len(self._text[:close].rstrip(" \t\n"))
        indent = self._indent_at(name_at)
        member = _format_member(key, value, _Layout(indent, self._find_unit()))
        return [*missing, (at, at, f"\n{indent}{member}{'' if comma is None else ','}")]

    def _build_first_member(self, start: int, close: int, key: str, value: Any) -> _Change:
        """Return the change that inserts the first member into an empty object."""
        outer, unit = self._indent_at(start), self._find_unit()
        member = _format_member(key, value, _Layout(outer + unit, unit))
        at = len(self._text[:close].rstrip(" \t\n"))
        if at == start + 1:
            return (at, close, f"\n{outer}{unit}{member}\n{outer}")
        ending = "" if "\n" in self._text[at:close] else f"\n{outer}"
        return (at, at, f"\n{outer}{unit}{member}{ending}")

    def _build_removal(self, start: int, end: int) -> _Change:
        """Return the change that removes a part of the text.

        If its lines contain nothing else, they are removed completely; otherwise the blanks after the part are.
        """
        line_start = self._text.rfind("\n", 0, start) + 1
        blanks = find_match_end(_BLANKS, self._text, end)
        if not self._text[line_start:start].strip() and self._text[blanks : blanks + 1] == "\n":
            return (line_start, blanks + 1, "")
        return (start, blanks, "")

    def _find_comma_after(self, end: int) -> int | None:
        at = find_match_end(GAP, self._text, end)
        return at if self._text[at : at + 1] == "," else None

    def _find_comma_before(self, keys: Keys) -> int | None:
        """Return the offset of the comma before a member; None for the first member of an object."""
        members = list(_get_value(self._root.value, keys[:-1]))
        index = members.index(keys[-1])
        if index == 0:
            return None
        return self._find_comma_after(self._find_value_end(self._root.source.values[*keys[:-1], members[index - 1]]))

    def _find_value_end(self, start: int) -> int:
        """Return the offset after the value that begins at `start`."""
        if self._text[start] not in '[{"':
            return find_match_end(_SCALAR, self._text, start)
        depth = 0
        for token in _TOKEN.finditer(self._text, start):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            if depth == 0:
                return token.end()
        raise AssertionError("the text was parsed before, so its brackets are closed")

    def _begins_its_line(self, offset: int) -> bool:
        line_start = self._text.rfind("\n", 0, offset) + 1
        return line_start > 0 and not self._text[line_start:offset].strip()

    def _indent_at(self, offset: int) -> str:
        """Return the indentation of the line at an offset."""
        line_start = self._text.rfind("\n", 0, offset) + 1
        return self._text[line_start : find_match_end(_BLANKS, self._text, line_start)]

    def _find_unit(self) -> str:
        """Return the indentation of one level in this text; two spaces if the text has no indented member."""
        for keys, offset in self._root.source.names.items():
            outer, inner = self._indent_at(self._root.source.values[keys[:-1]]), self._indent_at(offset)
            if self._begins_its_line(offset) and inner != outer and inner.startswith(outer):
                return inner.removeprefix(outer)
        return "  "

    def _apply_changes(self, changes: Sequence[_Change]) -> str:
        """Return the original text with the changes applied; they must be in order, and must not overlap."""
        parts, done = [], 0
        for start, end, text in changes:
            parts += [self._original[done : self._to_original_offset(start)], text.replace("\n", self._line_end)]
            done = self._to_original_offset(end)
        return "".join([*parts, self._original[done:]])

    def _to_original_offset(self, offset: int) -> int:
        return self._mark + offset + bisect_left(self._pairs, offset)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The indentation to write a value with."""

    indent: str
    """The indentation of the line in which the value begins."""
    unit: str
    """The indentation of one level."""

    def deepen(self) -> _Layout:
        """Return the layout of the members of this value."""
        return _Layout(self.indent + self.unit, self.unit)


def _format_member(key: str, value: Any, layout: _Layout | None) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_format_value(value, layout)}"


def _format_value(value: Any, layout: _Layout | None) -> str:
    """Return a value as JSON: without a layout on one line, otherwise with one line for each member of an object."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if layout is None or not value:
        return flat
    inner = layout.deepen()
    if isinstance(value, Mapping):
        items, brackets = [_format_member(key, child, inner) for key, child in value.items()], "{}"
    elif isinstance(value, list | tuple) and (
        len(layout.indent) + len(flat) > MAX_WIDTH or any(isinstance(item, Mapping) for item in value)
    ):
        items, brackets = [_format_value(item, inner) for item in value], "[]"
    else:
        return flat
    lines = f",\n{inner.indent}".join(items)
    return f"{brackets[0]}\n{inner.indent}{lines}\n{layout.indent}{brackets[1]}"


def _get_value(value: Any, keys: Keys) -> Any:
    for key in keys:
        value = value[key]
    return value

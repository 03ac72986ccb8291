"""Edits of JSON with comments that change one member, and preserve every other character of the text.

    set_value      replaces a value, or appends a member to its object
    append_value   appends a value to a list
    remove_value   removes a member

Comments, order, trailing commas, indentation and line ends are preserved; a new member is indented like the members
around it. Time is linear in the text.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.private_files import write_private
from dial_client.runtime.text import suggest_name
from dial_client.settings import configuration
from dial_client.settings.config_locations import report_unreadable
from dial_client.settings.config_trust import MAX_BYTES
from dial_client.settings.config_values import TOP_KEYS, Keys, Node, find_references
from dial_client.settings.jsonc import GAP, find_match_end, read

# Maximum columns of a new list on one line.
MAX_WIDTH = 100


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


def append_value(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with a value appended to the list at `keys`, which is created if it is missing or empty.

    Arguments and errors are those of `set_value`.
    """
    found = _Text(text)
    return found.with_element(tuple(keys), value) if found.has_elements(tuple(keys)) else set_value(text, keys, [value])


def remove_value(text: str, keys: Sequence[str]) -> str:
    """Return the text without the member at `keys`; the comments around the member stay.

    Raises:
        ConfigError: The text is not JSON, or a value on the path is no object.
        KeyError: There is no such member.
    """
    return _Text(text).without(tuple(keys))


# Start and end offset of the characters to replace, and their replacement.
_Change = tuple[int, int, str]
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
            is_on_own_line = not keys or self._begins_its_line(self._root.source.names[keys])
            indent = self._indent_at(start) if is_on_own_line else None
            return self._apply_changes(
                [(start, self._root.source.ends[keys], _format_value(value, indent, self._find_unit()))]
            )
        for key in reversed(keys[depth + 1 :]):
            value = {key: value}
        return self._apply_changes(self._build_addition(keys[:depth], str(keys[depth]), value))

    def has_elements(self, keys: Keys) -> bool:
        """Return whether there is a list at `keys` that is not empty."""
        if self._count_existing(keys) < len(keys):
            return False
        value = _get_value(self._root.value, keys)
        return isinstance(value, list | tuple) and bool(value)

    def without(self, keys: Keys) -> str:
        """Return the text without a member and its comma."""
        if not keys or self._count_existing(keys) < len(keys):
            raise KeyError(keys)
        start = self._root.source.names[keys]
        end = self._root.source.ends[keys]
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
        close = self._root.source.ends[parent] - 1
        members = list(_get_value(self._root.value, parent))
        if not members:
            return [self._build_first_member(start, close, key, value)]
        last = (*parent, members[-1])
        span = self._root.source.names[last], self._root.source.ends[last]
        return self._build_next(*span, close, partial(_format_member, key, value))

    def _build_next(
        self, start: int, end: int, close: int, format_part: Callable[[str | None, str], str]
    ) -> list[_Change]:
        """Return the changes that append a part behind the last member or element, in its layout.

        Args:
            start: The start of the last part.
            end: The end of the last part.
            close: The index of the bracket that closes the object or the list.
            format_part: Returns the text of the new part for an indentation, or None for a single line, and a unit.
        """
        comma = self._find_comma_after(end)
        missing = [] if comma is not None else [(end, end, ",")]
        if not self._begins_its_line(start):
            index = end if comma is None else comma + 1
            return [*missing, (index, index, f" {format_part(None, '')}{'' if comma is None else ','}")]
        index = len(self._text[:close].rstrip(" \t\n"))
        indent = self._indent_at(start)
        part = format_part(indent, self._find_unit())
        return [*missing, (index, index, f"\n{indent}{part}{'' if comma is None else ','}")]

    def with_element(self, keys: Keys, value: Any) -> str:
        """Return the text with a value appended to a list that is not empty."""
        last = (*keys, len(_get_value(self._root.value, keys)) - 1)
        span, close = (self._root.source.values[last], self._root.source.ends[last]), self._root.source.ends[keys] - 1
        return self._apply_changes(self._build_next(*span, close, partial(_format_value, value)))

    def _build_first_member(self, start: int, close: int, key: str, value: Any) -> _Change:
        """Return the change that inserts the first member into an empty object."""
        outer, unit = self._indent_at(start), self._find_unit()
        member = _format_member(key, value, outer + unit, unit)
        index = len(self._text[:close].rstrip(" \t\n"))
        if index == start + 1:
            return (index, close, f"\n{outer}{unit}{member}\n{outer}")
        ending = "" if "\n" in self._text[index:close] else f"\n{outer}"
        return (index, index, f"\n{outer}{unit}{member}{ending}")

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
        index = find_match_end(GAP, self._text, end)
        return index if self._text[index : index + 1] == "," else None

    def _find_comma_before(self, keys: Keys) -> int | None:
        """Return the offset of the comma before a member; None for the first member of an object."""
        members = list(_get_value(self._root.value, keys[:-1]))
        index = members.index(keys[-1])
        if index == 0:
            return None
        return self._find_comma_after(self._root.source.ends[*keys[:-1], members[index - 1]])

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


def _format_member(key: str, value: Any, indent: str | None, unit: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_format_value(value, indent, unit)}"


def _format_value(value: Any, indent: str | None, unit: str) -> str:
    """Return a value as JSON, with one line for each member of an object.

    Args:
        value: The value.
        indent: The indentation of the line in which the value begins; None to write the value on one line.
        unit: The indentation of one level.
    """
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if indent is None or not value:
        return flat
    inner = indent + unit
    if isinstance(value, Mapping):
        items, brackets = [_format_member(key, child, inner, unit) for key, child in value.items()], "{}"
    elif isinstance(value, list | tuple) and (
        len(indent) + len(flat) > MAX_WIDTH or any(isinstance(item, Mapping) for item in value)
    ):
        items, brackets = [_format_value(item, inner, unit) for item in value], "[]"
    else:
        return flat
    lines = f",\n{inner}".join(items)
    return f"{brackets[0]}\n{inner}{lines}\n{indent}{brackets[1]}"


def _get_value(value: Any, keys: Keys) -> Any:
    for key in keys:
        value = value[key]
    return value


def list_server_names(text: str) -> list[str]:
    """Return the names of all servers in a text, in the order of the text.

    Raises:
        ConfigError: The text is not JSON, or has values other than entries.
    """
    return list(configuration.outline(text).servers)


def add_server(text: str, name: str, entry: Mapping[str, Any], *, replace: bool = False) -> str:
    """Return the text with a server added.

    Args:
        text: The configuration.
        name: The name of the server.
        entry: The entry of the server, with the keys of ``servers.json``.
        replace: True to replace an entry of the same name.

    Raises:
        ConfigError: The text is invalid, or there is a server of this name and `replace` is False.
    """
    if name in list_server_names(text) and not replace:
        raise ConfigError(f"there is a server {name!r} already", "--replace replaces its entry")
    return set_value(text, [*find_servers_path(text), name], dict(entry))


def remove_server(text: str, name: str) -> str:
    """Return the text without a server.

    Raises:
        ConfigError: There is no such server.
    """
    check_server(text, name)
    return remove_value(text, [*find_servers_path(text), name])


def set_enabled(text: str, name: str, *, is_enabled: bool) -> str:
    """Return the text with a server enabled or disabled; the same text if it is already.

    Raises:
        ConfigError: There is no such server.
    """
    check_server(text, name)
    path = [*find_servers_path(text), name]
    found = configuration.outline(text).servers[name]
    keys = {key: [*path, str(found[key].keys[-1])] for key in ("enabled", "disabled") if key in found}
    if "disabled" in keys and (is_enabled or "enabled" in keys):
        text = remove_value(text, keys["disabled"])
    if is_enabled and "enabled" not in keys:
        return text
    key, value = ("enabled", is_enabled) if "enabled" in keys else ("disabled", True)
    if key in keys and found[key].value is value:
        return text
    return set_value(text, keys.get(key, [*path, key]), value)


def trust_read_only_tools(text: str, name: str) -> str:
    """Return the text with a rule that allows the tools that a server calls read-only, and with trust in its hints.

    The text is the same if it has both already.

    Raises:
        ConfigError: There is no such server.
    """
    check_server(text, name)
    outline = configuration.outline(text)
    entry = outline.servers[name]
    if "trusted" not in entry or entry["trusted"].value is not True:
        key = str(entry["trusted"].keys[-1]) if "trusted" in entry else "trusted"
        text = set_value(text, [*find_servers_path(text), name, key], True)  # noqa: FBT003 - the value
    # The name of a server may have characters of globs.
    rule = {"allow": f"{escape(name)}/*", "annotations": {"readOnlyHint": True}}
    policy = outline.unknown.get("policy")
    rules = policy.value if policy is not None and isinstance(policy.value, list | tuple) else ()
    # Behind the other rules, so that a rule that asks about one of the tools still does.
    return text if rule in rules else append_value(text, ["policy"], rule)


def check_server(text: str, name: str) -> None:
    """Raise `ConfigError`, with the nearest name as the hint, if there is no server of this name."""
    names = list_server_names(text)
    if name not in names:
        raise ConfigError(f"there is no server {name!r}", suggest_name(name, names))


def find_servers_path(text: str) -> list[str]:
    """Return the key path of the servers; empty if they are at the top level."""
    top, unknown = read(text).split_members(TOP_KEYS, {})
    for key in ("mcpServers", "servers"):
        if key in top:
            return [str(top[key].keys[-1])]
    return [] if configuration.outline(text).servers and unknown else ["mcpServers"]


# The text of an empty configuration, used for a file that does not exist yet.
EMPTY = "{\n}\n"
BACKUP_SUFFIX = ".bak"


@dataclass(frozen=True, slots=True)
class ConfigText:
    """The text of a configuration at the moment it was read."""

    path: Path
    text: str = field(repr=False)
    data: bytes | None = field(repr=False)
    """The content of the file in bytes; None if there is no file yet."""


def read_text(path: Path) -> ConfigText:
    """Read a configuration in order to change it.

    Raises:
        ConfigError: The file cannot be read, is larger than `config_trust.MAX_BYTES`, or is not UTF-8.
    """
    with report_unreadable(path):
        if not path.exists():
            return ConfigText(path, EMPTY, None)
        if not path.is_file():
            raise ConfigError("this is not a regular file", path=str(path))
        data = path.read_bytes()
    return decode_text(path, data, MAX_BYTES)


def decode_text(path: Path, data: bytes, max_bytes: int) -> ConfigText:
    """Return the text of a configuration that was read.

    Raises:
        ConfigError: It has more than `max_bytes`, or is not UTF-8.
    """
    if len(data) > max_bytes:
        raise ConfigError(f"a configuration to edit must not exceed {max_bytes:,} bytes", path=str(path))
    try:
        return ConfigText(path, data.decode(), data)
    except UnicodeDecodeError:
        raise ConfigError("this is not text in UTF-8", "save the file as UTF-8", str(path)) from None


def write_text(original: ConfigText, text: str) -> Path | None:
    """Replace the text of a configuration file, after a backup of the old file.

    The file is replaced atomically. A new file and the backup are readable by their owner only; an existing file keeps
    its permissions. If the path is a symbolic link, its target is replaced.

    Args:
        original: The configuration as it was read.
        text: The changed text.

    Returns:
        The path of the backup; None if there was no file.

    Raises:
        ConfigError: The text is no valid configuration, the file has changed since it was read, or it cannot be
            written.
    """
    check_text(text, original)
    target = Path(os.path.realpath(original.path))
    try:
        if (target.read_bytes() if target.exists() else None) != original.data:
            raise ConfigError("another program has changed the file meanwhile", "try again", str(original.path))
        if original.data is None:
            write_private(target, text.encode())
            return None
        backup = target.with_name(target.name + BACKUP_SUFFIX)
        write_private(backup, original.data)
        mode = target.stat().st_mode & 0o777
        write_private(target, text.encode(), mode=mode)
    except OSError as error:
        raise ConfigError(f"cannot be written: {describe_system_error(error)}", path=str(original.path)) from None
    return backup


def check_text(text: str, original: ConfigText) -> None:
    """Check that a changed text consists of entries, and is a valid configuration unless the old text was invalid too.

    Unset variables and missing files of variables are no errors.

    Raises:
        ConfigError: The text is invalid; the error names the place, and what was expected.
    """
    configuration.outline(text, str(original.path))
    problem = find_problem(text, original.path)
    if problem is not None and find_problem(original.text, original.path) is None:
        raise problem


def find_problem(text: str, path: Path) -> ConfigError | None:
    """Return the error of an invalid configuration, ignoring unset variables; None if it is valid."""
    problem: ConfigError | None = None
    names = set(find_references(text))
    home = {name: os.environ[name] for name in ("HOME", "USERPROFILE") if os.environ.get(name)}
    for value_of in _SAMPLE_VALUES:
        samples = {name: value for name in names if (value := value_of(name)) is not None}
        try:
            configuration.parse(text, path=str(path), environ=samples | home, read=lambda _: b"")
        except ConfigError as error:
            problem = error
        else:
            return None
    return problem


_SAMPLE_URL = "https://localhost"
_URL_NAME = re.compile(r"(?i)url|uri|endpoint|address|base|server")
_PART_NAME = re.compile(r"(?i)port|key|token|secret|password|name|user|id$|host|version")
# Functions that return a sample value for a variable's name; they are tried in order.
_SAMPLE_VALUES: tuple[Callable[[str], str | None], ...] = (
    lambda name: None,  # noqa: ARG005 - no value: enough if every variable has a default
    lambda name: "1",  # noqa: ARG005 - a port, a part of a host or of a path, a key
    lambda name: _SAMPLE_URL if _URL_NAME.search(name) else "1",
    lambda name: "1" if _PART_NAME.search(name) else _SAMPLE_URL,
)

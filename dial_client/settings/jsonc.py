"""A parser for JSON with comments that records the line and column of every value.

`read` accepts comments (``//`` and ``/* */``), trailing commas and a byte order mark; anything else that is not JSON
raises `ConfigError`. It returns a `Node`: a value with its key path, its place, typed access, and error messages that
name the place. Time and memory are linear in the text. No message shows a value, because it may be a secret.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NoReturn, TypeVar

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean, fold_name

Keys = tuple[str | int, ...]
"""The path from the top level to a value: ``("mcpServers", "time", "args", 0)``."""

T = TypeVar("T")

MAX_DEPTH = 100
"""Maximum nesting depth of objects and lists; deeper nesting raises `ConfigError`."""


@dataclass(frozen=True, slots=True)
class JsoncSource:
    """A file with the places of all its values. Values made in Python have an empty source, and no place."""

    path: str = ""
    """The path of the file, as the user gave it."""
    lines: Sequence[int] = ()
    """The offset of the start of each line, in characters."""
    values: Mapping[Keys, int] = field(default_factory=dict, repr=False)
    """The offset of each value, in characters."""
    names: Mapping[Keys, int] = field(default_factory=dict, repr=False)
    """The offset of the key of each object member, in characters."""

    def find_place(self, keys: Keys, *, at_name: bool = False) -> tuple[int, int]:
        """Return line and column of a value or of its key; for a missing value, those of the enclosing value.

        Both are counted from 1, columns in characters; (0, 0) for values that come from no file.
        """
        while keys and keys not in self.values:
            keys = keys[:-1]
        offset = self.values.get(keys, 0)
        return self.find_position(self.names.get(keys, offset) if at_name else offset)

    def find_position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset."""
        line = bisect_right(self.lines, offset)
        return (line, offset - self.lines[line - 1] + 1) if line else (0, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a configuration with its place, typed access, and error messages that name the place.

    The methods for typed access raise `ConfigError` if the value has another type.
    """

    value: Any = field(repr=False)
    keys: Keys = ()
    source: JsoncSource = field(default_factory=JsoncSource, repr=False)

    def build_error(self, problem: str, hint: str = "", *, at_name: bool = False) -> ConfigError:
        """Return an error about this value or its key; the caller raises it."""
        text = f"{_format_keys(self.keys)}: {problem}" if self.keys else problem
        return ConfigError(text, hint, self.source.path, *self.source.find_place(self.keys, at_name=at_name))

    def build_type_error(self, expected: str, hint: str = "") -> ConfigError:
        """Return the error for a value that has another type or is out of range."""
        return self.build_error(f"expected {expected}, found {_describe_kind(self.value)}", hint)

    def read_members(self) -> dict[str, Node]:
        """Return the members of an object, in the order of the file."""
        if not isinstance(self.value, Mapping):
            raise self.build_type_error("an object")
        if not all(isinstance(key, str) for key in self.value):
            raise self.build_error("expected keys that are strings")
        return {key: self._get_child(key) for key in self.value}

    def read_elements(self) -> list[Node]:
        """Return the elements of a list."""
        if not isinstance(self.value, list | tuple):
            raise self.build_type_error("a list")
        return [self._get_child(index) for index in range(len(self.value))]

    def read_string(self) -> str:
        """Return a string; a `PurePath` is accepted, too, in configurations made in Python."""
        if not isinstance(self.value, str | PurePath):
            raise self.build_type_error(
                "a string", "put it in double quotes" if isinstance(self.value, int | float) else ""
            )
        return str(self.value)

    def read_strings(self) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(element.read_string() for element in self.read_elements())

    def read_boolean(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.build_type_error("true or false")
        return self.value

    def read_number(self) -> float:
        """Return a finite number that is not negative."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not abs(self.value) <= _LARGEST:
            raise self.build_type_error("a finite number")
        if self.value < 0:
            raise self.build_error("expected a number that is not negative")
        return float(self.value)

    def read_positive(self) -> float:
        """Return a finite number above 0."""
        if self.read_number() == 0:
            raise self.build_error("expected a number greater than 0")
        return self.read_number()

    def read_count(self) -> int:
        """Return a whole number above 0."""
        if self.read_positive() != int(self.value):
            raise self.build_error("expected a whole number")
        return int(self.value)

    def read_scalar(self) -> str:
        """Return a string; a number, true or false is returned in JSON notation."""
        if isinstance(self.value, int | float) and abs(self.value) <= _LARGEST:
            return json.dumps(self.value)
        return self.read_string()

    def read_scalars(self) -> dict[str, str]:
        """Return an object of scalars as strings; members that are null are left out."""
        return {key: child.read_scalar() for key, child in self.read_members().items() if child.value is not None}

    def split_members(self, keys: Iterable[str], aliases: Mapping[str, str]) -> tuple[dict[str, Node], dict[str, Node]]:
        """Return the members of an object with known keys, under the names in `keys`, and those with unknown keys.

        Null members count as absent. Letter case, ``_`` and ``-`` are ignored. `aliases` maps further names to `keys`.
        """
        proper = {fold_name(key): key for key in keys} | {fold_name(name): key for name, key in aliases.items()}
        found: dict[str, Node] = {}
        unknown: dict[str, Node] = {}
        for name, child in self.read_members().items():
            key = proper.get(fold_name(name))
            if key is None:
                unknown[name] = child
            elif child.value is not None and key in found and found[key].value != child.value:
                first = found[key].keys[-1]
                raise child.build_error(f"contradicts {first}", "keep one of the two", at_name=True)
            elif child.value is not None:
                found[key] = child
        return found, unknown

    def with_strings(self, change: Callable[[Node], str]) -> Node:
        """Return the same node with each string in it replaced by `change(node of the string)`."""
        value = self.value
        if isinstance(value, str):
            value = change(self)
        elif isinstance(value, list | tuple):
            value = [child.with_strings(change).value for child in self.read_elements()]
        elif isinstance(value, Mapping):
            value = {key: child.with_strings(change).value for key, child in self.read_members().items()}
        return Node(value, self.keys, self.source)

    def _get_child(self, key: str | int) -> Node:
        if len(self.keys) > MAX_DEPTH:
            raise self.build_error(_TOO_DEEP)
        return Node(self.value[key], (*self.keys, key), self.source)


def read(text: str | bytes, path: str = "") -> Node:
    """Parse the content of a file; `path` is used in messages.

    Raises:
        ConfigError: The content is not JSON.
    """
    if isinstance(text, bytes):
        text = _decode(text, path)
    return _Scanner(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), path).scan_document()


def quote_key(key: str) -> str:
    """Return a key for a message: in quotes, escaped, and cut to 60 characters."""
    return repr(key if len(key) <= 60 else key[:60] + "…")


def build_choice_reader(meanings: Mapping[str, T]) -> Callable[[Node], T]:
    """Return a reader that maps a word by `meanings`; letter case, ``_`` and ``-`` of the word are ignored."""
    folded = {fold_name(word): meaning for word, meaning in meanings.items()}

    def read_choice(node: Node) -> T:
        value = fold_name(node.read_scalar())
        if value not in folded:
            words = ", ".join(f'"{word}"' for word in meanings)
            raise node.build_error(f"expected one of {words}", did_you_mean(value, meanings))
        return folded[value]

    return read_choice


_LARGEST = 1e300
_BARE = re.compile(r"[\w@/-]{1,60}")
_KINDS = {bool: "true or false", int | float: "a number", str: "a string", Mapping: "an object", list | tuple: "a list"}
_TOO_DEEP = f"objects and lists are nested more than {MAX_DEPTH} deep"


def _format_keys(keys: Keys) -> str:
    path = ""
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            path += f".{key}" if _BARE.fullmatch(key) else f"[{quote_key(key)}]"
    return path.removeprefix(".")


def _describe_kind(value: Any) -> str:
    python_name = "null" if value is None else type(value).__name__
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), python_name)


def _decode(data: bytes, path: str) -> str:
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        text = error.object[: error.start].decode(encoding, "replace")
    place = text.count("\n") + 1, len(text) - text.rfind("\n")
    raise ConfigError("this is not text in UTF-8", "save the file as UTF-8", path, *place)


GAP = re.compile(r"(?:[ \t\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_BODY = re.compile(r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*')
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[\w.+-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_BACKSLASH = r"a backslash is written \\, and Windows paths may use /"
_HINTS = {
    "True": "JSON writes true",
    "False": "JSON writes false",
    "None": "JSON writes null",
    **dict.fromkeys(("NaN", "Infinity", "-Infinity"), "JSON has no such number"),
    **dict.fromkeys("'`", "strings are written in double quotes"),
    **dict.fromkeys("\u201c\u201d\u201e", "these are typographic quotes; use plain ones"),
    "#": "comments begin with //",
    ",": "there is one comma too many",
    "\u00a0": "this is a no-break space, often pasted from a web page; use a plain space",
}


class _Scanner:
    """Scans one text from left to right; `at` is the offset of the next character."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[int] = []
        self.values: dict[Keys, int] = {}
        self.names: dict[Keys, int] = {}
        lines = [0, *(end.end() for end in re.finditer("\n", text))]
        self.source = JsoncSource(path, lines, self.values, self.names)

    def scan_document(self) -> Node:
        if half := _SURROGATE.search(self.text):
            self.fail("half of a surrogate pair is not text", at=half.start())
        if not self.peek():
            self.fail("the file is empty", 'expected {"mcpServers": {…}}')
        value = self.scan_value(())
        if self.peek():
            self.fail("there is text after the end of the JSON", "a file contains one object")
        return Node(value, (), self.source)

    def scan_value(self, keys: Keys) -> Any:
        char = self.peek()
        self.values[keys] = self.at
        if len(keys) > MAX_DEPTH:
            self.fail(_TOO_DEEP)
        match char:
            case "{":
                return self.scan_object(keys)
            case "[":
                return self.scan_array(keys)
            case '"':
                return self.scan_string()
            case _:
                return self.scan_scalar()

    def scan_object(self, keys: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for char in self.scan_items("}"):
            if char != '"':
                self.fail_expected("a key in double quotes" if found else "a key in double quotes or '}'")
            began, key = self.at, self.scan_string()
            if key in found:
                first, _ = self.source.find_place((*keys, key), at_name=True)
                self.fail(f"the key {quote_key(key)} occurs twice in one object", f"first in line {first}", at=began)
            self.names[*keys, key] = began
            if self.peek() != ":":
                self.fail_expected("':' after the key")
            self.at += 1
            found[key] = self.scan_value((*keys, key))
        return found

    def scan_array(self, keys: Keys) -> list[Any]:
        found: list[Any] = []
        for _ in self.scan_items("]"):
            found.append(self.scan_value((*keys, len(found))))
        return found

    def scan_items(self, closer: str) -> Iterator[str]:
        """Yield the first character of each item, which the caller scans; consume the commas and both brackets."""
        self.open.append(self.at)
        self.at += 1
        while (char := self.peek()) != closer:
            yield char
            following = self.peek()
            if following == ",":
                self.at += 1
            elif following != closer:
                hint = "is a comma missing before this?" if following in ('"', "{", "[") else ""
                self.fail_expected(f"',' or '{closer}'", hint)
        self.open.pop()
        self.at += 1

    def scan_string(self) -> str:
        began = self.at
        self.at = find_match_end(_BODY, self.text, began + 1)
        match self.text[self.at : self.at + 1]:
            case '"':
                self.at += 1
            case "" | "\n":
                self.fail("a string is not closed", f"it must end with '\"' on its line; {_BACKSLASH}", at=began)
            case "\\":
                escape = self.text[self.at : self.at + 2]
                self.fail(f"'{escape if escape.isprintable() else escape[0]}' is not an escape", _BACKSLASH)
            case control:
                self.fail(f"{_format_char(control)} inside a string", f"it is written \\u{ord(control):04x}")
        value = str(json.loads(self.text[began : self.at]))
        if _SURROGATE.search(value):
            self.fail("half of a surrogate pair is not text", at=began)
        return value

    def scan_scalar(self) -> bool | int | float | None:
        began, end = self.at, find_match_end(_WORD, self.text, self.at)
        word = self.text[began:end]
        number = _NUMBER.fullmatch(word)
        if not number and word not in _WORDS:
            usual = "text is written in double quotes" if word[:1].isalpha() else "a number is written like -1 or 0.5"
            self.fail_expected("a value", _HINTS.get(word, usual) if word else "")
        self.at = end
        if not number:
            return _WORDS[word]
        if abs(float(word)) > _LARGEST:
            self.fail("this number is too large", at=began)
        return float(word) if number.lastindex else int(word)

    def peek(self) -> str:
        """Skip blanks and comments; return the next character, or an empty string at the end."""
        self.at = find_match_end(GAP, self.text, self.at)
        if self.text.startswith("/*", self.at):
            self.fail("a comment is not closed", "expected */")
        return self.text[self.at : self.at + 1]

    def fail_expected(self, what: str, hint: str = "") -> NoReturn:
        char = self.text[self.at : self.at + 1]
        if not char and self.open:
            line, column = self.source.find_position(self.open[-1])
            hint = f"the {self.text[self.open[-1]]!r} of line {line}, column {column} is not closed"
        found = _format_char(char) if char else "the end of the file"
        self.fail(f"expected {what}, found {found}", hint or _HINTS.get(char, ""))

    def fail(self, problem: str, hint: str = "", *, at: int | None = None) -> NoReturn:
        raise ConfigError(problem, hint, self.source.path, *self.source.find_position(self.at if at is None else at))


def find_match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of a pattern's match at an offset; the offset itself if the pattern does not match."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _format_char(char: str) -> str:
    return repr(char) if char.isprintable() else f"U+{ord(char):04X}"

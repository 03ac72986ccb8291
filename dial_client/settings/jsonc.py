"""A parser for JSON with comments that records the line and column of every value.

`read` accepts comments (``//`` and ``/* */``), trailing commas and a byte order mark; anything else that is not JSON
raises `ConfigError`. It returns a `Node` (`config_values`). Time and memory are linear in the text. No message shows a
value, because it may be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from dial_client.messages.errors import ConfigError
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.settings.config_values import MAX_DEPTH, MAX_NUMBER, TOO_DEEP, JsoncSource, Keys, Node, quote_key


def read(text: str | bytes, path: str = "") -> Node:
    """Parse the content of a file; `path` is used in messages.

    Raises:
        ConfigError: The content is not JSON.
    """
    if isinstance(text, bytes):
        text = _decode(text, path)
    return _Scanner(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), path).scan_document()


def _decode(data: bytes, path: str) -> str:
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        text = error.object[: error.start].decode(encoding, "replace")
    place = text.count("\n") + 1, len(text) - text.rfind("\n")
    raise ConfigError("this is not text in UTF-8", "save the file as UTF-8", path, *place)


GAP = compile_lazily(r"(?:[ \t\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_BODY = compile_lazily(r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*')
_SURROGATE = compile_lazily("[\ud800-\udfff]")
_WORD = compile_lazily(r"[\w.+-]*")
_NUMBER = compile_lazily(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
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
    """Scans one text from left to right; `index` is the offset of the next character."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.index = 0
        self.open: list[int] = []
        self.values: dict[Keys, int] = {}
        self.names: dict[Keys, int] = {}
        self.ends: dict[Keys, int] = {}
        lines = [0, *(end.end() for end in re.finditer("\n", text))]
        self.source = JsoncSource(path, lines, self.values, self.names, self.ends)

    def scan_document(self) -> Node:
        if half := _SURROGATE.search(self.text):
            self.fail("half of a surrogate pair is not text", index=half.start())
        if not self.peek():
            self.fail("the file is empty", 'expected {"mcpServers": {…}}')
        value = self.scan_value(())
        if self.peek():
            self.fail("there is text after the end of the JSON", "a file contains one object")
        return Node(value, (), self.source)

    def scan_value(self, keys: Keys) -> Any:
        char = self.peek()
        self.values[keys] = self.index
        if len(keys) > MAX_DEPTH:
            self.fail(TOO_DEEP)
        value: Any
        match char:
            case "{":
                value = self.scan_object(keys)
            case "[":
                value = self.scan_array(keys)
            case '"':
                value = self.scan_string()
            case _:
                value = self.scan_scalar()
        self.ends[keys] = self.index
        return value

    def scan_object(self, keys: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for char in self.scan_items("}"):
            if char != '"':
                self.fail_expected("a key in double quotes" if found else "a key in double quotes or '}'")
            began, key = self.index, self.scan_string()
            if key in found:
                first, _ = self.source.find_place((*keys, key), at_name=True)
                self.fail(f"the key {quote_key(key)} occurs twice in one object", f"first in line {first}", index=began)
            self.names[*keys, key] = began
            if self.peek() != ":":
                self.fail_expected("':' after the key")
            self.index += 1
            found[key] = self.scan_value((*keys, key))
        return found

    def scan_array(self, keys: Keys) -> list[Any]:
        found: list[Any] = []
        for _ in self.scan_items("]"):
            found.append(self.scan_value((*keys, len(found))))
        return found

    def scan_items(self, closer: str) -> Iterator[str]:
        """Yield the first character of each item, which the caller scans; consume the commas and both brackets."""
        self.open.append(self.index)
        self.index += 1
        while (char := self.peek()) != closer:
            yield char
            following = self.peek()
            if following == ",":
                self.index += 1
            elif following != closer:
                hint = "is a comma missing before this?" if following in ('"', "{", "[") else ""
                self.fail_expected(f"',' or '{closer}'", hint)
        self.open.pop()
        self.index += 1

    def scan_string(self) -> str:
        began = self.index
        self.index = find_match_end(_BODY, self.text, began + 1)
        match self.text[self.index : self.index + 1]:
            case '"':
                self.index += 1
            case "" | "\n":
                self.fail("a string is not closed", f"it must end with '\"' on its line; {_BACKSLASH}", index=began)
            case "\\":
                escape = self.text[self.index : self.index + 2]
                self.fail(f"'{escape if escape.isprintable() else escape[0]}' is not an escape", _BACKSLASH)
            case control:
                self.fail(f"{_format_char(control)} inside a string", f"it is written \\u{ord(control):04x}")
        value = str(json.loads(self.text[began : self.index]))
        if _SURROGATE.search(value):
            self.fail("half of a surrogate pair is not text", index=began)
        return value

    def scan_scalar(self) -> bool | int | float | None:
        began, end = self.index, find_match_end(_WORD, self.text, self.index)
        word = self.text[began:end]
        number = _NUMBER.fullmatch(word)
        if not number and word not in _WORDS:
            usual = "text is written in double quotes" if word[:1].isalpha() else "a number is written like -1 or 0.5"
            self.fail_expected("a value", _HINTS.get(word, usual) if word else "")
        self.index = end
        if not number:
            return _WORDS[word]
        if abs(float(word)) > MAX_NUMBER:
            self.fail("this number is too large", index=began)
        return float(word) if number.lastindex else int(word)

    def peek(self) -> str:
        """Skip blanks and comments; return the next character, or an empty string at the end."""
        self.index = find_match_end(GAP, self.text, self.index)
        if self.text.startswith("/*", self.index):
            self.fail("a comment is not closed", "expected */")
        return self.text[self.index : self.index + 1]

    def fail_expected(self, what: str, hint: str = "") -> NoReturn:
        char = self.text[self.index : self.index + 1]
        if not char and self.open:
            line, column = self.source.find_position(self.open[-1])
            hint = f"the {self.text[self.open[-1]]!r} of line {line}, column {column} is not closed"
        found = _format_char(char) if char else "the end of the file"
        self.fail(f"expected {what}, found {found}", hint or _HINTS.get(char, ""))

    def fail(self, problem: str, hint: str = "", *, index: int | None = None) -> NoReturn:
        raise ConfigError(
            problem, hint, self.source.path, *self.source.find_position(self.index if index is None else index)
        )


def find_match_end(pattern: re.Pattern[str], text: str, index: int) -> int:
    """Return the end of a pattern's match at an index; the offset itself if the pattern does not match."""
    found = pattern.match(text, index)
    return found.end() if found else index


def _format_char(char: str) -> str:
    return repr(char) if char.isprintable() else f"U+{ord(char):04X}"

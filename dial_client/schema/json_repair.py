"""Parses almost-JSON, as models write it.

Python literals, single quotes, bare keys, superfluous commas and line breaks in strings are accepted. Nothing is
guessed or completed: a truncated text has no value. Parsing takes linear time.
"""

from __future__ import annotations

import math
import re
from typing import Any

from dial_client.runtime.surrogates import replace_surrogates

MAX_DEPTH = 32
"""The most levels of nesting; a usual call has two or three."""

_SPACE = re.compile(r"\s*+")
_DOUBLE = re.compile(r'"([^"\\]*+(?>(?:\\.[^"\\]*+)*))"', re.DOTALL)
_SINGLE = re.compile(r"'([^'\\]*+(?>(?:\\.[^'\\]*+)*))'", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL
)
_NUMBER = re.compile(r"[-+]?(\d{1,400}+)?(\.\d{0,400}+)?([eE][-+]?\d{1,3}+)?(?![\w.])")
_WORD = re.compile(r"[^\W\d][\w.-]{0,127}+")

_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class Unreadable(ValueError):
    """The text contains no complete value."""


class LiteralParser:
    """Parses a text value by value.

    Args:
        text: The text to parse.
        position: The index at which parsing begins.
        quote: A delimiter of strings in addition to quotation marks; strings within it have no escapes.
    """

    def __init__(self, text: str, position: int = 0, quote: str = "") -> None:
        self.text = text
        self.position = position
        self._quote = quote

    def parse_value(self, depth: int = MAX_DEPTH) -> Any:
        """Parse and return a value; a tuple becomes a list.

        Raises:
            Unreadable: There is no value, or the value is incomplete.
        """
        first = self.peek()
        if depth <= 0:
            raise Unreadable("nested too deeply")
        if first == "{":
            return dict(self._parse_items(self._parse_pair, depth))
        if first and first in "[(":
            return self._parse_items(self.parse_value, depth)
        if (first and first in "\"'") or self._is_at_quote():
            return self.parse_string()
        return self._parse_plain()

    def parse_string(self) -> str:
        """Parse and return a string.

        Raises:
            Unreadable: There is no string, or the string is incomplete.
        """
        self.peek()
        if self._is_at_quote():
            begin = self.position + len(self._quote)
            end = self.text.find(self._quote, begin)
            if end < 0:
                raise Unreadable("a string without an end")
            self.position = end + len(self._quote)
            return self.text[begin:end]
        found = _DOUBLE.match(self.text, self.position) or _SINGLE.match(self.text, self.position)
        if found is None:
            raise Unreadable("no string")
        self.position = found.end()
        text = found.group(1)
        return replace_surrogates(_ESCAPE.sub(_unescape, text)) if "\\" in text else text

    def parse_word(self) -> str:
        """Parse and return a name; empty if there is none."""
        self.peek()
        found = _WORD.match(self.text, self.position)
        if found is None:
            return ""
        self.position = found.end()
        return found.group()

    def peek(self) -> str:
        """Skip white space, and return the next character without reading it; empty at the end."""
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position
        return self.text[self.position : self.position + 1]

    def skip(self, char: str) -> bool:
        """Read the next character if it is `char`, and return True if so."""
        if self.peek() != char:
            return False
        self.position += 1
        return True

    def _is_at_quote(self) -> bool:
        return bool(self._quote) and self.text.startswith(self._quote, self.position)

    def _parse_items(self, parse_item: Any, depth: int) -> list[Any]:
        closing = _CLOSING[self.text[self.position]]
        self.position += 1
        values: list[Any] = []
        while self.peek() != closing:
            values.append(parse_item(depth - 1))
            following = self.peek()
            if following == ",":
                self.position += 1
            elif following != closing:
                raise Unreadable("something is missing between two values")
        self.position += 1
        return values

    def _parse_pair(self, depth: int) -> tuple[str, Any]:
        is_quoted = self.peek() in ("'", '"') or self._is_at_quote()
        key = self.parse_string() if is_quoted else self.parse_word()
        if not (is_quoted or key) or not self.skip(":"):
            raise Unreadable("no key")
        return key, self.parse_value(depth)

    def _parse_plain(self) -> Any:
        number = _NUMBER.match(self.text, self.position)
        if number and (number.group(1) or len(number.group(2) or "") > 1):
            self.position = number.end()
            if number.group(2) is None and number.group(3) is None:
                return int(number.group())
            value = float(number.group())
            if math.isfinite(value):
                return value
            raise Unreadable("a number without an end")
        word = self.parse_word()
        if word not in _CONSTANTS:
            raise Unreadable("no value")
        return _CONSTANTS[word]


def _unescape(found: re.Match[str]) -> str:
    code = found.group(1) or found.group(2) or found.group(3)
    return chr(int(code, 16)) if code else _PLAIN.get(found.group(4), found.group())

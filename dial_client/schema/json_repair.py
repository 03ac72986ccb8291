"""Reads values the way models write them that never learned JSON well.

Python's literals, single quotes, bare keys, commas too many, line breaks in strings. Nothing is guessed or completed: a
text that ends too early has no value here either. Every character is read once.
"""

from __future__ import annotations

import math
import re
from typing import Any

MAX_DEPTH = 32
"""Levels of nesting; a call by hand has two or three."""

_SPACE = re.compile(r"\s*+")
_DOUBLE = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_SINGLE = re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL
)
_NUMBER = re.compile(r"[-+]?(\d{1,400}+)?(\.\d{0,400}+)?([eE][-+]?\d{1,3}+)?(?![\w.])")
_WORD = re.compile(r"[^\W\d][\w.-]{0,127}+")
_SURROGATE = re.compile("[\ud800-\udfff]")

_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class Unreadable(ValueError):
    """There is no whole value here."""


class Literals:
    """Goes through a text value by value.

    Args:
        text: what is read.
        at: where to begin, in characters.
        quote: what stands around strings in this dialect besides quotation marks; nothing within is escaped.
    """

    def __init__(self, text: str, at: int = 0, quote: str = "") -> None:
        self.text = text
        self.at = at
        self._quote = quote

    def value(self, depth: int = MAX_DEPTH) -> Any:
        """Read one value; a tuple is read as a list.

        Raises:
            Unreadable: there is none, or it is not whole.
        """
        first = self.peek()
        if depth <= 0:
            raise Unreadable("nested too deeply")
        if first == "{":
            return dict(self._inside(self._pair, depth))
        if first and first in "[(":
            return self._inside(self.value, depth)
        if (first and first in "\"'") or self._at_quote():
            return self.string()
        return self._plain()

    def string(self) -> str:
        """Read a string.

        Raises:
            Unreadable: there is none, or it is not whole.
        """
        self.peek()
        if self._at_quote():
            begin = self.at + len(self._quote)
            end = self.text.find(self._quote, begin)
            if end < 0:
                raise Unreadable("a string without an end")
            self.at = end + len(self._quote)
            return self.text[begin:end]
        found = _DOUBLE.match(self.text, self.at) or _SINGLE.match(self.text, self.at)
        if found is None:
            raise Unreadable("no string")
        self.at = found.end()
        said = found.group(1)
        return _joined(_ESCAPE.sub(_unescaped, said)) if "\\" in said else said

    def word(self) -> str:
        """Read a name; empty where there is none."""
        self.peek()
        found = _WORD.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()

    def peek(self) -> str:
        """Give the next character that is no white space, without reading it; empty at the end."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def takes(self, mark: str) -> bool:
        """Read this one character, if it is the next."""
        if self.peek() != mark:
            return False
        self.at += 1
        return True

    def _at_quote(self) -> bool:
        return bool(self._quote) and self.text.startswith(self._quote, self.at)

    def _inside(self, one: Any, depth: int) -> list[Any]:
        closing = _CLOSING[self.text[self.at]]
        self.at += 1
        values: list[Any] = []
        while self.peek() != closing:
            values.append(one(depth - 1))
            following = self.peek()
            if following == ",":
                self.at += 1
            elif following != closing:
                raise Unreadable("something is missing between two values")
        self.at += 1
        return values

    def _pair(self, depth: int) -> tuple[str, Any]:
        is_quoted = self.peek() in ("'", '"') or self._at_quote()
        key = self.string() if is_quoted else self.word()
        if not (is_quoted or key) or not self.takes(":"):
            raise Unreadable("no key")
        return key, self.value(depth)

    def _plain(self) -> Any:
        number = _NUMBER.match(self.text, self.at)
        if number and (number.group(1) or len(number.group(2) or "") > 1):
            self.at = number.end()
            if number.group(2) is None and number.group(3) is None:
                return int(number.group())
            value = float(number.group())
            if math.isfinite(value):
                return value
            raise Unreadable("a number without an end")
        word = self.word()
        if word not in _CONSTANTS:
            raise Unreadable("no value")
        return _CONSTANTS[word]


def _unescaped(found: re.Match[str]) -> str:
    code = found.group(1) or found.group(2) or found.group(3)
    return chr(int(code, 16)) if code else _PLAIN.get(found.group(4), found.group())


def _joined(text: str) -> str:
    """Put pairs of surrogates together; half a pair becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(text) else text

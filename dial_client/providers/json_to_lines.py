"""Converts a reply that is a JSON object to labelled lines: ``{"Action": "f"}`` becomes ``Action: f``.

A tool format with labelled lines then needs no second parser for endpoints that constrain replies only by JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from dial_client.runtime.text import replace_surrogates

_NEWLINE = "\n"
_KEY = re.compile(r'"([^"\\]{0,200})"[ \t\r\n]*:[ \t\r\n]*')
_MAX_KEY = 256
"""The most characters of a key. An object is not converted from a longer key on."""
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPE = re.compile(r'\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]')
_HALF_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_MAX_ESCAPE = 12
_SPACE = " \t\r\n"


class JsonToLines:
    """Converts a streamed JSON object to lines. A text that does not begin with an object is returned unchanged."""

    def __init__(self) -> None:
        self._held = ""
        self._step: Callable[[], str | None] = self._read_start
        self._has_lines = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def feed(self, text: str) -> str:
        """Add text, and return the converted lines so far. An incomplete object is converted as far as it goes."""
        self._held += text
        lines: list[str] = []
        while self._held and (converted := self._step()) is not None:
            lines.append(converted)
        return "".join(lines)

    def _consume(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _read_start(self) -> str | None:
        self._held = self._held.lstrip(_SPACE)
        if self._held.startswith("{"):
            self._consume(1)
            self._step = self._read_key
        elif self._held:
            self._step = self._read_plain_text
        return "" if self._held else None

    def _read_plain_text(self) -> str:
        return self._consume(len(self._held))

    def _read_key(self) -> str | None:
        self._held = self._held.lstrip(f"{_SPACE},")
        key = _KEY.match(self._held)
        if key is None:
            if self._held.startswith("}"):
                self._step = self._skip_rest
            elif self._held and (self._held[0] != '"' or len(self._held) > _MAX_KEY):
                self._step = self._read_plain_text
            else:
                return None
            return ""
        label = f"{_NEWLINE if self._has_lines else ''}{key[1]}: "
        self._has_lines, self._step = True, self._read_value
        self._consume(key.end())
        return label

    def _read_value(self) -> str | None:
        self._held = self._held.lstrip(_SPACE)
        if not self._held:
            return None
        if self._held.startswith('"'):
            self._consume(1)
            self._step = self._read_string
        else:
            self._depth, self._in_string, self._is_escaped, self._step = 0, False, False, self._read_literal
        return ""

    def _read_string(self) -> str | None:
        if plain := _PLAIN.match(self._held):
            return self._consume(plain.end())
        if self._held.startswith('"'):
            self._consume(1)
            self._step = self._read_key
            return ""
        if _HALF_ESCAPE.match(self._held):
            return None  # the second half of a surrogate pair may follow
        if escape := _ESCAPE.match(self._held):
            return replace_surrogates(json.loads(f'"{self._consume(escape.end())}"'))
        return self._consume(1) if len(self._held) >= _MAX_ESCAPE else None

    def _read_literal(self) -> str:
        """Return the unchanged text of a value that is not a string, up to the end of the value."""
        for at, char in enumerate(self._held):
            if self._in_string:
                self._in_string = char != '"' or self._is_escaped
                self._is_escaped = char == "\\" and not self._is_escaped
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif self._depth and char in "}]":
                self._depth -= 1
            elif not self._depth and char in ",}":
                self._step = self._read_key
                return self._consume(at)
        return self._consume(len(self._held))

    def _skip_rest(self) -> str:
        self._held = ""
        return ""

"""A reply that was held to a JSON object, as lines: ``{"Action": "f", "Input": {}}`` is ``Action: f``, ``Input: {}``.

So a format whose replies are labels and lines needs no second reader for endpoints that know JSON Schema only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from dial_client.providers.tool_call_codec import clean

_NEXT_LINE = "\n"
_KEY = re.compile(r'"([^"\\]{0,200})"[ \t\r\n]*:[ \t\r\n]*')
_LONGEST_KEY = 256
"""Characters in which a key has come to its end; what is longer is no object of this kind."""
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPE = re.compile(r'\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]')
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_LONGEST_ESCAPE = 12
_SPACE = " \t\r\n"


class LabelledLines:
    """Turns an object into lines as it comes. What does not begin like one passes as it is."""

    def __init__(self) -> None:
        self._held = ""
        self._step: Callable[[], str | None] = self._begin
        self._has_lines = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def feed(self, text: str) -> str:
        """Take more, give what is known of it as lines; an object that ends early has its lines until there."""
        self._held += text
        said: list[str] = []
        while self._held and (more := self._step()) is not None:
            said.append(more)
        return "".join(said)

    def _taken(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _begin(self) -> str | None:
        self._held = self._held.lstrip(_SPACE)
        if self._held.startswith("{"):
            self._taken(1)
            self._step = self._key
        elif self._held:
            self._step = self._as_it_is
        return "" if self._held else None

    def _as_it_is(self) -> str:
        return self._taken(len(self._held))

    def _key(self) -> str | None:
        self._held = self._held.lstrip(f"{_SPACE},")
        key = _KEY.match(self._held)
        if key is None:
            if self._held.startswith("}"):
                self._step = self._behind
            elif self._held and (self._held[0] != '"' or len(self._held) > _LONGEST_KEY):
                self._step = self._as_it_is
            else:
                return None
            return ""
        label = f"{_NEXT_LINE if self._has_lines else ''}{key[1]}: "
        self._has_lines, self._step = True, self._value
        self._taken(key.end())
        return label

    def _value(self) -> str | None:
        self._held = self._held.lstrip(_SPACE)
        if not self._held:
            return None
        if self._held.startswith('"'):
            self._taken(1)
            self._step = self._string
        else:
            self._depth, self._in_string, self._is_escaped, self._step = 0, False, False, self._other
        return ""

    def _string(self) -> str | None:
        if plain := _PLAIN.match(self._held):
            return self._taken(plain.end())
        if self._held.startswith('"'):
            self._taken(1)
            self._step = self._key
            return ""
        if _HALF.match(self._held):
            return None  # the other half of a pair may be on its way
        if escape := _ESCAPE.match(self._held):
            return clean(json.loads(f'"{self._taken(escape.end())}"'))
        return self._taken(1) if len(self._held) >= _LONGEST_ESCAPE else None

    def _other(self) -> str:
        """Pass a value that is no string as it is written, up to where it ends."""
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
                self._step = self._key
                return self._taken(at)
        return self._taken(len(self._held))

    def _behind(self) -> str:
        self._held = ""
        return ""

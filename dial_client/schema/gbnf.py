"""JSON Schemas as GBNF, llama.cpp's notation for what a model may write: here a value that fits a schema.

https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md has the notation. A grammar says the form only:
lengths, ranges, patterns and what hangs on other values are checked before a call, as ever. JSON is written as models
write it, with one space behind ``:`` and ``,``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_OPTIONAL = 12
"""Properties of one object that may be left out; further ones cannot be written."""
MAX_LEVELS = 6
"""Levels of objects and arrays that are spelled out; what lies deeper is any JSON."""

_DIGITS = " ".join(["[0-9]?"] * 15)
_COMMON = {
    "value": "object | array | string | number | boolean | null",
    "object": '"{" ( string ": " value ( ", " string ": " value )* )? "}"',
    "array": '"[" ( value ( ", " value )* )? "]"',
    "string": r'"\"" char* "\""',
    "char": r'[^"\\\x00-\x1F] | "\\" ["\\/bfnrt]',
    "number": f'integer ( "." [0-9] {_DIGITS} )?',
    "integer": f'"-"? ( "0" | [1-9] {_DIGITS} )',
    "boolean": '"true" | "false"',
    "null": '"null"',
}


def literal(text: str) -> str:
    """Give a text as a terminal."""
    return '"' + "".join(_ESCAPES.get(letter) or _escaped(letter) for letter in text) + '"'


_ESCAPES = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else rf"\U{ord(letter):08X}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Grammar:
    """A grammar under way: schemas are added as rules, and then the whole is written."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def text(self, root: str) -> str:
        """Write the grammar; `root` is what is written in all."""
        rules = {"root": root, **self._rules, **_COMMON}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def object(self, schema: Mapping[str, Any], name: str) -> str:
        """Add a rule for objects that fit a schema, and give its name; `name` is one of letters and digits."""
        return self._add(name, self._object(schema, name, 0))

    def _add(self, name: str, body: str) -> str:
        self._rules[name] = body
        return name

    def _object(self, schema: Mapping[str, Any], name: str, level: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return "object" if level else literal("{}")
        required = [key for key in properties if key in schema.get("required", ())]
        optional = [key for key in properties if key not in required][:MAX_OPTIONAL]
        pairs = [
            f"{literal(_json(key) + ': ')} {self._value(properties[key], f'{name}-{at}', level)}"
            for at, key in enumerate([*required, *optional])
        ]
        return f'"{{" {_separated(pairs, len(required))} "}}"'

    def _value(self, schema: Any, name: str, level: int) -> str:
        if not isinstance(schema, Mapping) or level >= MAX_LEVELS:
            return "value"
        if "const" in schema:
            return literal(_json(schema["const"]))
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._add(name, " | ".join(literal(_json(one)) for one in schema["enum"]))
        choices = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(choices, list) and choices:
            return self._add(name, self._either(choices, name, level))
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self._add(name, self._either([{**schema, "type": one} for one in kind], name, level))
        return self._of_type(kind, schema, name, level)

    def _either(self, choices: Iterable[Any], name: str, level: int) -> str:
        rules = (self._value(choice, f"{name}-{at}", level + 1) for at, choice in enumerate(choices))
        return " | ".join(dict.fromkeys(rules))

    def _of_type(self, kind: Any, schema: Mapping[str, Any], name: str, level: int) -> str:
        match kind:
            case "string" | "number" | "integer" | "boolean" | "null":
                return str(kind)
            case "array":
                item = self._value(schema.get("items"), f"{name}-0", level + 1)
                items = f'{item} ( ", " {item} )*'
                return self._add(name, f'"[" {items} "]"' if schema.get("minItems") else f'"[" ( {items} )? "]"')
            case "object":
                return self._add(name, self._object(schema, name, level + 1))
        return "value"


def _separated(pairs: Sequence[str], required: int) -> str:
    """Give pairs with commas between them; those behind the `required` ones may be left out, each for itself."""
    optional = [f'( ", " {pair} )?' for pair in pairs[required:]]
    if required:
        return " ".join([' ", " '.join(pairs[:required]), *optional])
    beginnings = (" ".join((pair, *optional[at + 1 :])) for at, pair in enumerate(pairs))
    return f"( {' | '.join(beginnings)} )?" if pairs else ""

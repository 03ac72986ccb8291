"""Conversion of JSON Schemas to GBNF, llama.cpp's notation for grammars.

Notation: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md. A grammar describes only the structure
of values; lengths, ranges, patterns and dependencies are checked before a call. The grammar requires one space after
``:`` and ``,``, as models write JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dial_client.runtime.json_fields import to_object

# The most optional properties of an object; further optional properties are not in the grammar.
MAX_OPTIONAL = 12
# The most levels of objects and arrays with their own rules; deeper values may be any JSON.
MAX_LEVELS = 6

_DEFINITIONS = "#/$defs/"
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


def to_literal(text: str) -> str:
    """Return a text as a terminal of a grammar."""
    unprintable = {letter: rf"\U{ord(letter):08X}" for letter in text if not letter.isprintable()}
    escapes = unprintable | _ESCAPES
    return f'"{"".join(escapes.get(letter, letter) for letter in text)}"'


_ESCAPES = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Grammar:
    """Builds a grammar: `add_object` and `add_answer` add rules for schemas, `to_text` returns the grammar."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        # The ``$defs`` of the schema that is being added.
        self._definitions: Mapping[str, Any] = {}
        # The rules of the definitions that were referenced so far, by reference.
        self._references: dict[str, str] = {}

    def to_text(self, root: str) -> str:
        """Return the grammar; `root` is the body of its root rule."""
        rules = {"root": root, **self._rules, **_COMMON}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def add_object(self, schema: Mapping[str, Any], name: str) -> str:
        """Add a rule for objects that satisfy a schema, and return its name; `name` has only letters and digits."""
        self._begin(schema)
        return self._add(name, self._build_object(schema, name, 0))

    def add_answer(self, schema: Mapping[str, Any]) -> str:
        """Add rules for an answer that satisfies a schema, and return the symbol for it."""
        self._begin(schema)
        return self._build_value(schema, "answer", 0)

    def add_calls(self, tools: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Add a rule for the arguments of each tool, and return the body of a rule for a call of any of them.

        Args:
            tools: The text before the arguments, and the schema of the arguments, for each tool.
        """
        return " | ".join(
            f"{to_literal(opening)} {self.add_object(schema, f't{index}')}"
            for index, (opening, schema) in enumerate(tools)
        )

    def _begin(self, schema: Mapping[str, Any]) -> None:
        self._definitions = to_object(schema.get("$defs"))
        self._references = {}

    def _add(self, name: str, body: str) -> str:
        self._rules[name] = body
        return name

    def _build_object(self, schema: Mapping[str, Any], name: str, level: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return "object" if level else to_literal("{}")
        required = [key for key in properties if key in schema.get("required", ())]
        optional = [key for key in properties if key not in required][:MAX_OPTIONAL]
        pairs = [
            f"{to_literal(_to_json(key) + ': ')} {self._build_value(properties[key], f'{name}-{index}', level)}"
            for index, key in enumerate([*required, *optional])
        ]
        return f'"{{" {_with_commas(pairs, len(required))} "}}"'

    def _build_value(self, schema: Any, name: str, level: int) -> str:
        if not isinstance(schema, Mapping) or level >= MAX_LEVELS:
            return "value"
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
            if reference not in self._references:  # its rule may be recursive
                target = self._definitions.get(reference.removeprefix(_DEFINITIONS))
                rule = self._references[reference] = f"{name}-r"
                self._add(rule, "value")
                self._add(rule, self._build_value(target, f"{name}-d", 1))
            return self._references[reference]
        if "const" in schema:
            return to_literal(_to_json(schema["const"]))
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._add(name, " | ".join(to_literal(_to_json(value)) for value in schema["enum"]))
        choices = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(choices, list) and choices:
            return self._add(name, self._build_alternatives(choices, name, level))
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self._add(
                name, self._build_alternatives([{**schema, "type": type_name} for type_name in kind], name, level)
            )
        return self._build_typed_value(kind, schema, name, level)

    def _build_alternatives(self, choices: Iterable[Any], name: str, level: int) -> str:
        rules = (self._build_value(choice, f"{name}-{index}", level + 1) for index, choice in enumerate(choices))
        return " | ".join(dict.fromkeys(rules))

    def _build_typed_value(self, kind: Any, schema: Mapping[str, Any], name: str, level: int) -> str:
        if kind == "array":
            item = self._build_value(schema.get("items"), f"{name}-0", level + 1)
            items = f'{item} ( ", " {item} )*'
            return self._add(name, f'"[" {items} "]"' if schema.get("minItems") else f'"[" ( {items} )? "]"')
        if kind == "object":
            return self._add(name, self._build_object(schema, name, level + 1))
        return str(kind) if kind in ("string", "number", "integer", "boolean", "null") else "value"


def _with_commas(pairs: Sequence[str], required: int) -> str:
    """Return pairs separated by commas; the first `required` pairs are required, the others optional."""
    optional = [f'( ", " {pair} )?' for pair in pairs[required:]]
    if required:
        return " ".join([' ", " '.join(pairs[:required]), *optional])
    beginnings = (" ".join((pair, *optional[index + 1 :])) for index, pair in enumerate(pairs))
    return f"( {' | '.join(beginnings)} )?" if pairs else ""

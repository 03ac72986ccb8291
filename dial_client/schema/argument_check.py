"""Checks of arguments against a tool's JSON Schema."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import sanitize

# The most characters of a pattern. A longer pattern counts as invalid, because compiling it could take seconds.
MAX_PATTERN_CHARS = 10_000

# Keywords whose values may look like schemas, but are not.
_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples"})
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_PYTHON_ONLY = compile_lazily(
    r"""(?s: \\[aAZNU]              # the bell, both ends of the text, characters by name or by eight digits
           | \(\?(?!:|=|!|<=|<!)    # flags, comments, conditions, atomic groups, names written (?P<…>)
           | (?:[*+?]|\{\d*,?\d*\})\+  # possessive quantifiers
    )""",
    re.VERBOSE,
)
# Matches escapes that are valid in both syntaxes, and character classes.
_SKIPPED = compile_lazily(r"\\[^aAZNU]|\[\^?\]?(?>(?:\\.|[^\]\\])*)\]", re.DOTALL)


def is_portable(pattern: str) -> bool:
    """Return True if a regular expression is valid in both ECMA 262 and Python."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return _PYTHON_ONLY.search(_SKIPPED.sub("_", pattern)) is None


def drop_patterns(schema: Any, is_valid: Callable[[str], bool]) -> Any:
    """Return a copy of a schema without its invalid regular expressions.

    If a pattern of ``patternProperties`` is removed, the object may have any other properties, because the names that
    the pattern allowed are unknown.
    """
    if isinstance(schema, list):
        return [drop_patterns(part, is_valid) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = dict(schema)
    if isinstance(kept.get("pattern"), str) and not is_valid(kept["pattern"]):
        del kept["pattern"]
    by_name = kept.get("patternProperties")
    if isinstance(by_name, Mapping) and not all(map(is_valid, by_name)):
        kept["patternProperties"] = {name: part for name, part in by_name.items() if is_valid(name)}
        kept.pop("additionalProperties", None)
        kept.pop("unevaluatedProperties", None)
    for key, value in kept.items():
        if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
            kept[key] = {name: drop_patterns(part, is_valid) for name, part in value.items()}
        elif key not in _NOT_SCHEMAS:
            kept[key] = drop_patterns(value, is_valid)
    return kept


def parse_reference(reference: Any) -> tuple[str, ...] | None:
    """Return the place that a local reference points to (RFC 6901, section 6); None for any other reference."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in unquote(reference).split("/")[1:])


def find_target(root: Any, reference: Any) -> Any:
    """Return the target of a local reference; None if there is none."""
    steps = parse_reference(reference)
    target = None if steps is None else root
    for name in steps or ():
        if isinstance(target, list):
            target = target[int(name)] if name.isdecimal() and int(name) < len(target) else None
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target


MAX_PROBLEMS = 5
# The most characters of the description of a problem, which quotes the invalid value.
MAX_PROBLEM_CHARS = 300


class ArgumentCheck:
    """Checks arguments against a tool's original schema.

    Args:
        schema: The original schema, as the server sent it.
        formats: True to check ``format`` too, which is only an annotation for tools (JSON Schema 2020-12).
    """

    def __init__(self, schema: Mapping[str, Any], *, formats: bool = False) -> None:
        self._schema = schema
        self._formats = formats

    @cached_property
    def _validator(self) -> Any:
        return _compile(self._schema, formats=self._formats)

    @property
    def is_possible(self) -> bool:
        """True if the schema itself is valid. If not, only the server can check the arguments."""
        return self._validator is not None

    def is_valid(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if the arguments satisfy the schema, or if the schema is invalid."""
        try:
            return (
                _is_surely_valid(self._schema, dict(arguments))
                or self._validator is None
                or bool(self._validator.is_valid(dict(arguments)))
            )
        except ValueError:  # not JSON: a lone surrogate, or a key that is a number
            return False

    def find_problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return at most five problems, each with its place (``count: "x" is not of type "integer"``)."""
        if _is_surely_valid(self._schema, dict(arguments)) or self._validator is None:
            return []
        problems: list[str] = []
        try:
            for error in self._validator.iter_errors(dict(arguments)):
                place = ".".join(str(step) for step in error.instance_path)
                problems.append(shorten_problem(f"{place}: {error.message}" if place else error.message))
                if len(problems) == MAX_PROBLEMS:
                    break
        except ValueError as error:  # not JSON: a lone surrogate, or a key that is a number
            problems.append(shorten_problem(f"the values are not JSON: {error}"))
        return problems


# Types of a schema, and those of Python whose values surely have them. A boolean is no number in JSON.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
# What `_is_surely_valid` understands, and annotations, which say nothing about a value.
_PLAIN_KEYWORDS = frozenset(
    {"type", "enum", "items", "properties", "required", "additionalProperties"}
    | {"title", "description", "default", "examples", "deprecated"}
)
_MAX_NUMBER = 2**53
_MAX_DEPTH = 16


def _is_surely_valid(schema: Any, value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Return True if a value satisfies a schema of a few keywords; False if only the validator can tell.

    Most calls are right, and have such schemas: the program then does without the validator, which needs 10 MB.
    """
    if not depth or not isinstance(schema, dict) or not schema.keys() <= _PLAIN_KEYWORDS:
        return False
    kind = schema.get("type")
    if not isinstance(kind, str) or type(value) not in _TYPES.get(kind, ()):
        return False
    if "enum" in schema:
        values = schema["enum"]
        if kind != "string" or not isinstance(values, list) or value not in values:
            return False
    if kind == "string":
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if kind == "object":
        return _has_valid_members(schema, value, depth - 1)
    if kind == "array":
        return all(_is_surely_valid(schema.get("items"), item, depth - 1) for item in value)
    return bool(-_MAX_NUMBER < value < _MAX_NUMBER)


def _has_valid_members(schema: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> bool:
    # Loops, which run for each call: a generator for each of them would take more than the checks.
    named, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list):
        return False
    for name in required:
        if not isinstance(name, str) or name not in value:
            return False
    for name, part in value.items():  # noqa: SIM110 - as above
        if not _is_surely_valid(named.get(name), part, depth):
            return False
    return True


def shorten_problem(problem: str) -> str:
    """Return a problem, shortened in the middle: the wrong value is at the beginning, the rule at the end."""
    problem = sanitize(problem)
    half = MAX_PROBLEM_CHARS // 2
    return problem if len(problem) <= MAX_PROBLEM_CHARS else f"{problem[:half]} … {problem[-half:]}"


def _compile(schema: Mapping[str, Any], *, formats: bool) -> Any:
    """Return a validator that ignores invalid regular expressions; None for an otherwise invalid schema."""
    import jsonschema_rs

    def refuse_remote(uri: str) -> Any:
        # MCP 2026-07-28, server/tools: a client must not dereference a network $ref.
        raise ValueError(f"remote references are not fetched: {uri}")

    def compile_schema(source: Mapping[str, Any]) -> Any:
        try:
            return jsonschema_rs.validator_for(dict(source), retriever=refuse_remote, validate_formats=formats)
        except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
            return None

    validator = compile_schema(schema)
    if validator is not None:
        return validator
    try:
        remaining = drop_patterns(schema, lambda pattern: compile_schema({"pattern": pattern}) is not None)
    except RecursionError:
        return None
    return compile_schema(remaining) if remaining != schema else None

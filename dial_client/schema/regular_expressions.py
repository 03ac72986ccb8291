r"""Checks which regular expressions of schemas providers accept, and removes the others.

JSON Schema uses the regular expressions of ECMA 262. A provider refuses a whole request if it cannot compile one of
them. OpenAI compiles with Python's `re`: its errors are those of the package jsonschema (``'…' is not a 'regex'``),
even for ``\p{L}``, which is valid in ECMA 262. So a pattern is sent to providers only if it is valid in both.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

MAX_PATTERN_CHARS = 10_000
"""The most characters of a pattern. A longer pattern counts as invalid, because compiling it could take seconds."""

_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values may look like schemas, but are not."""
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_PYTHON_ONLY = re.compile(
    r"""(?s: \\[aAZNU]              # the bell, both ends of the text, characters by name or by eight digits
           | \(\?(?!:|=|!|<=|<!)    # flags, comments, conditions, atomic groups, names written (?P<…>)
           | (?:[*+?]|\{\d*,?\d*\})\+  # possessive quantifiers
    )""",
    re.VERBOSE,
)
_SKIPPED = re.compile(r"\\[^aAZNU]|\[\^?\]?(?>(?:\\.|[^\]\\])*)\]", re.DOTALL)
"""Matches escapes that are valid in both syntaxes, and character classes."""


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
    kept = {key: value for key, value in schema.items() if not _is_invalid_pattern(key, value, is_valid)}
    by_name = kept.get("patternProperties")
    if isinstance(by_name, Mapping) and not all(is_valid(name) for name in by_name):
        kept["patternProperties"] = {name: part for name, part in by_name.items() if is_valid(name)}
        kept = {
            key: value for key, value in kept.items() if key not in ("additionalProperties", "unevaluatedProperties")
        }
    return {key: _drop_from_value(key, value, is_valid) for key, value in kept.items()}


def _is_invalid_pattern(key: str, value: Any, is_valid: Callable[[str], bool]) -> bool:
    return key == "pattern" and isinstance(value, str) and not is_valid(value)


def _drop_from_value(key: str, value: Any, is_valid: Callable[[str], bool]) -> Any:
    if key in _NOT_SCHEMAS:
        return value
    if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
        return {name: drop_patterns(part, is_valid) for name, part in value.items()}
    return drop_patterns(value, is_valid)

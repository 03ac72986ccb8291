"""Reads fields of JSON from other programs, which may be absent or have any type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_text(value: Any) -> str:
    """Return a text unchanged, and an empty text for any other value."""
    return value if isinstance(value, str) else ""


def to_list(value: Any) -> list[Any]:
    """Return a list unchanged, and an empty list for any other value."""
    return value if isinstance(value, list) else []


def to_object(value: Any) -> dict[str, Any]:
    """Return an object unchanged, and an empty object for any other value."""
    return value if isinstance(value, dict) else {}


def find_text(value: Any, *names: str) -> str:
    """Return the first of the named members that is a text other than the empty one; empty if there is none."""
    members = value if isinstance(value, Mapping) else {}
    return next((text for name in names if (text := to_text(members.get(name)))), "")


def find_object(value: Any, name: str) -> Mapping[str, Any]:
    """Return the named member if it is an object; an empty object if there is none."""
    member = value.get(name) if isinstance(value, Mapping) else None
    return member if isinstance(member, Mapping) else {}


def expect_text(value: Any) -> str:
    """Return a text unchanged.

    Raises:
        TypeError: The value is not a text.
    """
    if not isinstance(value, str):
        raise TypeError(f"text was expected, not {type(value).__name__}")
    return value


def expect_optional_text(value: Any) -> str | None:
    """Return a text or None unchanged.

    Raises:
        TypeError: The value is neither a text nor None.
    """
    return None if value is None else expect_text(value)


def expect_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; a text is parsed as JSON first, and an empty text is an empty object.

    Raises:
        TypeError: The value is not an object.
        ValueError: The text is not valid JSON.
    """
    if isinstance(value, str):
        value = json.loads(value or "{}")
    if not isinstance(value, Mapping):
        raise TypeError(f"a JSON object was expected, not {type(value).__name__}")
    return dict(value)


def expect_span(value: Any) -> tuple[int, int] | None:
    """Return the start and the end of a span, or None for None.

    Raises:
        TypeError, ValueError: The value is not a pair of numbers.
    """
    if value is None:
        return None
    start, stop = value
    return int(start), int(stop)

"""Fields of JSON that another program wrote: they may be absent, or of any type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_text(value: Any) -> str:
    """Return a text as it is, and an empty text for any other value."""
    return value if isinstance(value, str) else ""


def expect_text(value: Any) -> str:
    """Return a text.

    Raises:
        TypeError: the value is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"text was expected, not {type(value).__name__}")
    return value


def expect_optional_text(value: Any) -> str | None:
    """Return a text, or None for None. Raises as `expect_text`."""
    return None if value is None else expect_text(value)


def expect_object(value: Any) -> dict[str, Any]:
    """Return a JSON object, which may be written as a text.

    Raises:
        TypeError: the value is no object.
        ValueError: the text is no JSON.
    """
    if isinstance(value, str):
        value = json.loads(value or "{}")
    if not isinstance(value, Mapping):
        raise TypeError(f"a JSON object was expected, not {type(value).__name__}")
    return dict(value)


def expect_span(value: Any) -> tuple[int, int] | None:
    """Return two positions, or None for None.

    Raises:
        TypeError, ValueError: the value is not a pair of numbers.
    """
    if value is None:
        return None
    start, stop = value
    return int(start), int(stop)

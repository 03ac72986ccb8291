"""Rewrites results for the embedded model: JSON as lines, and a marked list with its current item named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_JSON_CHARS = 4_000
"""Characters of a JSON text that is written as lines; longer texts are not changed."""
MAX_ITEMS = 40
"""Lines of a list whose current item is named; longer lists are not changed."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")


def reword(text: str) -> str:
    """Return a result in a form that the model can read; only seconds and offsets of times are lost."""
    return _write_json(text) or _name_current(text) or text


def _write_json(text: str) -> str:
    """Return a JSON object or array as lines, "target timezone: Asia/Tokyo"; empty for other texts."""
    if len(text) > MAX_JSON_CHARS:
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return "\n".join(_format_lines(value, "")) if isinstance(value, dict | list) else ""


def _format_lines(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _format_lines(inner, f"{name} {str(key).replace('_', ' ')}".strip())
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for at, inner in enumerate(value, 1):
            yield from _format_lines(inner, f"{name} {at}".strip())
    else:
        written = ", ".join(map(_format_scalar, value)) if isinstance(value, list) else _format_scalar(value)
        yield f"{name}: {written}" if name else written


def _format_scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else _TIME.sub(r"\1 \2", str(value))


def _name_current(text: str) -> str:
    """Return a list with a star before one line, such as Git's branches, as a sentence; empty for other texts."""
    lines = [line for line in text.splitlines() if line.strip()]
    current = [line[2:].strip() for line in lines if line.startswith("* ")]
    if len(current) != 1 or len(lines) > MAX_ITEMS or not all(line.startswith(("  ", "+ ", "* ")) for line in lines):
        return ""
    rest = [line[2:].strip() for line in lines if not line.startswith("* ")]
    return f"the current one is {current[0]}" + (f"; the others are {', '.join(rest)}" if rest else "")

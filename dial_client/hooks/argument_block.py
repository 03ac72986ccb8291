"""Formats a call's arguments for users: line breaks are kept, and invisible characters are escaped.

The format is similar to YAML: each line begins a name or an item, or is indented below one. The web page has the same
format (``serve/page/argument_block.js``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.runtime.safe_text import escape_unseen

MAX_DEPTH = 20
"""The nesting depth from which on a value is shown as one line of JSON."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$-]+\Z")
_NEEDS_QUOTES = re.compile(
    r"""\Z|[\s"'\[\]{}|>&*!%@`#,?-]|[.+]?[0-9]|(?:true|false|null|yes|no|~)\Z|.*(?:\s|:)\Z|.*: """
)


def format_argument(name: str, value: Any) -> list[str]:
    """Return the lines that show one argument, with invisible characters escaped."""
    return [escape_unseen(line) for line in _format_entry(f"{_format_key(name)}:", value, 0)]


def _format_entry(head: str, value: Any, depth: int) -> Iterator[str]:
    """Yield the lines of a value after its `head`: on the same line, or indented below it."""
    if isinstance(value, str):
        first, *lines = _format_text(value)
        yield f"{head} {first}"
        yield from (f"  {line}" for line in lines)
    elif isinstance(value, Mapping | list) and value and depth < MAX_DEPTH:
        yield head
        pairs = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
        for key, item in pairs:
            inner = "-" if key is None else f"{_format_key(str(key))}:"
            yield from (f"  {line}" for line in _format_entry(inner, item, depth + 1))
    else:
        yield f"{head} {_format_json(value)}"


def _format_text(value: str) -> list[str]:
    """Return the lines of a text; the lines of a multi-line text follow a line ``|``."""
    text = value.replace("\r\n", "\n")
    if "\n" in text:
        return ["|", *text.removesuffix("\n").split("\n")]
    return [_format_json(text) if _NEEDS_QUOTES.match(text) else text]


def _format_key(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else _format_json(name)


def _format_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"

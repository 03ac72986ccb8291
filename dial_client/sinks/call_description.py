"""A tool call on one line: its name and its arguments, without ASCII escapes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.messages.message import ToolCallRequest
from dial_client.runtime.safe_text import escape_unseen, to_one_line

MAX_CHARS = 600
"""Maximum characters of arguments that are formatted for one line."""


def describe(call: ToolCallRequest, server: str, tool: str) -> tuple[str, str]:
    """Return the name ``server.tool`` of a call, and its arguments ``city="Berlin"``, each safe and on one line."""
    return describe_name(call, server, tool), describe_arguments(call.arguments)


def describe_name(call: ToolCallRequest, server: str, tool: str) -> str:
    """Return ``server.tool``, safe and on one line; for an unknown tool the name that the model called."""
    return to_one_line(f"{server}.{tool}" if server else call.name, 150)


def describe_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as ``city="Berlin"``, safe and on one line, with invisible characters written out."""
    return to_one_line(escape_unseen(", ".join(_format_arguments(arguments))), MAX_CHARS)


def _format_arguments(arguments: Mapping[str, Any]) -> Iterator[str]:
    size = 0
    for name, value in arguments.items():
        text = f"{name}={json.dumps(value, ensure_ascii=False, default=str)[:MAX_CHARS]}"
        size += len(text)
        yield text
        if size > MAX_CHARS:
            return

"""Parsing of tool calls in responses, and JSON encoding that every parser accepts."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dial_client.messages.message import ToolCallRequest
from dial_client.runtime.text import replace_surrogates

# `dict` first: `Mapping` alone takes three times as long.
_OBJECTS = (dict, Mapping)
_ARRAYS = (list, tuple, set, frozenset)


def parse_call(call_id: str, name: str, arguments: Any) -> ToolCallRequest:
    """Return the tool call that an endpoint sent. Arguments that are not a JSON object are stored in `unreadable`.

    Args:
        call_id: The call's id; if it is empty, a new id is generated.
        name: The tool's name.
        arguments: The arguments as an object or as a JSON text, which may be empty for a tool without parameters.
    """
    call_id = call_id or create_call_id()
    if isinstance(arguments, Mapping):
        return ToolCallRequest(call_id, name, dict(arguments))
    import jiter

    text = arguments if isinstance(arguments, str) else ("" if arguments is None else to_json_text(arguments))
    try:
        value = jiter.from_json(text.encode(), allow_inf_nan=False) if text.strip() else None
    except ValueError:
        value = text
    if value is None or isinstance(value, dict):
        return ToolCallRequest(call_id, name, value or {})
    return ToolCallRequest(call_id, name, {}, unreadable=text)


def make_ids_unique(calls: Sequence[ToolCallRequest]) -> list[ToolCallRequest]:
    """Return the calls of a reply with unique ids: some endpoints send the same id with every call."""
    seen: set[str] = set()
    unique = []
    for call in calls:
        call_id = create_call_id() if call.id in seen else call.id
        seen.add(call_id)
        unique.append(call if call_id == call.id else replace(call, id=call_id))
    return unique


def create_call_id() -> str:
    """Return a new id that every endpoint accepts: nine letters and digits, as Mistral requires."""
    return secrets.token_hex(5)[:9]


def to_json_text(value: Any) -> str:
    """Return JSON text that every parser accepts: no NaN, no lone surrogates, only string keys."""
    return to_json_bytes(value).decode()


def to_json_bytes(value: Any) -> bytes:
    """Return JSON that every parser accepts, in UTF-8."""
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError):
        return to_json(to_plain_json(value), inf_nan_mode="null")


def to_plain_json(value: Any, depth: int = 100) -> Any:
    """Return the value as plain JSON types, which every parser accepts.

    Lone surrogates become U+FFFD. Numbers that are not finite, and values nested deeper than `depth`, become None.
    """
    if isinstance(value, str):
        return value if value.isascii() else replace_surrogates(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, _OBJECTS):
        items = value.items()
        return {replace_surrogates(str(key)): to_plain_json(item, depth - 1) for key, item in items} if depth else None
    if isinstance(value, _ARRAYS):
        return [to_plain_json(item, depth - 1) for item in value] if depth else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return replace_surrogates(str(value))

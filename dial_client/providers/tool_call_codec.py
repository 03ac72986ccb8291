"""A model's calls on a wire: read from what it wrote, and written back into the history."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jiter
from pydantic_core import PydanticSerializationError, to_json

from dial_client.messages import ToolCallRequest

_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_call(call_id: str, name: str, arguments: Any) -> ToolCallRequest:
    """Make a request of what the endpoint sent; a text that is no JSON object is kept as `unreadable`, not repaired.

    Args:
        call_id: as the endpoint gave it; where it gave none, one is made up.
        name: as the endpoint gave it.
        arguments: a JSON text (that of a tool without parameters may be empty), or the object itself.
    """
    call_id = call_id or new_call_id()
    if isinstance(arguments, Mapping):
        return ToolCallRequest(call_id, name, dict(arguments))
    text = arguments if isinstance(arguments, str) else ("" if arguments is None else to_json_text(arguments))
    if not text.strip():
        return ToolCallRequest(call_id, name, {})
    try:
        value = jiter.from_json(text.encode(), allow_inf_nan=False)
    except ValueError:
        return ToolCallRequest(call_id, name, {}, unreadable=text)
    if value is None or isinstance(value, dict):
        return ToolCallRequest(call_id, name, value or {})
    return ToolCallRequest(call_id, name, {}, unreadable=text)


def make_ids_unique(calls: Sequence[ToolCallRequest]) -> list[ToolCallRequest]:
    """Make the ids of one reply differ: an endpoint may give all its calls the same."""
    seen: set[str] = set()
    kept = []
    for call in calls:
        call_id = new_call_id() if call.id in seen else call.id
        seen.add(call_id)
        kept.append(call if call_id == call.id else replace(call, id=call_id))
    return kept


def new_call_id() -> str:
    """Make up an id every endpoint takes: nine letters and digits, as Mistral has them."""
    return secrets.token_hex(5)[:9]


def to_json_text(value: Any) -> str:
    """Write JSON every parser takes: no NaN, no half of a surrogate pair, keys that are strings."""
    return to_json_bytes(value).decode()


def to_json_bytes(value: Any) -> bytes:
    """Write JSON every parser takes, in UTF-8."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError):
        return to_json(to_plain_json(value), inf_nan_mode="null")


def to_plain_json(value: Any, depth: int = 100) -> Any:
    """Give the same value in plain JSON types, such as every parser takes.

    Lone surrogates become U+FFFD; what is no finite number becomes None, and so does what lies deeper than `depth`.
    """
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return (
            {replace_surrogates(str(key)): to_plain_json(item, depth - 1) for key, item in value.items()}
            if depth
            else None
        )
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain_json(item, depth - 1) for item in value] if depth else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else replace_surrogates(str(value))


def replace_surrogates(text: str) -> str:
    """Give the text with every lone surrogate replaced by U+FFFD, and pairs of them put together."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return text

"""Arguments that an approver has changed: what the model is told about them, before the result of the call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dial_client.messages.message import TextPart, ToolCallRequest, ToolCallResult

MAX_CHARS = 4_000
"""Characters of the changed arguments that the model reads."""


def tell_of_changes(result: ToolCallResult, asked: ToolCallRequest, ran: ToolCallRequest) -> ToolCallResult:
    """Return the result of a call, with a note before it where the call ran with other arguments than were asked for.

    Args:
        result: of the call.
        asked: the call as the model asked for it.
        ran: the call as it was made.
    """
    if asked.arguments == ran.arguments:
        return result
    note = f"[The user changed the arguments before the call. It ran with: {_describe(asked.arguments, ran.arguments)}]"
    content = result.content
    if isinstance(content, str):
        return replace(result, content=f"{note}\n{content}")
    return replace(result, content=(TextPart(note), *content))


def _describe(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    text = json.dumps(changed, ensure_ascii=False, default=str)
    removed = [name for name in before if name not in after]
    more = f" … ({len(text) - MAX_CHARS:,} more characters)" if len(text) > MAX_CHARS else ""
    without = f", without {', '.join(removed)}" if removed else ""
    rest = ", and the other arguments as they were" if len(changed) < len(after) else ""
    return f"{text[:MAX_CHARS]}{more}{without}{rest}"

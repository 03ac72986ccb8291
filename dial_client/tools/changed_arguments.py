"""Arguments that an approver has changed: a note before the result of the call tells the model about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dial_client.messages.message import TextPart, ToolCallRequest, ToolCallResult

MAX_CHARS = 4_000
"""Maximum characters of the changed arguments that the model reads."""


def add_note_of_changes(result: ToolCallResult, requested: ToolCallRequest, ran: ToolCallRequest) -> ToolCallResult:
    """Return the result of a call, after a note if the call ran with other arguments than the model requested.

    Args:
        result: The result of the call.
        requested: The call as the model requested it.
        ran: The call as it was made.
    """
    if requested.arguments == ran.arguments:
        return result
    changes = _describe(requested.arguments, ran.arguments)
    note = f"[The user changed the arguments before the call. It ran with: {changes}]"
    content = result.content
    if isinstance(content, str):
        return replace(result, content=f"{note}\n{content}")
    return replace(result, content=(TextPart(note), *content))


def _describe(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    text = json.dumps(changed, ensure_ascii=False, default=str)
    removed = [name for name in before if name not in after]
    omitted = f" … ({len(text) - MAX_CHARS:,} more characters)" if len(text) > MAX_CHARS else ""
    without = f", without {', '.join(removed)}" if removed else ""
    kept_others = ", and the other arguments as they were" if len(changed) < len(after) else ""
    return f"{text[:MAX_CHARS]}{omitted}{without}{kept_others}"

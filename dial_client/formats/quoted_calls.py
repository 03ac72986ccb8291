"""Calls a model prints because it was shown them: that a page says what to call is no reason to call it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from dial_client.formats.stream_parser import ReplyParser, read_reply
from dial_client.messages import Message, Role, TextPart, ToolCallRequest, ToolSpec

_FENCE = "`"


def drop_quoted_calls(
    found: Sequence[ToolCallRequest], messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> list[ToolCallRequest]:
    """Give the printed calls that stand, in whatever dialect, in none of the results and resources the model has read.

    Args:
        found: calls that were found in a reply's text; the wire's own are not doubted.
        messages: what the model was asked with.
        tools: what was on offer.
    """
    if not found:
        return []
    shown = {_key(call) for text in _foreign(messages) for call in _printed_in(text, tools)}
    return [call for call in found if _key(call) not in shown]


def _foreign(messages: Sequence[Message]) -> Iterable[str]:
    """Give the texts that servers wrote."""
    for message in messages:
        if message.role is Role.TOOL:
            yield message.text
        elif not isinstance(message.content, str):
            yield from (part.text for part in message.content if isinstance(part, TextPart) and part.foreign)


def _printed_in(text: str, tools: Sequence[ToolSpec]) -> Iterable[ToolCallRequest]:
    """Read a text as if the model had said it: as it stands, and without the marks that make code of it."""
    for said in dict.fromkeys((text, text.replace(_FENCE, ""))):
        yield from read_reply(ReplyParser(tools, careful=True), said)[0]


def _key(call: ToolCallRequest) -> tuple[str, str]:
    return call.name, json.dumps(dict(call.arguments), sort_keys=True, default=str)

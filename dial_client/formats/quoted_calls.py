"""Calls that a model only quotes: a call that stands in a result must not run when the model repeats it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from dial_client.formats.stream_parser import ReplyParser, read_reply
from dial_client.messages import Message, Role, TextPart, ToolCallRequest, ToolSpec

_BACKTICK = "`"


def drop_quoted_calls(
    calls: Sequence[ToolCallRequest], messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> list[ToolCallRequest]:
    """Return the calls that are, in whatever syntax, in none of the results and resources the model has read.

    Args:
        calls: found in the text of a reply; calls of the API itself need no such check.
        messages: of the request.
        tools: on offer in the request.
    """
    if not calls:
        return []
    quotable = {_key(call) for text in _foreign_texts(messages) for call in _calls_in(text, tools)}
    return [call for call in calls if _key(call) not in quotable]


def _foreign_texts(messages: Sequence[Message]) -> Iterable[str]:
    """Yield the texts that servers wrote."""
    for message in messages:
        if message.role is Role.TOOL:
            yield message.text
        elif not isinstance(message.content, str):
            yield from (part.text for part in message.content if isinstance(part, TextPart) and part.foreign)


def _calls_in(text: str, tools: Sequence[ToolSpec]) -> Iterable[ToolCallRequest]:
    """Yield the calls of a text as if the model had written it: as it is, and without the marks of code."""
    for reply in dict.fromkeys((text, text.replace(_BACKTICK, ""))):
        yield from read_reply(ReplyParser(tools, careful=True), reply)[0]


def _key(call: ToolCallRequest) -> tuple[str, str]:
    return call.name, json.dumps(dict(call.arguments), sort_keys=True, default=str)

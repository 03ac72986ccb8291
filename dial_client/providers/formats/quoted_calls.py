"""Removal of quoted calls: a call in a tool result must not run when the model repeats it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dial_client.messages.message import Message, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.providers.formats.stream_parser import ReplyParser, read_reply

_BACKTICK = "`"
_NAME_KEYS = ("name", "function")
_MARKS = re.compile(r"(?>(?:\\+[nrt]|\W)+)")


def drop_quoted_calls(
    calls: Sequence[ToolCallRequest],
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    anywhere: bool = False,
) -> list[ToolCallRequest]:
    """Return the calls that do not occur, in any syntax, in the tool results and resources that the model has read.

    Args:
        calls: The calls found in the text of a reply; the API's own calls need no such check.
        messages: The messages of the request.
        tools: The tools on offer in the request.
        anywhere: True to search the values of a call anywhere in the results, even without call syntax: a model whose
            fenced calls run can put a fence around any text.
    """
    if not calls:
        return []
    texts = list(_find_foreign_texts(messages))
    quotable = {_build_key(call) for text in texts for call in _find_calls(text, tools)}
    calls = [call for call in calls if _build_key(call) not in quotable]
    if not anywhere:
        return calls
    plain_texts = [_strip_marks(text) for text in texts]
    return [call for call in calls if not any(_is_written_in(text, call) for text in plain_texts)]


def _find_foreign_texts(messages: Sequence[Message]) -> Iterable[str]:
    """Yield the texts that MCP servers wrote."""
    for message in messages:
        if message.role is Role.TOOL:
            yield message.text
        elif not isinstance(message.content, str):
            yield from (part.text for part in message.content if isinstance(part, TextPart) and part.foreign)


def _find_calls(text: str, tools: Sequence[ToolSpec]) -> Iterable[ToolCallRequest]:
    """Yield the calls that a reply with this text would contain, with and without the backticks of code."""
    for reply in dict.fromkeys((text, text.replace(_BACKTICK, ""))):
        yield from read_reply(ReplyParser(tools, careful=True), reply)[0]


def _is_written_in(text: str, call: ToolCallRequest) -> bool:
    """Return True if a stripped text names the tool as a call does, and contains all values of the call."""
    name = _strip_marks(call.name)
    is_named = any(f"{key}{name}" in text for key in _NAME_KEYS)
    return is_named and all(_strip_marks(value) in text for value in _find_scalars(call.arguments))


def _strip_marks(text: str) -> str:
    """Return a text without escapes, quotation marks, punctuation and white space."""
    return _MARKS.sub("", text).casefold()


def _find_scalars(value: Any) -> Iterable[str]:
    """Yield the strings and numbers in a JSON value, at any depth, as JSON."""
    remaining = [value]
    while remaining:
        part = remaining.pop()
        if isinstance(part, Mapping):
            remaining.extend(part.values())
        elif isinstance(part, list | tuple):
            remaining.extend(part)
        elif isinstance(part, str):
            yield json.dumps(part, ensure_ascii=False)
        elif part is not None and not isinstance(part, bool):
            yield json.dumps(part)


def _build_key(call: ToolCallRequest) -> tuple[str, str]:
    return call.name, json.dumps(dict(call.arguments), sort_keys=True, default=str)

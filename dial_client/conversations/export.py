"""Exports of a conversation: JSON, which can be imported again, and Markdown for people.

The JSON is ``{"format": "dial-conversation", "version": 1, "id", "title", "created_at", "updated_at", "messages"}``;
times are in ISO 8601 and UTC, messages in the form of `Message.to_dict`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dial_client.conversations.history_edits import detach
from dial_client.errors import ConfigError
from dial_client.messages.citations import format_sources, insert_markers
from dial_client.messages.message import Content, Message, Role, TextPart, describe
from dial_client.stores.conversation_store import Conversation
from dial_client.text.safe_text import one_line, safe

_FORMAT = "dial-conversation"
_VERSION = 1

_HEADINGS = {Role.SYSTEM: "Instructions", Role.USER: "User", Role.ASSISTANT: "Assistant"}


def to_dict(conversation: Conversation) -> dict[str, Any]:
    """Return the JSON object that the module describes."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "id": conversation.id,
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "updated_at": conversation.updated_at.isoformat(),
        "messages": [message.to_dict() for message in conversation.messages],
    }


def to_json(conversation: Conversation) -> str:
    """Return the JSON text that `from_json` reads."""
    return json.dumps(to_dict(conversation), indent=2) + "\n"


def to_markdown(conversation: Conversation) -> str:
    """Return Markdown: a heading for each message, calls and results in blocks of code."""
    parts = [f"# {one_line(conversation.title, 200) or 'Conversation'}"]
    for message in conversation.messages:
        content = message.content
        text = _text(insert_markers(content, message.citations) if isinstance(content, str) else content)
        if message.role is Role.TOOL:
            parts.append(
                f"**{_code(message.name or 'tool')}{' failed' if message.is_error else ''}:**\n\n{_block(text)}"
            )
            continue
        parts.append(f"## {_HEADINGS[message.role]}")
        if text.strip():
            parts.append("\n".join([text.strip(), *_list_sources(message)]))
        for call in message.tool_calls:
            arguments = json.dumps(dict(call.arguments), indent=2, ensure_ascii=False)
            parts.append(f"**Calls {_code(call.name)}:**\n\n{_block(arguments, 'json')}")
    return "\n\n".join(parts) + "\n"


def _list_sources(message: Message) -> list[str]:
    """Return the lines of the numbered sources of a message, with an empty line before them."""
    lines = format_sources(message.citations)
    return ["", "Sources:", "", *(f"- {line}" for line in lines)] if lines else []


FORMS: Mapping[str, Callable[[Conversation], str]] = {"json": to_json, "markdown": to_markdown}
"""The forms of an export."""


def from_json(text: str) -> tuple[str, tuple[Message, ...]]:
    """Return title and messages of an export, or of a list of messages, which has no title.

    Raises:
        ConfigError: the text is neither.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is no JSON: {error}", hint="give an exported conversation") from None
    if isinstance(data, list):
        data = {"messages": data}
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise ConfigError("this is no conversation", hint='expected an object with "messages", or a list of them')
    if data.get("format", _FORMAT) != _FORMAT or data.get("version", _VERSION) != _VERSION:
        raise ConfigError(
            "this conversation is of another form", hint=f"expected {_FORMAT} of version {_VERSION}, or a list"
        )
    title = data.get("title", "")
    messages = (_message(at, item) for at, item in enumerate(data["messages"]))
    # The settings of a conversation are its owner's: none come in a file.
    return title if isinstance(title, str) else "", tuple(message for message in messages if message.entry is None)


def _message(at: int, data: Any) -> Message:
    try:
        # The result in an app is data of its server: a file may have any other.
        return detach(replace(Message.from_dict(data), app=None))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"messages[{at}]: {error}") from None


def _text(content: Content) -> str:
    if isinstance(content, str):
        return safe(content)
    return safe("\n\n".join(part.text if isinstance(part, TextPart) else f"[{describe(part)}]" for part in content))


def _code(name: str) -> str:
    return f"`{one_line(name, 100).replace('`', '')}`"


def _block(text: str, language: str = "") -> str:
    """Return a block of code whose fence is longer than any fence in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{safe(text)}\n{fence}"

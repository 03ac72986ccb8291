"""Exports of a conversation: JSON, which can be imported again, and Markdown for people.

The JSON is ``{"format": "dial-conversation", "version": 1, "id", "title", "created_at", "updated_at", "messages"}``.
Times are in ISO 8601 and UTC; messages have the form of `Message.to_dict`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from dial_client.conversations.history import detach
from dial_client.messages.citations import format_sources, insert_markers
from dial_client.messages.errors import ConfigError
from dial_client.messages.late_result import read_late_result
from dial_client.messages.message import Content, Message, Role, TextPart, describe
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.stores.conversation_store import Conversation

_FORMAT = "dial-conversation"
_VERSION = 1

_HEADINGS = {Role.SYSTEM: "Instructions", Role.USER: "User", Role.ASSISTANT: "Assistant"}


def to_json(conversation: Conversation) -> str:
    """Return the export in JSON, which the docstring of this module describes, and `from_json` reads."""
    exported = {
        "format": _FORMAT,
        "version": _VERSION,
        "id": conversation.id,
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "updated_at": conversation.updated_at.isoformat(),
        # What programs have kept may be more than the conversation shows, and is of use on this machine only.
        "messages": [message.without_kept().to_dict() for message in conversation.messages],
    }
    return json.dumps(exported, indent=2) + "\n"


def to_markdown(conversation: Conversation) -> str:
    """Return the export in Markdown: a heading for each message, calls and results in code blocks."""
    parts = [f"# {to_one_line(conversation.title, 200) or 'Conversation'}"]
    for message in conversation.messages:
        content = message.content
        text = _format_text(insert_markers(content, message.citations) if isinstance(content, str) else content)
        if message.role is Role.TOOL:
            outcome = " failed" if message.is_error else ""
            parts.append(f"**{_format_code(message.name or 'tool')}{outcome}:**\n\n{_format_block(text)}")
            continue
        if (late := read_late_result(message)) is not None:
            outcome = "" if late.success else " failed"
            called = f"{_format_code(late.name or 'tool')}{outcome}, in the background"
            parts.append(f"**{called}:**\n\n{_format_block(_format_text(late.content))}")
            continue
        parts.append(f"## {_HEADINGS[message.role]}")
        if text.strip():
            sources = [f"- {line}" for line in format_sources(message.citations)]
            parts.append("\n".join([text.strip(), *(["", "Sources:", "", *sources] if sources else [])]))
        for call in message.tool_calls:
            arguments = json.dumps(dict(call.arguments), indent=2, ensure_ascii=False)
            parts.append(f"**Calls {_format_code(call.name)}:**\n\n{_format_block(arguments, 'json')}")
    return "\n\n".join(parts) + "\n"


# The formats of an export, each with its function.
FORMS: Mapping[str, Callable[[Conversation], str]] = {"json": to_json, "markdown": to_markdown}


def from_json(text: str) -> tuple[str, tuple[Message, ...]]:
    """Return the title and messages of an export in JSON; a plain list of messages has an empty title.

    Raises:
        ConfigError: The text is neither an export nor a list of messages.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is not JSON: {error}", hint="pass an exported conversation") from None
    if isinstance(data, list):
        data = {"messages": data}
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise ConfigError("this is not a conversation", hint='expected an object with "messages", or a list of them')
    if data.get("format", _FORMAT) != _FORMAT or data.get("version", _VERSION) != _VERSION:
        raise ConfigError(
            "this conversation has another format", hint=f"expected {_FORMAT} of version {_VERSION}, or a list"
        )
    title = data.get("title", "")
    messages: list[Message] = []
    for index, item in enumerate(data["messages"]):
        try:
            # Apps are not imported: the file's author may have put any data into an app's result.
            messages.append(detach(replace(Message.from_dict(item), app=None)))
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"messages[{index}]: {error}") from None
    # Entries such as settings are not imported: the importing user did not choose them.
    return title if isinstance(title, str) else "", tuple(message for message in messages if message.entry is None)


def _format_text(content: Content) -> str:
    if isinstance(content, str):
        return sanitize(content)
    return sanitize("\n\n".join(part.text if isinstance(part, TextPart) else f"[{describe(part)}]" for part in content))


def _format_code(name: str) -> str:
    return f"`{to_one_line(name, 100).replace('`', '')}`"


def _format_block(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{sanitize(text)}\n{fence}"

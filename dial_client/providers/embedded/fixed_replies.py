"""Replies that are composed instead of generated, for cases in which the embedded model would invent an answer.

The model invents after a failed call, if an argument is missing, and if it cannot look up what the question asks about
the present. The composed replies contain only texts that the user wrote or that calls returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from dial_client.messages.message import Message, ToolSpec

MAX_ERROR_CHARS = 400
"""Characters to quote from an error."""
MAX_RESULT_CHARS = 1_500
"""Characters to quote from an earlier result."""

NOT_CONNECTED = (
    "I cannot know that. It needs something I can look at or look up, and no MCP server is connected that could. "
    "Run `dial-chat init` to connect one that can, and ask again."
)
"""The reply to a question about the present if no tools are offered."""
NO_TOOL_FITS = (
    "I cannot know that: it needs something I can look at or look up, and none of the connected tools can. "
    "Run `dial-chat init` to connect an MCP server that can, and ask again."
)
"""The reply to a question about the present if tools are offered and none of them helps."""

_FAILED = "I could not find that out: the call of "
_NOT_ALLOWED = "I could not do that: the call of "
_ARGUMENT = re.compile(r"I can use [\w.-]+ for that, but you have not said its ")
_PREFACE = re.compile(r"^(?:error executing tool [\w.-]+: |error: )+", re.IGNORECASE)


def compose_failed_call(name: str, error: str, found: Iterable[str] = ()) -> str:
    """Compose the reply after a failed call.

    Args:
        name: The tool's name.
        error: The error that the tool returned.
        found: The results of other calls of the turn.
    """
    reason = _shorten(_PREFACE.sub("", error.strip()), MAX_ERROR_CHARS)
    return append_results(f"{_FAILED}{name} failed. It says: {reason or 'nothing'}", found)


def compose_denied_call(name: str, found: Iterable[str] = ()) -> str:
    """Compose the reply after a call that was not allowed."""
    return append_results(f"{_NOT_ALLOWED}{name} was not allowed.", found)


def append_results(reply: str, found: Iterable[str]) -> str:
    """Return a reply, followed by the results of other calls of the turn."""
    results = "\n".join(_shorten(text.strip(), MAX_RESULT_CHARS) for text in found if text.strip())
    return f"{reply}\n\nWhat was found before that:\n{results}" if results else reply


def compose_missing_argument(tool: ToolSpec, names: Sequence[str]) -> str:
    """Compose a question to the user for arguments that do not occur in the conversation."""
    properties = tool.input_schema.get("properties", {})
    arguments = " and ".join(_describe_argument(name, properties.get(name)) for name in names)
    return f"I can use {tool.name} for that, but you have not said its {arguments}. Which should I use?"


def _describe_argument(name: str, schema: object) -> str:
    about = str(schema.get("description") or "") if isinstance(schema, Mapping) else ""
    about = about.split(". ", maxsplit=1)[0].rstrip(".")
    return f"{name} ({about})" if about and len(about) <= 80 else name


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars].rstrip()}…"


def is_fixed(message: Message) -> bool:
    """Return True if an assistant's message is one of these replies."""
    text = message.text
    is_composed = text.startswith((_FAILED, _NOT_ALLOWED)) or _ARGUMENT.match(text) is not None
    return is_composed or text in (NOT_CONNECTED, NO_TOOL_FITS)

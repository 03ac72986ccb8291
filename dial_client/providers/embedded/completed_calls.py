"""The calls of a turn that have a result, and the pieces of a result that may be arguments of the next call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dial_client.messages.message import NOT_ALLOWED, Message, Role, ToolCallRequest

MAX_PIECES = 40
"""Pieces of a result that may be arguments of a call."""
MAX_RESULT_CHARS = 4_000
"""Characters of a result that are searched for pieces."""

_PIECE = re.compile(r"(?:[A-Z][\w'&-]*(?: [A-Z][\w'&-]*){1,4})|[^\s\"',;:(){}\[\]]{2,200}")

_ROOT = re.compile(r"[/~]|[A-Za-z]:\\")
_FILE_NAME = re.compile(r"(?:\[(?:FILE|DIR)\] )?([\w.@+-]+)")


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A call of this turn and its result."""

    call: ToolCallRequest
    failed: bool
    denied: bool
    next_tool: str
    """The tool to be called after this one."""
    result: str


def find_completed_calls(messages: Sequence[Message], provider_name: str) -> list[CompletedCall]:
    """Return the calls that have a result since the last message of the user.

    Args:
        messages: The conversation.
        provider_name: The provider whose echoes name the tool to be called next.
    """
    completed: list[CompletedCall] = []
    calls: dict[str, tuple[ToolCallRequest, str]] = {}
    for message in messages:
        if message.role is Role.USER:
            completed, calls = [], {}
        elif message.role is Role.ASSISTANT:
            next_tool = _read_next_tool(message, provider_name)
            calls |= {call.id: (call, next_tool) for call in message.tool_calls}
        elif message.role is Role.TOOL and message.tool_call_id in calls:
            call, next_tool = calls[message.tool_call_id]
            denied = message.text.startswith(NOT_ALLOWED)
            completed.append(CompletedCall(call, message.is_error, denied, next_tool, message.text))
    return completed


def _read_next_tool(message: Message, provider_name: str) -> str:
    echo = message.echo.data if message.echo is not None and message.echo.provider == provider_name else None
    return str(echo.get("then", "")) if isinstance(echo, Mapping) else ""


def find_new_pieces(messages: Sequence[Message], conversation: str) -> tuple[str, ...]:
    """Return the pieces of the last result that do not occur in the conversation before it.

    Args:
        messages: The conversation.
        conversation: The conversation's texts, joined.
    """
    last = next((message for message in reversed(messages) if message.role is not Role.ASSISTANT), None)
    if last is None or last.role is not Role.TOOL or last.is_error:
        return ()
    before = conversation[: conversation.rfind(last.text)].lower()
    pieces = dict.fromkeys(piece.strip(" .") for piece in _PIECE.findall(last.text[:MAX_RESULT_CHARS]))
    fresh = (piece for piece in pieces if piece and piece.lower() not in before)
    return (*_find_listed_paths(messages, last), *fresh)[:MAX_PIECES]


def _find_listed_paths(messages: Sequence[Message], result: Message) -> Iterator[str]:
    """Yield the paths of the files in the result, if the call listed a folder."""
    calls = (call for message in messages for call in message.tool_calls if call.id == result.tool_call_id)
    folder = next((v for call in calls for v in call.arguments.values() if isinstance(v, str) and _ROOT.match(v)), "")
    separator = "\\" if "\\" in folder else "/"
    lines = [line.strip() for line in result.text[:MAX_RESULT_CHARS].splitlines()]
    names = [found[1] for line in lines if (found := _FILE_NAME.fullmatch(line))]
    if folder and len(names) == len(lines):
        yield from (f"{folder.rstrip(separator)}{separator}{name}" for name in names)

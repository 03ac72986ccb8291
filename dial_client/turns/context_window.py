"""Fits a conversation into the model's context window: drops whole old turns, then shortens long tool results.

Only the request is shortened, never the conversation. While the conversation grows, several requests in a row start
with the same message, so that prompt caches can be used.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from dial_client.messages.message import Message, Role, TextPart, ToolSpec
from dial_client.messages.model import Instruction, ModelRequest
from dial_client.messages.token_usage import Usage
from dial_client.tools import result_content

NOTE = "the conversation is too long for this model: it is sent without its oldest turns, or with shortened results"

# UTF-8 bytes per token: a conservative estimate. English text has about four, other scripts have about three.
_BYTES_PER_TOKEN = 3
# Bytes counted for an image or a document: its number of tokens hardly depends on its size in bytes.
_PART_BYTES = 6_000
# Bytes counted for a message in addition to its content.
_MESSAGE_BYTES = 16
_MIN_RESULT_CHARS = 400


class ContextWindow:
    """The context window of a model; shared by all its turns.

    Args:
        tokens: The size of the window in tokens, for request and reply together; None if it is unknown.
    """

    def __init__(self, tokens: int | None = None) -> None:
        self.tokens = tokens
        # An eighth of the window is reserved for the reply.
        self._max_bytes = None if tokens is None else tokens * _BYTES_PER_TOKEN * 7 // 8
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], instructions: Sequence[Instruction] = ()
    ) -> tuple[Message, ...]:
        """Return as many of the latest messages as fit; the same tuple object if all of them fit."""
        if self._max_bytes is None:
            return messages
        room = max(self._max_bytes - self._measure_tools(tools), self._max_bytes // 4)
        room -= _measure_instructions(instructions)
        # A summary replaces all messages before it, so it is the last message to drop.
        head = messages[:1] if messages and messages[0].replaces is not None else ()
        if head and (size := _measure_message(head[0])) < room // 2 and len(messages) > 1:
            kept = _fit(messages[1:], room - size)
            return messages if len(kept) == len(messages) - 1 and kept == messages[1:] else (*head, *kept)
        return _fit(messages, room)

    def estimate_fill(
        self, messages: Sequence[Message], tools: tuple[ToolSpec, ...], tokens: int | None = None
    ) -> float:
        """Return a conservative estimate of the part of the window that a conversation fills; 0 if no size is known.

        Args:
            messages: The conversation.
            tools: The offered tools.
            tokens: The size in tokens to assume if the window's size is unknown.
        """
        max_bytes = self._max_bytes or (tokens or 0) * _BYTES_PER_TOKEN
        if not max_bytes:
            return 0.0
        room = max(max_bytes - self._measure_tools(tools), max_bytes // 4)
        return sum(map(_measure_message, messages)) / room

    def record_refusal(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], instructions: Sequence[Instruction] = ()
    ) -> None:
        """Record that a request of this size was refused as too long; later requests are smaller."""
        sent = self._measure_tools(tools) + _measure_instructions(instructions) + sum(map(_measure_message, messages))
        self._max_bytes = sent * 3 // 4

    def _measure_tools(self, tools: tuple[ToolSpec, ...]) -> int:
        if self._tools[0] is not tools:
            self._tools = (tools, sum(measure_tool(tool) for tool in tools if not tool.deferred))
        return self._tools[1]


def estimate_instruction_tokens(instruction: Instruction) -> int:
    """Return a conservative estimate of the tokens of an instruction."""
    return _to_tokens(_measure_instructions((instruction,)))


def estimate_tool_tokens(tool: ToolSpec) -> int:
    """Return a conservative estimate of the tokens of a tool's definition."""
    return _to_tokens(measure_tool(tool))


def estimate_message_tokens(message: Message) -> int:
    """Return a conservative estimate of the tokens of a message."""
    return _to_tokens(_measure_message(message))


def estimate_usage(request: ModelRequest, reply: str) -> Usage:
    """Return a conservative estimate of what a request has used, whose reply is a text so far."""
    tokens = (
        *map(estimate_instruction_tokens, request.instructions),
        *map(estimate_tool_tokens, request.tools),
        *map(estimate_message_tokens, request.messages),
    )
    return Usage(sum(tokens), _to_tokens(len(reply.encode())))


def _to_tokens(size: int) -> int:
    return -(-size // _BYTES_PER_TOKEN)


def _fit(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    sizes = [_measure_message(message) for message in messages]
    start = _find_start(messages, sizes, room)
    if start == 0 and sum(sizes) <= room:
        return messages
    kept = messages[start:]
    return _cut_results(kept, room) if sum(sizes[start:]) > room else kept


def _find_start(messages: Sequence[Message], sizes: Sequence[int], room: int) -> int:
    """Return the index of the first message to send.

    Messages are added in order: when a message does not fit, the oldest turns are dropped until half of the room is
    free. The index therefore does not change with every message.
    """
    start = size = 0
    turns: deque[int] = deque()
    for index, message in enumerate(messages):
        if message.is_question and index:
            turns.append(index)
        size += sizes[index]
        if size <= room:
            continue
        while turns and size > room // 2:
            size -= sum(sizes[start : turns[0]])
            start = turns.popleft()
    return start


def _cut_results(messages: Sequence[Message], room: int) -> tuple[Message, ...]:
    """Return the messages with their longest tool results cut to equal length, so that all messages fit if possible."""
    fixed = sum(_measure_message(message) for message in messages if message.role is not Role.TOOL)
    lengths = sorted(len(message.text) for message in messages if message.role is Role.TOOL)
    share = _share(lengths, max(0, room - fixed))
    return tuple(
        replace(message, content=result_content.cut(message.content, share))
        if message.role is Role.TOOL and len(message.text) > share
        else message
        for message in messages
    )


def _share(lengths: Sequence[int], room: int) -> int:
    """Return the maximum characters of each result; long results share what short results do not use.

    Args:
        lengths: The lengths of the results in characters, in ascending order.
        room: The characters available for all results.
    """
    for index, length in enumerate(lengths):
        each = room // (len(lengths) - index)
        if length > each:
            return max(each, _MIN_RESULT_CHARS)
        room -= length
    return _MIN_RESULT_CHARS


def measure_tool(tool: ToolSpec) -> int:
    """Return the bytes of a tool's definition, which requests repeat."""
    return _count_bytes(f"{tool.name}{tool.description}{json.dumps(tool.input_schema)}")


def _measure_instructions(instructions: Sequence[Instruction]) -> int:
    return sum(_MESSAGE_BYTES + _count_bytes(instruction.text) for instruction in instructions)


def _measure_message(message: Message) -> int:
    calls = sum(
        _count_bytes(call.name) + _count_bytes(json.dumps(call.arguments, default=str)) for call in message.tool_calls
    )
    if isinstance(message.content, str):
        return _MESSAGE_BYTES + calls + _count_bytes(message.content)
    parts = (_count_bytes(part.text) if isinstance(part, TextPart) else _PART_BYTES for part in message.content)
    return _MESSAGE_BYTES + calls + sum(parts)


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))

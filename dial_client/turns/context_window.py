"""A conversation made to fit the model's context window: old turns are left out whole, then long results are cut.

Only what is sent is changed, never the conversation. What is left out depends on what came before it alone, and is left
out again when more has been said: the beginning of what is sent stays the same for a while, as prompt caches want it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from dial_client.messages import Message, Role, TextPart, ToolSpec
from dial_client.model import Instruction
from dial_client.tools import result_content

NOTE = "the conversation is longer than this model can take: it is sent without its oldest turns, or with results cut"

_BYTES_PER_TOKEN = 3
"""Of UTF-8: an estimate on the safe side. English has about four, other scripts about three."""
_PART_BYTES = 6_000
"""What an image or a document is counted as: its tokens have little to do with its size."""
_MESSAGE_BYTES = 16
"""What the frame of a message is counted as."""
_MIN_RESULT_CHARS = 400


class ContextWindow:
    """What is known of a model's context window; shared by all its turns.

    Args:
        tokens: of a whole exchange; None where nobody has said.
    """

    def __init__(self, tokens: int | None = None) -> None:
        self.tokens = tokens
        # An eighth is left to the reply.
        self._most = None if tokens is None else tokens * _BYTES_PER_TOKEN * 7 // 8
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], instructions: Sequence[Instruction] = ()
    ) -> tuple[Message, ...]:
        """Return as many of the latest messages as fit; the very same tuple where nothing has to be left out."""
        if self._most is None:
            return messages
        room = max(self._most - self._size_of_tools(tools), self._most // 4)
        return _fit(messages, room - _size_of_instructions(instructions))

    def refused(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], instructions: Sequence[Instruction] = ()
    ) -> None:
        """Learn from a refusal of these messages, tools and instructions: less than that has to be sent."""
        sent = self._size_of_tools(tools) + _size_of_instructions(instructions) + sum(map(_size, messages))
        self._most = sent * 3 // 4

    def _size_of_tools(self, tools: tuple[ToolSpec, ...]) -> int:
        if self._tools[0] is not tools:
            shown = (tool for tool in tools if not tool.deferred)
            written = (f"{tool.name}{tool.description}{json.dumps(tool.input_schema)}" for tool in shown)
            self._tools = (tools, sum(map(_bytes, written)))
        return self._tools[1]


def _fit(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    sizes = [_size(message) for message in messages]
    start = _start(messages, sizes, room)
    if start == 0 and sum(sizes) <= room:
        return messages
    kept = messages[start:]
    return _with_results_cut(kept, room) if sum(sizes[start:]) > room else kept


def _start(messages: Sequence[Message], sizes: Sequence[int], room: int) -> int:
    """Give where to begin: behind as many whole turns as had to go when there was no room, and half the room was freed.

    It is found by going through the conversation as it grew, so that it stays where it is while there is room.
    """
    start = size = 0
    turns: deque[int] = deque()
    for at, message in enumerate(messages):
        if message.role is Role.USER and at:
            turns.append(at)
        size += sizes[at]
        if size <= room:
            continue
        while turns and size > room // 2:
            size -= sum(sizes[start : turns[0]])
            start = turns.popleft()
    return start


def _with_results_cut(messages: Sequence[Message], room: int) -> tuple[Message, ...]:
    """Cut the longest results of tools until the messages fit, or none is longer than a few lines."""
    fixed = sum(_size(message) for message in messages if message.role is not Role.TOOL)
    lengths = sorted(len(message.text) for message in messages if message.role is Role.TOOL)
    share = _share(lengths, max(0, room - fixed))
    return tuple(
        replace(message, content=result_content.cut(message.content, share))
        if message.role is Role.TOOL and len(message.text) > share
        else message
        for message in messages
    )


def _share(lengths: Sequence[int], room: int) -> int:
    """Give the characters one result may have, so that all of them take the room; short ones leave theirs to others.

    Args:
        lengths: of the results, sorted.
        room: characters for all of them.
    """
    for at, length in enumerate(lengths):
        each = room // (len(lengths) - at)
        if length > each:
            return max(each, _MIN_RESULT_CHARS)
        room -= length
    return _MIN_RESULT_CHARS


def _size_of_instructions(instructions: Sequence[Instruction]) -> int:
    return sum(_MESSAGE_BYTES + _bytes(instruction.text) for instruction in instructions)


def _size(message: Message) -> int:
    calls = sum(_bytes(call.name) + _bytes(json.dumps(call.arguments, default=str)) for call in message.tool_calls)
    if isinstance(message.content, str):
        return _MESSAGE_BYTES + calls + _bytes(message.content)
    parts = (_bytes(part.text) if isinstance(part, TextPart) else _PART_BYTES for part in message.content)
    return _MESSAGE_BYTES + calls + sum(parts)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))

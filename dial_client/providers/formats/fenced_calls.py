"""Parses a call in the code fence at the end of a reply, as small models write it without a better template."""

from __future__ import annotations

import re
from collections.abc import Generator

from dial_client.messages.message import ToolCallRequest
from dial_client.providers.formats import bare_calls
from dial_client.providers.formats.json_calls import decode, ends_in_string, to_calls
from dial_client.providers.formats.special_tokens import Markers
from dial_client.providers.formats.stream_buffer import BoundedText, Lookahead, StreamBuffer, TextSink
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.schema.json_repair import Unreadable

FENCE = "```"
MAX_FENCES_IN_STRINGS = 8
"""The most fences within the strings of one call; code with more fences counts as text."""

_FENCE_END = Markers(FENCE)
_OBJECT = re.compile(r"[\w-]{0,32}+\s*+\{")


class FencedCallParser:
    """Parses the code fences of a reply to find a call at its end.

    A fenced call counts only at the end of a reply. A fenced call with text after it is an example. After an example,
    no further fenced call counts, because it may be an example too.

    Args:
        offer: The tools on offer.
        buffer: The text of the reply.
    """

    def __init__(self, offer: OfferedTools, buffer: StreamBuffer) -> None:
        self._offer = offer
        self._buffer = buffer
        self._is_example_seen = False

    def parse(self, sink: TextSink) -> Generator[None, None, ToolCallRequest | None]:
        """Return the call in the code after a fence; None if there is no call, after `sink` has received the code."""
        if not (yield from self._buffer.look_ahead(self._may_begin)):
            sink(FENCE)
            sink((yield from self._buffer.read_until(_FENCE_END, sink)))
            return None
        code = _HeldCode(sink)
        end = yield from self._read_code(code)
        call = self._to_call(code.text) if end and code.is_held else None
        if call is not None:
            has_text_behind = yield from self._buffer.look_ahead(lambda text: None if text.isspace() else True)
            if not has_text_behind and not self._is_example_seen:
                return call
            self._is_example_seen = True
        code.release()
        sink(end)
        return None

    def _may_begin(self, text: str) -> Lookahead:
        return bare_calls.may_begin(FENCE + text, self._offer)

    def _read_code(self, code: _HeldCode) -> Generator[None, None, str]:
        """Read the code, and return the fence after it. A fence within a string of the code belongs to the code."""
        for _ in range(MAX_FENCES_IN_STRINGS):
            end = yield from self._buffer.read_until(_FENCE_END, code.add)
            if not end or not code.is_held or not ends_in_string(code.text):
                return end
            code.add(end)
        return (yield from self._buffer.read_until(_FENCE_END, code.add))

    def _to_call(self, code: str) -> ToolCallRequest | None:
        """Return the call if the code is one JSON object with the exact name of a tool and valid arguments."""
        if not _OBJECT.match(code):
            return None
        decoded = decode(FENCE + code, lenient=False)
        if not isinstance(decoded.value, dict) or decoded.rest.strip():
            return None
        try:
            calls = to_calls(decoded.value)
        except Unreadable:
            return None
        if len(calls) != 1 or self._offer.find_name(calls[0].name) != calls[0].name:
            return None
        return next(iter(self._offer.match_calls(calls)), None)


class _HeldCode:
    """Code that is held back while it may be a call. Code too long for a call is passed to the sink."""

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink
        self._held = BoundedText()
        self._held.add(FENCE)
        self.is_held = True
        """True if no part of the code has been passed to the sink."""

    @property
    def text(self) -> str:
        """The code after the fence that is held back."""
        return self._held.text[len(FENCE) :]

    def add(self, text: str) -> None:
        """Hold a piece of code back, or pass it to the sink."""
        if not self.is_held:
            self._sink(text)
            return
        self._held.add(text)
        if self._held.is_too_long:
            self.release()

    def release(self) -> None:
        """Pass the held code to the sink, and later all further code."""
        if self.is_held:
            self._sink(self._held.text)
            self.is_held = False

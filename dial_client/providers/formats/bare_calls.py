"""Calls without markers: replies that contain only calls, in JSON or Python, and a call in the code fence at the end.

Small models write a call in a code fence if their chat template does not teach them a better form.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from itertools import product

from dial_client.messages.message import ToolCallRequest
from dial_client.providers.formats.call_readers import (
    FoundCalls,
    decode,
    ends_in_string,
    parse_only_json_calls,
    parse_python,
    to_calls,
)
from dial_client.providers.formats.stream_buffer import BoundedText, Lookahead, Markers, StreamBuffer, TextSink
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.schema.tool_arguments import Unreadable

_LANGUAGES = ("", "json", "python", "tool_call", "tool_code", "xml")
_WRAPPERS = ("", "functools", "<tool_call>", "<tool_calls>")
_PREFIXES = tuple(
    fence + wrapper for fence, wrapper in product(("", *(f"```{name}" for name in _LANGUAGES)), _WRAPPERS)
)
_LONGEST_FIRST = tuple(sorted(_PREFIXES, key=len, reverse=True))
_KEYS = (
    '"arguments":',
    '"parameters":',
    "'arguments':",
    "'parameters':",
    '"type":"function"',
    '"function":{',
    '"tool_calls":[',
)
_NAMES = ('"name":"', '"function":"', "'name':'", "'function':'", 'name:"', "name:'")
_BRACES = ("{", "[{")
_ANY_CALL = tuple(brace + key for brace, key in product(_BRACES, _KEYS))
_NAMED_CALL = tuple(brace + name for brace, name in product(_BRACES, _NAMES))

_START = re.compile(r"(?:```[\w-]{0,32}+\s*+)?(?:functools)?")
_PYTHON = re.compile(r"\s*+\[\s*+[^\s{\[\"']")


def may_begin(text: str, offer: OfferedTools, *, is_requested: bool = False) -> Lookahead:
    """Return True if a reply that begins with this text may contain only calls; None if more text is needed to decide.

    True and False are final for every continuation of the text, so the result does not depend on how the reply was
    split.

    Args:
        text: The beginning of the reply.
        offer: The tools on offer.
        is_requested: True if the prompt asks for calls as text; then an object with any tool name may be a call.
    """
    squeezed = "".join(text.split())
    if not squeezed:
        return None
    if not offer or squeezed[0] not in "{[`f":
        return False
    before = next(prefix for prefix in _LONGEST_FIRST if squeezed.startswith(prefix))
    answer = _is_opening(squeezed[len(before) :], offer, is_requested=is_requested)
    is_part = any(prefix.startswith(squeezed) for prefix in _PREFIXES)
    return None if answer is False and is_part else answer


def _is_opening(squeezed: str, offer: OfferedTools, *, is_requested: bool) -> Lookahead:
    if squeezed.startswith(_ANY_CALL) or (is_requested and squeezed.startswith(_NAMED_CALL)):
        return True
    for opening in _NAMED_CALL:
        if squeezed.startswith(opening):
            return offer.begins_with_name(squeezed[len(opening) :])
    if any(opening.startswith(squeezed) for opening in (*_ANY_CALL, *_NAMED_CALL)):
        return None
    return offer.begins_with_name(squeezed[1:]) if squeezed[0] == "[" else False


def read(text: str) -> FoundCalls:
    """Return the calls of a reply that contains only calls.

    Raises:
        Unreadable: The reply contains anything else.
    """
    text = text.strip()
    start = _START.match(text)
    inner = text[start.end() :] if start else text
    if not _PYTHON.match(inner):
        return parse_only_json_calls(inner)
    found = parse_python(inner)
    if found.rest.replace("```", "").strip():
        raise Unreadable("there is more than calls")
    return FoundCalls(found.calls)


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
        return may_begin(FENCE + text, self._offer)

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
        # The exact name: a fence is often an example, so nothing is guessed.
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

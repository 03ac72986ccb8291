"""Parses a reply while it streams: visible text, reasoning, and the calls written in the text.

The parser is a generator that reads the text sequentially and yields when it needs more text. The code follows the
grammar of a reply, and the boundaries of streamed pieces make no difference. Text is shown at once; only a possible
beginning of a marker is held back. Every step takes linear time, because a model's text is untrusted input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.messages.model import ReplyReader
from dial_client.providers.formats import bare_calls, harmony
from dial_client.providers.formats.call_parser import CallParser, find_calls
from dial_client.providers.formats.call_syntaxes import (
    CALL_SYNTAXES,
    END_OF_TEXT,
    HARMONY,
    HARMONY_HEADERS,
    REASONING_ENDS,
    REASONING_TAGS,
    RESULT_ENDS,
    RESULT_TAGS,
    TAGS,
    TURN_BEGINNINGS,
)
from dial_client.providers.formats.fenced_calls import FencedCallParser
from dial_client.providers.formats.json_calls import MAX_CALLS, FoundCalls
from dial_client.providers.formats.non_json_calls import parse_arguments
from dial_client.providers.formats.reply_output import ReplyOutput
from dial_client.providers.formats.special_tokens import MarkerMatcher, Markers
from dial_client.providers.formats.stream_buffer import BoundedText, MarkerSearch, Parsing, StreamBuffer, TextSink
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

_MARKERS = Markers(*TAGS, tokens=True)
_MARKERS_AND_CODE = Markers(*TAGS, "```", tokens=True, in_code=True)
_TAG_LEADS = frozenset("<[\u25c1`")
_FENCE_END = Markers("```")
_INLINE_CODE_END = Markers("`", "\n")
_REASONING_END_OF = {opener: Markers(end) for opener, end in REASONING_TAGS.items()}
_HEADER_END = Markers("<|message|>")
_ROLE_END = Markers("\n", "<|end_header_id|>")
_ANALYSIS_END = Markers("<|end|>", "<|call|>", "<|return|>", *HARMONY_HEADERS)


class ReplyParser:
    """A `ReplyReader` for text with markers. A format with its own labels overrides `_parse`.

    Args:
        tools: The tools on offer; None if they are unknown, so that every name is accepted.
        careful: True if the model was not asked to write calls as text. A call then counts only if it names an offered
            tool and satisfies its schema; markers around anything else, and markers in code, are shown as text.
        one_call: True if the first call ends the reply.
        fenced_calls: True if a call in the code fence at the end of a reply counts too.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec] | None,
        *,
        careful: bool = False,
        one_call: bool = False,
        fenced_calls: bool = False,
    ) -> None:
        self._offer = OfferedTools(tools)
        self._markers: MarkerMatcher = _MARKERS_AND_CODE if careful else _MARKERS
        self._is_careful = careful
        self._buffer = StreamBuffer()
        self._output = ReplyOutput()
        self._calls = CallParser(
            self._offer,
            self._buffer,
            self._output,
            self._markers,
            is_careful=careful,
            max_calls=1 if one_call else MAX_CALLS,
        )
        self._fenced_calls = FencedCallParser(self._offer, self._buffer) if fenced_calls and tools else None
        self._has_reasoned = False
        self._in_result = False
        self._is_over = False
        self._parsing = self._parse()

    def feed(self, text: str) -> str:
        """Add text of the reply, and return the text to show. Text that may begin a marker is held back."""
        if not self._is_over and not self._buffer.pass_through(text):
            self._buffer.append(text)
            self._advance()
        return self._output.take_text()

    def reasoning(self) -> str:
        """Return the reasoning since the last call."""
        return self._output.take_reasoning()

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """End the reply, and return the rest of the text and the calls found in it."""
        self._buffer.close()
        if not self._is_over:
            self._advance()
        self._output.close()
        calls = tuple(self._calls.calls)
        if calls:
            log.debug("calls_in_text", calls=len(calls), requested=not self._is_careful)
        return self._output.take_text(), calls

    def _advance(self) -> None:
        try:
            next(self._parsing)
        except StopIteration:
            self._is_over = True

    def _parse(self) -> Parsing:
        """Parse the whole reply."""
        yield from self._parse_bare_calls()
        yield from self._parse_text(self._markers, self._output.add_text)

    def _parse_bare_calls(self) -> Parsing:
        """Parse the rest of the reply as calls if it contains nothing else; otherwise put it back as text."""
        if self._is_over or self._output.has_begun or self._calls.calls:
            return
        is_requested = not self._is_careful
        is_possible = yield from self._buffer.look_ahead(
            lambda text: bare_calls.may_begin(text, self._offer, is_requested=is_requested)
        )
        if not is_possible:
            return
        reply = BoundedText()
        while not reply.is_too_long and (yield from self._buffer.read_available(reply.add)):
            pass
        found = FoundCalls() if reply.is_too_long else find_calls(bare_calls.read, reply.text)
        calls = self._offer.match_calls(found.calls)
        if not calls and is_requested:
            calls = self._offer.accept_calls(found.calls)
        if calls:
            self._calls.add(calls)
        else:
            self._buffer.put_back(reply.text)

    def _parse_text(self, markers: MarkerMatcher, sink: TextSink) -> MarkerSearch:
        """Parse up to the next marker other than a tag or code, and return it; empty at the end of the reply."""
        while True:
            marker = yield from self._buffer.read_until(markers, sink)
            if marker[:1] not in _TAG_LEADS:
                return marker
            if marker[0] == "`":
                yield from self._parse_code(marker, sink)
            else:
                yield from self._parse_tag(marker)
                self._buffer.begin_line()
            if self._is_over or self._calls.ends_reply:
                return ""

    def _parse_code(self, marker: str, sink: TextSink) -> Parsing:
        if marker == "```" and self._fenced_calls is not None and self._may_be_fenced_call():
            call = yield from self._fenced_calls.parse(sink)
            if call is not None:
                self._calls.add([call])
            return
        sink(marker)
        sink((yield from self._buffer.read_until(_FENCE_END if marker == "```" else _INLINE_CODE_END, sink)))

    def _may_be_fenced_call(self) -> bool:
        """Return True if a fence may contain a call: it is at the start of a line, before any call, not in a result."""
        line = self._output.tail.rpartition("\n")[2]
        return not (line.strip() or self._in_result or self._calls.calls)

    def _parse_tag(self, marker: str) -> Parsing:
        self._output.note_marker()
        tail = self._output.tail
        if tail == tail.rstrip() and self._markers.count_partial(tail, 0, at_line_start=False):
            self._output.add_text(" ")  # otherwise the text before and after the tag could form a new tag
        if marker in REASONING_TAGS:
            yield from self._parse_reasoning(marker)
        elif marker in REASONING_ENDS:
            yield from self._end_unopened_reasoning()
        elif marker in CALL_SYNTAXES:
            yield from self._calls.parse(CALL_SYNTAXES[marker], in_result=self._in_result)
        elif marker in HARMONY_HEADERS:
            yield from self._parse_harmony_header()
        elif marker in TURN_BEGINNINGS:
            yield from self._parse_turn_beginning()
        else:
            yield from self._parse_token(marker)

    def _parse_token(self, marker: str) -> Parsing:
        """Parse a marker of a tool result, the end of the text, or any other special token of a chat template."""
        if marker in RESULT_TAGS:
            # A result after the model's own calls is invented, and so is all text after it.
            self._is_over = bool(self._calls.calls)
            self._in_result = True
        elif marker in RESULT_ENDS:
            self._in_result = False
        elif marker == END_OF_TEXT:
            is_in_text = yield from self._buffer.look_ahead(lambda text: None if text.isspace() else True)
            if is_in_text:
                self._output.add_text(marker)
        elif marker[-2:-1] in "|\uff5c":
            yield from self._parse_bare_calls()

    def _parse_reasoning(self, opener: str) -> Parsing:
        yield from self._buffer.read_until(_REASONING_END_OF[opener], self._output.add_reasoning)
        if not self._has_reasoned:
            self._has_reasoned = True
            yield from self._parse_bare_calls()

    def _end_unopened_reasoning(self) -> Parsing:
        """Handle an end of reasoning without a beginning: the chat template wrote the beginning into the prompt.

        All text so far becomes reasoning, unless some of it was already returned as visible text, as in most streams.
        """
        if self._has_reasoned:
            return
        self._has_reasoned = True
        self._calls.calls.clear()
        if self._output.move_text_to_reasoning():
            yield from self._parse_bare_calls()

    def _parse_turn_beginning(self) -> Parsing:
        """Parse the role of a turn. A turn of another role is invented by the model, as is all text after it."""
        if (yield from self._buffer.look_ahead(harmony.begins_with_role)):
            role = BoundedText()
            yield from self._buffer.read_until(_ROLE_END, role.add)
            self._is_over = not harmony.is_model(role.text)
        yield from self._parse_bare_calls()

    def _parse_harmony_header(self) -> Parsing:
        """Parse a header of the harmony format, and the call or reasoning after it. Other text after it is shown."""
        if not (yield from self._buffer.look_ahead(harmony.may_begin)):
            return
        text = BoundedText()
        yield from self._buffer.read_until(_HEADER_END, text.add)
        header = harmony.parse_header(text.text)
        if not header.is_reply:
            self._is_over = True
        elif header.recipient:
            if self._offer.find_name(header.recipient):
                yield from self._calls.parse(
                    HARMONY, read=partial(parse_arguments, header.recipient), in_result=self._in_result
                )
        elif header.channel == "analysis":
            self._has_reasoned = True
            marker = yield from self._buffer.read_until(_ANALYSIS_END, self._output.add_reasoning)
            if marker in HARMONY_HEADERS:
                self._buffer.unread(marker)
        yield from self._parse_bare_calls()


def read_reply(reader: ReplyReader, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
    """Return the calls and the visible text of a complete reply."""
    visible = reader.feed(text)
    rest, calls = reader.finish()
    return calls, visible + rest

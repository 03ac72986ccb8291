"""Parses one call behind its opener: reads its text, turns it into calls, or puts it back to be read as text."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from dial_client.formats.call_syntaxes import HARMONY, HERMES, CallSyntax
from dial_client.formats.json_calls import MAX_CALLS, FoundCalls, decode
from dial_client.formats.non_json_calls import CallReader
from dial_client.formats.reply_output import ReplyOutput
from dial_client.formats.special_tokens import MarkerMatcher
from dial_client.formats.stream_buffer import MAX_HEAD_CHARS, BoundedText, Parsing, StreamBuffer, discard
from dial_client.formats.tool_matching import OfferedTools
from dial_client.messages.message import ToolCallRequest
from dial_client.schema.json_repair import Unreadable

MAX_END_MARKERS = 8
"""End markers within the values of one call."""
MAX_FAILURES = 32
"""Openers without a call behind them; after as many, further openers are taken for text."""
MAX_FAILED_CHARS = 64 * 1024
"""Characters that were parsed as calls in vain, and again as text."""

_NAME_IN_JSON = re.compile(r"[\"']name[\"']\s{0,8}:\s{0,8}[\"']([\w.-]{1,128}+)[\"']")


class CallParser:
    """Parses and collects the calls of one reply.

    Args:
        offer: the tools on offer.
        buffer: the text of the reply.
        output: receives openers that open no call.
        markers: those of the reply.
        is_careful: the model was not asked to write calls as text.
        max_calls: further calls are ignored.
    """

    def __init__(
        self,
        offer: OfferedTools,
        buffer: StreamBuffer,
        output: ReplyOutput,
        markers: MarkerMatcher,
        *,
        is_careful: bool,
        max_calls: int,
    ) -> None:
        self.calls: list[ToolCallRequest] = []
        self._offer = offer
        self._buffer = buffer
        self._output = output
        self._markers = markers
        self._is_careful = is_careful
        self._max_calls = max_calls
        self._failures = _Failures()

    @property
    def ends_reply(self) -> bool:
        """Whether the reply is over, because its only call has been found."""
        return self._max_calls == 1 and bool(self.calls)

    def add(self, calls: Sequence[ToolCallRequest]) -> None:
        """Add calls, up to the maximum."""
        self.calls += calls[: self._max_calls - len(self.calls)]
        self._output.note_marker()

    def parse(self, syntax: CallSyntax, *, read: CallReader | None = None, in_result: bool = False) -> Parsing:
        """Parse the text behind an opener as calls; where it is something else, put it back.

        Args:
            syntax: of the opener.
            read: reads the calls; by default as the syntax has it.
            in_result: the opener stands in a result that the model has written, and opens no call.
        """
        if len(self.calls) >= self._max_calls:
            yield from self._buffer.read_until(syntax.end_markers, discard)
            return
        if in_result or not (yield from self._may_be_call(syntax)):
            self._record_failure(syntax, 0)
            return
        body = yield from self._read_call_body(syntax)
        if body is not None:
            self._take_call(syntax, read or syntax.read, body)

    def _may_be_call(self, syntax: CallSyntax) -> Generator[None, None, bool]:
        if self._failures.are_too_many:
            return False
        if self._is_requested(syntax):
            return True
        return (yield from self._buffer.look_ahead(lambda text: syntax.may_begin(text, self._offer)))

    def _read_call_body(self, syntax: CallSyntax) -> Generator[None, None, _CallBody | None]:
        """Read up to the marker that ends a call; one within a value does not end it. None for a text too long."""
        text = BoundedText()
        ends: list[tuple[int, str]] = []
        while True:
            marker = yield from self._buffer.read_until(syntax.end_markers, text.add)
            if text.is_too_long:
                return None
            ends.append((text.size, marker))
            if not marker or len(ends) == MAX_END_MARKERS or not syntax.is_open(text.text):
                return _CallBody(text.text, *ends[0], marker)
            text.add(marker)

    def _take_call(self, syntax: CallSyntax, read: CallReader, body: _CallBody) -> None:
        """Turn the body of a call into calls, or put it back."""
        found = find_calls(read, body.text)
        calls = self._offer.match_calls(found.calls)
        if not calls and self._is_requested(syntax):
            calls, found = self._accept_requested(body.text, found)
        if calls:
            self.add(calls)
            self._continue_behind_call(syntax, found.rest, body.end_marker)
        elif self._is_requested(syntax):
            self._take_broken_call(body)
        elif body.end_marker or not self._is_cut_off(syntax, body.text):
            self._record_failure(syntax, len(body.text))
            self._buffer.put_back(body.text + body.end_marker)

    def _is_requested(self, syntax: CallSyntax) -> bool:
        """Return whether the model was asked to write its calls in this syntax."""
        return syntax is HERMES and not self._is_careful

    def _is_cut_off(self, syntax: CallSyntax, text: str) -> bool:
        """Return whether the reply ended within a call: half a call is not shown."""
        is_open = syntax.is_open(text) or text.count("{") > text.count("}") or text.count("[") > text.count("]")
        if not is_open or self._markers.search(text, 0, at_line_start=False) is not None:
            return False
        if syntax is HARMONY or text.lstrip()[:1] not in "{[`":
            return True
        name = _NAME_IN_JSON.search(text, 0, MAX_HEAD_CHARS)
        return name is not None and self._offer.find_name(name.group(1)) is not None

    def _accept_requested(self, text: str, found: FoundCalls) -> tuple[list[ToolCallRequest], FoundCalls]:
        """Return the calls the model was asked to write in JSON, whatever is wrong with them."""
        if found.calls and text.lstrip()[:1] in "{[`":
            return [self._offer.to_request(call.name, call.arguments) for call in found.calls[:MAX_CALLS]], found
        decoded = decode(text, lenient=False)
        calls = [] if decoded.value is None else self._offer.to_requests(decoded.value)
        return calls, FoundCalls(rest=decoded.rest)

    def _continue_behind_call(self, syntax: CallSyntax, rest: str, marker: str) -> None:
        """Continue behind a call; text between the call and its closing marker is not shown."""
        is_closed = marker in syntax.closers
        if is_closed and not any(closer in rest for closer in syntax.closers):
            return
        rest = rest.lstrip("}] \t\r\n")
        if rest:
            self._buffer.put_back(rest + marker)
        else:
            self._buffer.unread(marker)

    def _take_broken_call(self, body: _CallBody) -> None:
        """Handle a requested call that is not JSON up to its first end marker: a failed call, or text about the tag."""
        text, marker = body.first_text, body.first_marker
        is_closed = marker in HERMES.closers
        is_call = "{" in text or (is_closed and ("<" in text or self._offer.find_name(text) is not None))
        if is_call:
            self.add([self._offer.to_broken_request(text)])
        else:
            self._record_failure(HERMES, len(text))
        self._buffer.put_back(("" if is_call else text) + ("" if is_closed else marker) + body.behind_first_marker)

    def _record_failure(self, syntax: CallSyntax, chars: int) -> None:
        """Record an opener without a call; it is shown where it may have another meaning."""
        self._failures.add(chars)
        if not syntax.is_token:
            self._output.add_text(syntax.opener)


@dataclass(frozen=True, slots=True)
class _CallBody:
    """The text behind an opener, with the markers that could end the call."""

    text: str
    first_end: int
    """Where the first end marker stands; there may be more, within values."""
    first_marker: str
    end_marker: str
    """Behind the text; empty at the end of the reply."""

    @property
    def first_text(self) -> str:
        """The text before the first end marker."""
        return self.text[: self.first_end]

    @property
    def behind_first_marker(self) -> str:
        """The text behind the first end marker, with the last end marker."""
        is_last = self.first_end == len(self.text)
        return "" if is_last else self.text[self.first_end + len(self.first_marker) :] + self.end_marker


@dataclass(slots=True)
class _Failures:
    """Openers without a call behind them."""

    count: int = 0
    chars: int = 0

    @property
    def are_too_many(self) -> bool:
        """Whether further openers are taken for text."""
        return self.count >= MAX_FAILURES or self.chars > MAX_FAILED_CHARS

    def add(self, chars: int) -> None:
        """Record a failure, with the characters that were parsed in vain."""
        self.count += 1
        self.chars += chars


def find_calls(read: CallReader, text: str) -> FoundCalls:
    """Return the calls a text begins with; none where it is something else."""
    try:
        return read(text)
    except (Unreadable, RecursionError, MemoryError):
        return FoundCalls()

"""Parses the text after the opener of a call: converts it to calls, or puts it back so that it is read as text."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from dial_client.messages.message import ToolCallRequest
from dial_client.providers.formats.call_readers import MAX_CALLS, CallReader, FoundCalls, decode
from dial_client.providers.formats.call_syntaxes import HARMONY, HERMES, CallSyntax
from dial_client.providers.formats.stream_buffer import (
    MAX_HEAD_CHARS,
    BoundedText,
    MarkerMatcher,
    Parsing,
    ReplyOutput,
    StreamBuffer,
    discard,
)
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.schema.tool_arguments import Unreadable

MAX_END_MARKERS = 8
"""The most end markers within the values of one call."""
MAX_FAILURES = 32
"""The most openers without a call. After that number, further openers count as text."""
MAX_FAILED_CHARS = 64 * 1024
"""The most characters that are parsed as calls without success, and then again as text."""

_NAME_IN_JSON = re.compile(r"[\"']name[\"']\s{0,8}:\s{0,8}[\"']([\w.-]{1,128}+)[\"']")


class CallParser:
    """Parses and collects the calls of one reply.

    Args:
        offer: The tools on offer.
        buffer: The text of the reply.
        output: The output of the reply, which receives openers without a call.
        markers: The markers of the reply.
        is_careful: True if the model was not asked to write calls as text.
        max_calls: The most calls of a reply; further calls are ignored.
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
        """True if the reply has ended because its only call was found."""
        return self._max_calls == 1 and bool(self.calls)

    def add(self, calls: Sequence[ToolCallRequest]) -> None:
        """Add calls, up to the maximum."""
        self.calls += calls[: self._max_calls - len(self.calls)]
        self._output.note_marker()

    def parse(self, syntax: CallSyntax, *, read: CallReader | None = None, in_result: bool = False) -> Parsing:
        """Parse the text after an opener as calls, or put it back if it contains no call.

        Args:
            syntax: The syntax of the opener.
            read: The function that parses the calls; None for that of the syntax.
            in_result: True if the opener is in a tool result that the model wrote; it then opens no call.
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
        """Read up to the marker that ends a call, past markers within values; return None if the text is too long."""
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
        """Convert the body of a call to calls, or put it back."""
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
        """Return True if the model was asked to write its calls in this syntax."""
        return syntax is HERMES and not self._is_careful

    def _is_cut_off(self, syntax: CallSyntax, text: str) -> bool:
        """Return True if the reply ended within a call. An incomplete call is not shown."""
        is_open = syntax.is_open(text) or text.count("{") > text.count("}") or text.count("[") > text.count("]")
        if not is_open or self._markers.search(text, 0, at_line_start=False) is not None:
            return False
        if syntax is HARMONY or text.lstrip()[:1] not in "{[`":
            return True
        name = _NAME_IN_JSON.search(text, 0, MAX_HEAD_CHARS)
        return name is not None and self._offer.find_name(name.group(1)) is not None

    def _accept_requested(self, text: str, found: FoundCalls) -> tuple[list[ToolCallRequest], FoundCalls]:
        """Return the calls that the model was asked to write in JSON, even if they are invalid."""
        if found.calls and text.lstrip()[:1] in "{[`":
            return [self._offer.to_request(call.name, call.arguments) for call in found.calls[:MAX_CALLS]], found
        decoded = decode(text, lenient=False)
        calls = [] if decoded.value is None else self._offer.to_requests(decoded.value)
        return calls, FoundCalls(rest=decoded.rest)

    def _continue_behind_call(self, syntax: CallSyntax, rest: str, marker: str) -> None:
        """Continue after a call. Text between the call and its closing marker is not shown."""
        is_closed = marker in syntax.closers
        if is_closed and not any(closer in rest for closer in syntax.closers):
            return
        rest = rest.lstrip("}] \t\r\n")
        if rest:
            self._buffer.put_back(rest + marker)
        else:
            self._buffer.unread(marker)

    def _take_broken_call(self, body: _CallBody) -> None:
        """Handle a requested call whose text is not valid JSON: add a broken call, or show it as text about the tag."""
        text, marker = body.first_text, body.first_marker
        is_closed = marker in HERMES.closers
        is_call = "{" in text or (is_closed and ("<" in text or self._offer.find_name(text) is not None))
        if is_call:
            self.add([self._offer.to_broken_request(text)])
        else:
            self._record_failure(HERMES, len(text))
        self._buffer.put_back(("" if is_call else text) + ("" if is_closed else marker) + body.behind_first_marker)

    def _record_failure(self, syntax: CallSyntax, chars: int) -> None:
        """Record an opener without a call, and show the opener if it may have another meaning."""
        self._failures.add(chars)
        if not syntax.is_token:
            self._output.add_text(syntax.opener)


@dataclass(frozen=True, slots=True)
class _CallBody:
    """The text after an opener, with the markers that could end the call."""

    text: str
    first_end: int
    """The position of the first end marker in the text; further end markers may be within values."""
    first_marker: str
    end_marker: str
    """The marker after the text; empty at the end of the reply."""

    @property
    def first_text(self) -> str:
        """The text before the first end marker."""
        return self.text[: self.first_end]

    @property
    def behind_first_marker(self) -> str:
        """The text after the first end marker, with the last end marker."""
        is_last = self.first_end == len(self.text)
        return "" if is_last else self.text[self.first_end + len(self.first_marker) :] + self.end_marker


@dataclass(slots=True)
class _Failures:
    """Counts openers without a call."""

    count: int = 0
    chars: int = 0

    @property
    def are_too_many(self) -> bool:
        """True if further openers count as text."""
        return self.count >= MAX_FAILURES or self.chars > MAX_FAILED_CHARS

    def add(self, chars: int) -> None:
        """Record a failure, with the number of characters that were parsed without success."""
        self.count += 1
        self.chars += chars


def find_calls(read: CallReader, text: str) -> FoundCalls:
    """Return the calls at the beginning of a text; no calls if it cannot be parsed."""
    try:
        return read(text)
    except (Unreadable, RecursionError, MemoryError):
        return FoundCalls()

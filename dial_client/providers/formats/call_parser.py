"""Parses calls in the text of a reply: converts text to calls, or puts it back so that it is read as text.

`CallParser` parses the text after the opener of a call. Calls without markers are replies that contain only calls, in
JSON or Python, and a call in the code fence at the end: small models write a call in a code fence if their chat
template does not teach them a better form.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import product

from dial_client.messages.message import ToolCallRequest
from dial_client.providers.formats import call_readers
from dial_client.providers.formats.call_syntaxes import HARMONY, HERMES, CallSyntax
from dial_client.providers.formats.stream_buffer import (
    MAX_HEAD_CHARS,
    BoundedText,
    Lookahead,
    Markers,
    Parsing,
    ReplyOutput,
    StreamBuffer,
    TextSink,
    discard,
)
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.schema.tool_arguments import Unreadable

# The most end markers within the values of one call.
MAX_END_MARKERS = 8
# The most openers without a call. After that number, further openers count as text.
MAX_FAILURES = 32
# The most characters that are parsed as calls without success, and then again as text.
MAX_FAILED_CHARS = 64 * 1024

_NAME_IN_JSON = compile_lazily(r"[\"']name[\"']\s{0,8}:\s{0,8}[\"']([\w.-]{1,128}+)[\"']")


@dataclass(eq=False, slots=True)
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

    offer: OfferedTools
    buffer: StreamBuffer
    output: ReplyOutput
    markers: Markers
    is_careful: bool
    max_calls: int
    calls: list[ToolCallRequest] = field(default_factory=list)
    _failures: int = 0
    _failed_chars: int = 0
    _is_example_seen: bool = False

    @property
    def ends_reply(self) -> bool:
        """True if the reply has ended because its only call was found."""
        return self.max_calls == 1 and bool(self.calls)

    def add(self, calls: Sequence[ToolCallRequest]) -> None:
        """Add calls, up to the maximum."""
        self.calls += calls[: self.max_calls - len(self.calls)]
        self.output.note_marker()

    def parse(
        self, syntax: CallSyntax, *, read: call_readers.CallReader | None = None, in_result: bool = False
    ) -> Parsing:
        """Parse the text after an opener as calls, or put it back if it contains no call.

        Args:
            syntax: The syntax of the opener.
            read: The function that parses the calls; None for that of the syntax.
            in_result: True if the opener is in a tool result that the model wrote; it then opens no call.
        """
        if len(self.calls) >= self.max_calls:
            yield from self.buffer.read_until(syntax.end_markers, discard)
            return
        if in_result or not (yield from self._may_be_call(syntax)):
            self._record_failure(syntax, 0)
            return
        body = yield from self._read_call_body(syntax)
        if body is not None:
            self._take_call(syntax, read or syntax.read, body)

    def _may_be_call(self, syntax: CallSyntax) -> Generator[None, None, bool]:
        # From here on, openers count as text.
        if self._failures >= MAX_FAILURES or self._failed_chars > MAX_FAILED_CHARS:
            return False
        if self._is_requested(syntax):
            return True
        return (yield from self.buffer.look_ahead(lambda text: syntax.may_begin(text, self.offer)))

    def _read_call_body(self, syntax: CallSyntax) -> Generator[None, None, _CallBody | None]:
        """Read up to the marker that ends a call, past markers within values; return None if the text is too long."""
        text = BoundedText()
        ends: list[tuple[int, str]] = []
        while True:
            marker = yield from self.buffer.read_until(syntax.end_markers, text.add)
            if text.is_too_long:
                return None
            ends.append((text.size, marker))
            if not marker or len(ends) == MAX_END_MARKERS or not syntax.is_open(text.text):
                return _CallBody(text.text, *ends[0], marker)
            text.add(marker)

    def _take_call(self, syntax: CallSyntax, read: call_readers.CallReader, body: _CallBody) -> None:
        """Convert the body of a call to calls, or put it back."""
        found = find_calls(read, body.text)
        calls = self.offer.match_calls(found.calls)
        if not calls and self._is_requested(syntax):
            calls, found = self._accept_requested(body.text, found)
        if calls:
            self.add(calls)
            self._continue_behind_call(syntax, found.rest, body.end_marker)
        elif self._is_requested(syntax):
            # The text is not valid JSON: it is a broken call, or text about the tag.
            text, marker = body.text[: body.first_end], body.first_marker
            behind = body.text[body.first_end + len(marker) :] + body.end_marker if text != body.text else ""
            is_closed = marker in HERMES.closers
            is_call = "{" in text or (is_closed and ("<" in text or self.offer.find_name(text) is not None))
            if is_call:
                self.add([self.offer.to_broken_request(text)])
            else:
                self._record_failure(HERMES, len(text))
            self.buffer.put_back(("" if is_call else text) + ("" if is_closed else marker) + behind)
        elif body.end_marker or not self._is_cut_off(syntax, body.text):
            self._record_failure(syntax, len(body.text))
            self.buffer.put_back(body.text + body.end_marker)

    def _is_requested(self, syntax: CallSyntax) -> bool:
        """Return True if the model was asked to write its calls in this syntax."""
        return syntax is HERMES and not self.is_careful

    def _is_cut_off(self, syntax: CallSyntax, text: str) -> bool:
        """Return True if the reply ended within a call. An incomplete call is not shown."""
        is_open = syntax.is_open(text) or text.count("{") > text.count("}") or text.count("[") > text.count("]")
        if not is_open or self.markers.search(text, 0, at_line_start=False) is not None:
            return False
        if syntax is HARMONY or text.lstrip()[:1] not in "{[`":
            return True
        name = _NAME_IN_JSON.search(text, 0, MAX_HEAD_CHARS)
        return name is not None and self.offer.find_name(name.group(1)) is not None

    def _accept_requested(
        self, text: str, found: call_readers.FoundCalls
    ) -> tuple[list[ToolCallRequest], call_readers.FoundCalls]:
        """Return the calls that the model was asked to write in JSON, even if they are invalid."""
        if found.calls and text.lstrip()[:1] in "{[`":
            return [
                self.offer.to_request(call.name, call.arguments) for call in found.calls[: call_readers.MAX_CALLS]
            ], found
        decoded = call_readers.decode(text, lenient=False)
        calls = [] if decoded.value is None else self.offer.to_requests(decoded.value)
        return calls, call_readers.FoundCalls(rest=decoded.rest)

    def _continue_behind_call(self, syntax: CallSyntax, rest: str, marker: str) -> None:
        """Continue after a call. Text between the call and its closing marker is not shown."""
        is_closed = marker in syntax.closers
        if is_closed and not any(closer in rest for closer in syntax.closers):
            return
        rest = rest.lstrip("}] \t\r\n")
        if rest:
            self.buffer.put_back(rest + marker)
        else:
            self.buffer.unread(marker)

    def _record_failure(self, syntax: CallSyntax, chars: int) -> None:
        """Record an opener without a call, and show the opener if it may have another meaning."""
        self._failures += 1
        self._failed_chars += chars
        if not syntax.is_token:
            self.output.add_text(syntax.opener)

    def parse_fence(self, sink: TextSink) -> Parsing:
        """Parse the code after a fence as a call at the end of the reply, or pass it to `sink`.

        A fenced call with text after it is an example. After an example, no further fenced call counts, because it may
        be an example too.
        """
        if not (yield from self.buffer.look_ahead(lambda text: may_begin(FENCE + text, self.offer))):
            sink(FENCE)
            sink((yield from self.buffer.read_until(_FENCE_END, sink)))
            return
        code = _HeldCode(sink)
        end = yield from self._read_code(code)
        calls = self._find_fenced_call(code.text) if end and not code.is_too_long else []
        if calls:
            has_text_behind = yield from self.buffer.look_ahead(lambda text: None if text.isspace() else True)
            if not has_text_behind and not self._is_example_seen:
                self.add(calls)
                return
            self._is_example_seen = True
        if not code.is_too_long:
            sink(FENCE + code.text)
        sink(end)

    def _read_code(self, code: _HeldCode) -> Generator[None, None, str]:
        """Read the code, and return the fence after it. A fence within a string of the code belongs to the code."""
        for _ in range(MAX_FENCES_IN_STRINGS):
            end = yield from self.buffer.read_until(_FENCE_END, code.add)
            if not end or code.is_too_long or not call_readers.ends_in_string(code.text):
                return end
            code.add(end)
        return (yield from self.buffer.read_until(_FENCE_END, code.add))

    def _find_fenced_call(self, code: str) -> list[ToolCallRequest]:
        """Return one call if the code is one JSON object with the exact name of a tool and valid arguments."""
        if not _OBJECT.match(code):
            return []
        decoded = call_readers.decode(FENCE + code, lenient=False)
        if not isinstance(decoded.value, dict) or decoded.rest.strip():
            return []
        try:
            calls = call_readers.to_calls(decoded.value)
        except Unreadable:
            return []
        # The exact name: a fence is often an example, so nothing is guessed.
        if len(calls) != 1 or self.offer.find_name(calls[0].name) != calls[0].name:
            return []
        return self.offer.match_calls(calls)


@dataclass(frozen=True, eq=False, slots=True)
class _CallBody:
    """The text after an opener, with the markers that could end the call."""

    text: str
    first_end: int
    """The position of the first end marker in the text; further end markers may be within values."""
    first_marker: str
    end_marker: str
    """The marker after the text; empty at the end of the reply."""


def find_calls(read: call_readers.CallReader, text: str) -> call_readers.FoundCalls:
    """Return the calls at the beginning of a text; no calls if it cannot be parsed."""
    try:
        return read(text)
    except (Unreadable, RecursionError, MemoryError):
        return call_readers.FoundCalls()


_LANGUAGES = ("", "json", "python", "tool_call", "tool_code", "xml")
_WRAPPERS = ("", "functools", "<tool_call>", "<tool_calls>")
_PREFIXES = tuple(
    fence + wrapper for fence, wrapper in product(("", *(f"```{name}" for name in _LANGUAGES)), _WRAPPERS)
)
_LONGEST_FIRST = tuple(sorted(_PREFIXES, key=len, reverse=True))
_KEYS = (
    '"arguments":', '"parameters":', "'arguments':", "'parameters':", '"type":"function"', '"function":{',
    '"tool_calls":[',
)  # fmt: skip
_NAMES = ('"name":"', '"function":"', "'name':'", "'function':'", 'name:"', "name:'")
_BRACES = ("{", "[{")
_ANY_CALL = tuple(brace + key for brace, key in product(_BRACES, _KEYS))
_NAMED_CALL = tuple(brace + name for brace, name in product(_BRACES, _NAMES))

_START = compile_lazily(r"(?:```[\w-]{0,32}+\s*+)?(?:functools)?")
_PYTHON = compile_lazily(r"\s*+\[\s*+[^\s{\[\"']")


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


def read(text: str) -> call_readers.FoundCalls:
    """Return the calls of a reply that contains only calls.

    Raises:
        Unreadable: The reply contains anything else.
    """
    inner = _START.sub("", text.strip(), count=1)
    if not _PYTHON.match(inner):
        return call_readers.parse_only_json_calls(inner)
    found = call_readers.parse_python(inner)
    if found.rest.replace("```", "").strip():
        raise Unreadable("there is more than calls")
    return call_readers.FoundCalls(found.calls)


FENCE = "```"
# The most fences within the strings of one call; code with more fences counts as text.
MAX_FENCES_IN_STRINGS = 8

_FENCE_END = Markers(FENCE)
_OBJECT = compile_lazily(r"[\w-]{0,32}+\s*+\{")


class _HeldCode(BoundedText):
    """Code that is held back while it may be a call. Code that is too long for a call is passed to the sink."""

    def __init__(self, sink: TextSink) -> None:
        super().__init__()
        self._sink = sink

    def add(self, text: str) -> None:
        """Hold a piece of code back, or pass it to the sink."""
        was_held = not self.is_too_long
        super().add(text)
        if self.is_too_long:
            self._sink(FENCE + self.text if was_held else text)

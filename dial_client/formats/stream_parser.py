"""Reads a reply as it comes: what of it is for people, what is reasoning, and which calls it makes.

A reading is a generator that goes through the text from front to back, and yields where it needs more of it. So the
code says what follows what, and it makes no difference where the pieces of a stream end. Text is shown at once; only
what may be the beginning of a marker is held back. Everything is linear in the length of the reply: a model's text is
untrusted input.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import partial

from dial_client.formats import bare_calls, harmony
from dial_client.formats.call_syntaxes import (
    CHANNELS,
    DIALECTS,
    END_OF_TEXT,
    HARMONY,
    HERMES,
    RESULT_ENDS,
    RESULTS,
    TAGS,
    THOUGHT_ENDS,
    THOUGHTS,
    TURNS,
    CallSyntax,
)
from dial_client.formats.json_calls import MAX_CALLS, Found, decode
from dial_client.formats.non_json_calls import Read, named
from dial_client.formats.special_tokens import Marked, Markers
from dial_client.formats.stream_buffer import MAX_CALL_CHARS, MAX_HEAD_CHARS, Pieces, Steps, StreamBuffer, Take, drop
from dial_client.formats.tool_matching import OfferedTools
from dial_client.logs import get_logger
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.model import ReplyReader
from dial_client.schema.json_repair import Unreadable

log = get_logger(__name__)

MAX_CLOSINGS = 8
"""Closing markers in the values of one call."""
MAX_FAILURES = 32
"""Openers behind which there was no call; behind as many the next ones are not looked at."""
MAX_FAILED_CHARS = 64 * 1024
"""Characters that were read in vain as calls, and once more as text."""

_TAIL = 80
"""Characters of what was shown that could grow together with what follows to a marker."""
_MARKERS = Markers(*TAGS, tokens=True)
_MARKERS_AND_CODE = Markers(*TAGS, "```", tokens=True, in_code=True)
_LEADS = frozenset("<[\u25c1`")
_FENCE_END = Markers("```")
_INLINE_END = Markers("`", "\n")
_ENDS = {opener: Markers(end) for opener, end in THOUGHTS.items()}
_HEADER_END = Markers("<|message|>")
_NAME_IN_JSON = re.compile(r"[\"']name[\"']\s{0,8}:\s{0,8}[\"']([\w.-]{1,128}+)[\"']")
_ROLE_END = Markers("\n", "<|end_header_id|>")
_ANALYSIS_END = Markers("<|end|>", "<|call|>", "<|return|>", *CHANNELS)


class ReplyParser:
    """A `ReplyReader` for text with markers in it; a format with a grammar of its own overrides `_reply`.

    Args:
        tools: what is on offer; None where that is not known, and every name will do.
        careful: calls were not asked for in text: they count only if they name an offered tool and fit it, whatever
            else is between markers is shown, and so are markers in code.
        one_call: the reply is over with its first call.
    """

    def __init__(self, tools: Sequence[ToolSpec] | None, *, careful: bool = False, one_call: bool = False) -> None:
        self._offer = OfferedTools(tools)
        self._markers: Marked = _MARKERS_AND_CODE if careful else _MARKERS
        self._careful = careful
        self._most = 1 if one_call else MAX_CALLS
        self._incoming = StreamBuffer()
        self._steps = self._reply()
        self._over = False
        self._visible: list[str] = []
        self._blanks: list[str] = []
        self._thoughts: list[str] = []
        self._thought_chars = 0
        self._tail = ""
        self._begun = False
        self._given = False
        self._marked = False
        self._has_thought = False
        self._in_result = False
        self._unshown: str | None = None
        self._failures = 0
        self._failed_chars = 0
        self._calls: list[ToolCallRequest] = []

    def feed(self, text: str) -> str:
        """Take more of the reply, give what of it can be shown; what may be a marker is held back."""
        if not self._over and not self._incoming.passes(text):
            self._incoming.add(text)
            self._go_on()
        return self._said()

    def reasoning(self) -> str:
        """Give the reasoning that has come since this was asked last."""
        thought = "".join(self._thoughts)
        self._thoughts.clear()
        self._thought_chars = 0
        return thought

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """Take the end of the reply, give the rest of what can be shown, and the calls found in the text."""
        self._incoming.end()
        if not self._over:
            self._go_on()
        if not (self._begun or self._marked):
            self._visible += self._blanks
            self._blanks.clear()
        if self._calls:
            log.debug("calls_in_text", calls=len(self._calls), asked_for=not self._careful)
        return self._said(), tuple(self._calls)

    def _go_on(self) -> None:
        try:
            next(self._steps)
        except StopIteration:
            self._over = True

    def _said(self) -> str:
        if not self._visible:
            return ""
        said = "".join(self._visible)
        self._visible.clear()
        self._given = self._given or bool(said)
        return said

    def _show(self, text: str) -> None:
        """Show text; white space at the beginning waits, because none is shown between markers and the first word."""
        if not self._begun:
            self._blanks.append(text)
            if not text.strip(self._unshown):
                return
            text = "".join(self._blanks)
            text = text.lstrip(self._unshown) if self._marked else text
            self._blanks.clear()
            self._begun = True
        self._visible.append(text)
        self._tail = text[-_TAIL:] if len(text) >= _TAIL else (self._tail + text)[-_TAIL:]

    def _think(self, text: str) -> None:
        """Take reasoning; nobody may ever ask for it, so it is not kept without end."""
        if self._thought_chars < MAX_CALL_CHARS:
            self._thoughts.append(text)
            self._thought_chars += len(text)

    def _found(self, calls: Sequence[ToolCallRequest]) -> None:
        self._calls += calls[: self._most - len(self._calls)]
        self._marked = True
        self._over = self._most == 1 and bool(self._calls)

    def _reply(self) -> Steps:
        yield from self._whole()
        return (yield from self._through_tags(self._markers, self._show))

    def _whole(self) -> Generator[None, None, None]:
        """Read a reply that is nothing but calls; put back whatever else it is."""
        if self._begun or self._calls:
            return
        is_asked = not self._careful
        if not (
            yield from self._incoming.look(lambda text: bare_calls.may_begin(text, self._offer, is_asked=is_asked))
        ):
            return
        pieces = Pieces()
        while not pieces.is_too_long and (yield from self._incoming.some(pieces.add)):
            pass
        found = Found() if pieces.is_too_long else _found_in(bare_calls.read, pieces.text)
        calls = self._offer.rescue(found.calls)
        if not calls and is_asked:
            calls = self._offer.meant(found.calls)
        if calls:
            self._found(calls)
        else:
            self._incoming.put_back(pieces.text)

    def _through_tags(self, markers: Marked, take: Take) -> Steps:
        """Read up to the next marker that is not a tag; what tags enclose is dealt with on the way."""
        while True:
            marker = yield from self._incoming.until(markers, take)
            if marker[:1] not in _LEADS:
                return marker
            if marker[0] == "`":
                yield from self._code(marker, take)
            else:
                yield from self._tag(marker)
                self._incoming.freshen()
            if self._over:
                return ""

    def _code(self, marker: str, take: Take) -> Generator[None, None, None]:
        take(marker)
        take((yield from self._incoming.until(_FENCE_END if marker == "```" else _INLINE_END, take)))

    def _tag(self, marker: str) -> Generator[None, None, None]:
        self._marked = True
        if self._tail == self._tail.rstrip() and self._markers.held(self._tail, 0, fresh=False):
            self._show(" ")  # else the text around the tag could grow together to another one
        if marker in THOUGHTS:
            yield from self._incoming.until(_ENDS[marker], self._think)
            if not self._has_thought:
                self._has_thought = True
                yield from self._whole()
        elif marker in THOUGHT_ENDS:
            yield from self._thought_so_far()
        elif marker in DIALECTS:
            yield from self._call(DIALECTS[marker])
        else:
            yield from self._token(marker)

    def _token(self, marker: str) -> Generator[None, None, None]:
        """Deal with what divides a conversation: turns, messages, results."""
        if marker in CHANNELS:
            yield from self._channel()
        elif marker in TURNS:
            yield from self._turn()
        elif marker in RESULTS:
            # Behind its own calls a model that writes a result is making it up, and all that follows.
            self._over = bool(self._calls)
            self._in_result = True
        elif marker in RESULT_ENDS:
            self._in_result = False
        elif marker == END_OF_TEXT:
            if (yield from self._incoming.look(lambda text: None if text.isspace() else True)):
                self._show(marker)
        elif marker[-2:-1] in "|\uff5c":
            yield from self._whole()

    def _thought_so_far(self) -> Generator[None, None, None]:
        """Deal with the end of reasoning whose beginning the template wrote: it has been reasoning up to here.

        What was given out already cannot be taken back; in a stream that is most of it.
        """
        if self._has_thought:
            return
        self._has_thought = True
        self._calls.clear()
        if not self._given:
            self._think("".join((*self._visible, *self._blanks)))
            self._visible.clear()
            self._blanks.clear()
            self._begun, self._tail = False, ""
            yield from self._whole()

    def _call(self, dialect: CallSyntax, read: Read | None = None) -> Generator[None, None, None]:
        """Read what stands behind an opener; a closing marker inside a value of the call does not end it."""
        if len(self._calls) >= self._most:
            yield from self._incoming.until(dialect.ends, drop)
            return
        is_asked = dialect is HERMES and not self._careful
        may_be = self._failures < MAX_FAILURES and self._failed_chars <= MAX_FAILED_CHARS and not self._in_result
        if may_be and not is_asked:
            may_be = yield from self._incoming.look(lambda text: dialect.may_begin(text, self._offer))
        if not may_be:
            self._fail(dialect, 0)
            return
        body = Pieces()
        ends: list[tuple[int, str]] = []
        while not ends or (ends[-1][1] and len(ends) < MAX_CLOSINGS and dialect.is_open(body.text)):
            if ends:
                body.add(ends[-1][1])
            marker = yield from self._incoming.until(dialect.ends, body.add)
            if body.is_too_long:
                return
            ends.append((body.size, marker))
        self._settle(dialect, read or dialect.read, body.text, ends)

    def _settle(self, dialect: CallSyntax, read: Read, text: str, ends: list[tuple[int, str]]) -> None:
        """Make calls of a text, or put it back; `ends` are the markers that could end it, the last one behind it."""
        is_asked = dialect is HERMES and not self._careful
        (first, first_marker), (_, marker) = ends[0], ends[-1]
        found = _found_in(read, text)
        calls = self._offer.rescue(found.calls)
        if not calls and is_asked:
            calls, found = self._asked(text, found)
        if calls:
            self._found(calls)
            self._behind(dialect, found.rest, marker)
        elif is_asked:
            behind = text[first + len(first_marker) :] + (marker if len(ends) > 1 else "")
            self._broken(text[:first], first_marker, behind)
        elif marker or not self._is_cut(dialect, text):
            self._fail(dialect, len(text))
            self._incoming.put_back(text + marker)

    def _is_cut(self, dialect: CallSyntax, text: str) -> bool:
        """Whether a reply ended in the middle of what would have been a call: nobody wants to see half of one."""
        is_open = dialect.is_open(text) or text.count("{") > text.count("}") or text.count("[") > text.count("]")
        is_open = is_open and self._markers.search(text, 0, fresh=False) is None  # else more was said behind it
        if dialect is HARMONY or text.lstrip()[:1] not in "{[`":
            return is_open
        name = _NAME_IN_JSON.search(text, 0, MAX_HEAD_CHARS)
        return is_open and name is not None and self._offer.offered(name.group(1)) is not None

    def _asked(self, text: str, found: Found) -> tuple[list[ToolCallRequest], Found]:
        """Give the calls that were asked for in JSON, whatever is wrong with them."""
        if found.calls and text.lstrip()[:1] in "{[`":
            return [self._offer.request(one.name, one.arguments) for one in found.calls[:MAX_CALLS]], found
        decoded = decode(text, lenient=False)
        return ([] if decoded.value is None else self._offer.take(decoded.value)), Found(rest=decoded.rest)

    def _behind(self, dialect: CallSyntax, rest: str, marker: str) -> None:
        """Go on behind a call; before the marker that closes it nothing is said to anybody."""
        is_closed = marker in dialect.closers
        if is_closed and not any(closer in rest for closer in dialect.closers):
            return
        rest = rest.lstrip("}] \t\r\n")
        if rest:
            self._incoming.put_back(rest + marker)
        else:
            self._incoming.unread(marker)

    def _broken(self, text: str, marker: str, rest: str) -> None:
        """Deal with what is not JSON up to the marker: an attempt at a call, or talk about the tag."""
        is_closed = marker in HERMES.closers
        is_attempt = "{" in text or (is_closed and ("<" in text or self._offer.offered(text) is not None))
        if is_attempt:
            self._found([self._offer.take_broken(text)])
        else:
            self._fail(HERMES, len(text))
        self._incoming.put_back(("" if is_attempt else text) + ("" if is_closed else marker) + rest)

    def _fail(self, dialect: CallSyntax, chars: int) -> None:
        """Take note of an opener that opened no call; one that may mean something else is shown."""
        self._failures += 1
        self._failed_chars += chars
        if not dialect.is_token:
            self._show(dialect.opener)

    def _turn(self) -> Generator[None, None, None]:
        """Read whose turn begins; one that is not the model's is made up, and so is all that follows."""
        if (yield from self._incoming.look(harmony.role_may_begin)):
            role = Pieces()
            yield from self._incoming.until(_ROLE_END, role.add)
            self._over = not harmony.is_model(role.text)
        yield from self._whole()

    def _channel(self) -> Generator[None, None, None]:
        """Read a header of harmony's, and what it is for: a call, or reasoning; what is for people goes on."""
        if not (yield from self._incoming.look(harmony.may_begin)):
            return
        said = Pieces()
        yield from self._incoming.until(_HEADER_END, said.add)
        header = harmony.header_of(said.text)
        if not header.is_reply:
            self._over = True
        elif header.recipient:
            if self._offer.offered(header.recipient):
                yield from self._call(HARMONY, partial(named, header.recipient))
        elif header.channel == "analysis":
            self._has_thought = True
            marker = yield from self._incoming.until(_ANALYSIS_END, self._think)
            if marker in CHANNELS:
                self._incoming.unread(marker)
        yield from self._whole()


def _found_in(read: Read, text: str) -> Found:
    try:
        return read(text)
    except (Unreadable, RecursionError, MemoryError):
        return Found()


def read_reply(reader: ReplyReader, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
    """Read a whole reply: the calls in it, and the text for people."""
    shown = reader.feed(text)
    rest, calls = reader.finish()
    return calls, shown + rest

"""Reads a reply as it comes: what of it is for people, and which calls it makes.

A reading is a generator that goes through the text from front to back, and yields where it needs more of it. So the
code says what follows what, and it makes no difference where the pieces of a stream end. Text is shown at once; only
what may be the beginning of a marker is held back. Everything is linear in the length of the reply: a model's text is
untrusted input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

from dial_client.formats.calls import MAX_CALLS, Decoded, Offer, decode
from dial_client.logs import get_logger
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.model import ReplyReader

log = get_logger(__name__)

MAX_CALL_CHARS = 1_000_000
"""Characters of one call; a longer one is none."""
MAX_CLOSINGS = 8
"""Closing tags in the strings of one call."""

Take = Callable[[str], None]
"""Where text goes that is read: shown, kept or dropped."""
Steps = Generator[None, None, str]
"""A part of a reading: yields where more text is needed, gives the marker it met, empty at the end of the reply."""

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
CODE = ("```", *(f"`{tag}" for tag in TAGS))
"""What begins code, in which tags are talked about, not used."""


class Marked(Protocol):
    """Says where in a text the next marker is."""

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Find the first whole marker from `at` on."""
        ...

    def held(self, text: str, at: int) -> int:
        """Give how many characters at the end of the text, from `at` on, may be the beginning of a marker."""
        ...


class Markers:
    """Markers that are plain strings; none of them may be the beginning of another."""

    def __init__(self, *markers: str) -> None:
        self._search = re.compile("|".join(map(re.escape, markers))).search
        self._beginnings = frozenset(marker[:length] for marker in markers for length in range(1, len(marker)))
        self._longest = max(map(len, self._beginnings), default=0)

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Find the first whole marker from `at` on."""
        return self._search(text, at)

    def held(self, text: str, at: int) -> int:
        """Give how many characters at the end of the text, from `at` on, may be the beginning of a marker."""
        for length in range(min(self._longest, len(text) - at), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0


_TAIL = max(map(len, CODE))
"""Characters after which what was read no longer matters to the markers behind it."""
_BEHIND = "</think>"
"""What a marker finds before it at the beginning of a reply: there it is as behind a tag."""

_FENCE_END = Markers("```")
_INLINE_END = Markers("`", "\n")
_THINK_END = Markers("</think>")
_CALL_END = Markers("</tool_call>", "<tool_call>")
_LAST_CALL_END = Markers("</tool_call>")


class Incoming:
    """The text of a reply, of which more may come."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._ended = False

    def add(self, text: str) -> None:
        """Take more of the reply."""
        begin = max(0, self._at - _TAIL)  # what was just read stays: a marker may ask what stands before it
        self._text = self._text[begin:] + text
        self._at -= begin

    def end(self) -> None:
        """Take note that nothing more comes."""
        self._ended = True

    def until(self, markers: Marked, take: Take) -> Steps:
        """Read up to the next marker and beyond it; `take` gets the text before it, as soon as that is known."""
        while (found := markers.search(self._text, self._at)) is None:
            held = 0 if self._ended else markers.held(self._text, self._at)
            self._read(take, len(self._text) - held)
            if self._ended:
                return ""
            yield
        self._read(take, found.start())
        self._at = found.end()
        return found.group()

    def some(self, take: Take) -> Generator[None, None, bool]:
        """Read what there is, at least a character; False at the end of the reply."""
        while self._at == len(self._text):
            if self._ended:
                return False
            yield
        self._read(take, len(self._text))
        return True

    def put_back(self, text: str) -> None:
        """Let this be read once more: what stands at the beginning of a reply, or behind a tag."""
        self._text = _BEHIND + text + self._text[self._at :]
        self._at = len(_BEHIND)

    def _read(self, take: Take, end: int) -> None:
        if end > self._at:
            take(self._text[self._at : end])
            self._at = end


class Pieces:
    """A text kept while it comes; what lies far beyond `MAX_CALL_CHARS` is not kept."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        """Keep a piece, if there is room for it."""
        if not self.is_too_long:
            self._pieces.append(text)
        self.size += len(text)

    @property
    def is_too_long(self) -> bool:
        """Whether this is too long for a call."""
        return self.size > MAX_CALL_CHARS

    @property
    def text(self) -> str:
        """What was kept."""
        return "".join(self._pieces)


def drop(text: str) -> None:
    """Take text that nobody sees."""


class Reading:
    """A `ReplyReader` for text with tags in it; a format with a grammar of its own overrides `_reply`.

    Args:
        tools: what is on offer.
        markers: the tags to look for.
        careful: calls were not asked for in text, so they count only if they name an offered tool and fit it.
        one_call: the reply is over with its first call.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], markers: Marked, *, careful: bool = False, one_call: bool = False
    ) -> None:
        self._offer = Offer(tools)
        self._markers = markers
        self._careful = careful
        self._one_call = one_call
        self._incoming = Incoming()
        self._steps = self._reply()
        self._over = False
        self._visible: list[str] = []
        self._blanks: list[str] = []
        self._tail = ""
        self._begun = False
        self._marked = False
        self._has_thought = False
        self._unshown: str | None = None
        self._tagged = 0
        self._calls: list[ToolCallRequest] = []

    def feed(self, text: str) -> str:
        """Take more of the reply, give what of it can be shown; what may be a marker is held back."""
        if not self._over:
            self._incoming.add(text)
            self._go_on()
        return self._said()

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
        said = "".join(self._visible)
        self._visible.clear()
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
        self._tail = (self._tail + text)[-_TAIL:]

    def _found(self, calls: Iterable[ToolCallRequest]) -> None:
        room = (1 if self._one_call else MAX_CALLS) - len(self._calls)
        self._calls += list(calls)[:room]
        self._marked = True
        self._over = self._one_call and bool(self._calls)

    def _reply(self) -> Steps:
        yield from self._whole()
        return (yield from self._through_tags(self._markers, self._show))

    def _whole(self) -> Generator[None, None, None]:
        """Read a reply that is nothing but one call as JSON; put back whatever else it is."""
        pieces = Pieces()
        verdict: bool | None = None
        while verdict is None and (yield from self._incoming.some(pieces.add)):
            verdict = self._offer.may_begin_call(pieces.text)
        while verdict and not pieces.is_too_long and (yield from self._incoming.some(pieces.add)):
            pass
        calls = self._offer.rescue_whole(pieces.text) if verdict and not pieces.is_too_long else []
        if calls:
            self._found(calls)
        else:
            self._incoming.put_back(pieces.text)

    def _through_tags(self, markers: Marked, take: Take) -> Steps:
        """Read up to the next marker that is not a tag; what tags enclose is dealt with on the way."""
        marker = yield from self._incoming.until(markers, take)
        while marker in TAGS or marker in CODE:
            yield from (self._code(marker, take) if marker in CODE else self._tag(marker))
            if self._over:
                return ""
            marker = yield from self._incoming.until(markers, take)
        return marker

    def _code(self, marker: str, take: Take) -> Generator[None, None, None]:
        take(marker)
        take((yield from self._incoming.until(_FENCE_END if marker == "```" else _INLINE_END, take)))

    def _tag(self, marker: str) -> Generator[None, None, None]:
        self._marked = True
        if self._tail == self._tail.rstrip() and self._markers.held(self._tail, 0):
            self._show(" ")  # else the text around the tag could grow together to another one
        match marker:
            case "<think>":
                yield from self._incoming.until(_THINK_END, drop)
                if not (self._has_thought or self._begun or self._calls):
                    self._has_thought = True
                    yield from self._whole()
            case "<tool_call>":
                self._tagged += 1
                if self._tagged <= MAX_CALLS:
                    yield from self._call()
                else:
                    yield from self._incoming.until(_LAST_CALL_END, drop)
            case "<tool_response>":
                # Behind its own calls a model that writes a result is making it up, and all that follows.
                self._over = bool(self._calls)

    def _call(self) -> Generator[None, None, None]:
        """Read what follows an opening tag; a closing tag inside a string of the call does not end it."""
        body = Pieces()
        ends: list[tuple[int, str]] = []
        decoded = Decoded()
        while len(ends) < MAX_CLOSINGS:
            marker = yield from self._incoming.until(_CALL_END, body.add)
            if body.is_too_long:
                return
            text = body.text
            ends.append((len(text), marker))
            decoded = decode(text)
            if not (marker and decoded.open_string):
                break
            body.add(marker)
        if decoded.value is not None:
            self._found(self._offer.rescue(decoded.value) if self._careful else self._offer.take(decoded.value))
            behind = "" if marker == "</tool_call>" else decoded.rest.lstrip("}] \t\r\n")
            self._incoming.put_back(behind + _begun_by(marker))
        else:
            end, marker = ends[0]
            self._broken(body.text[:end], marker, body.text[end + len(marker) :])

    def _broken(self, text: str, marker: str, rest: str) -> None:
        """Deal with what is not JSON up to the marker: an attempt at a call, or talk about the tag."""
        is_closed = marker == "</tool_call>"
        is_attempt = "{" in text or (is_closed and ("<" in text or self._offer.offered(text) is not None))
        if is_attempt and not self._careful:
            self._found([self._offer.take_broken(text)])
        self._incoming.put_back(("" if is_attempt else text) + _begun_by(marker) + rest)


def _begun_by(marker: str) -> str:
    """Give the marker again, if it ended one call by beginning another."""
    return marker if marker == "<tool_call>" else ""


def read_reply(reader: ReplyReader, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
    """Read a whole reply: the calls in it, and the text for people."""
    shown = reader.feed(text)
    rest, calls = reader.finish()
    return calls, shown + rest

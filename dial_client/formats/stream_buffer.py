"""The text of a reply while it streams: parsers read it from front to back, in whatever pieces it comes."""

from __future__ import annotations

from collections.abc import Callable, Generator

from dial_client.formats.special_tokens import MarkerMatcher

MAX_CALL_CHARS = 1_000_000
"""Characters of one call; a longer text is none."""
MAX_HEAD_CHARS = 512
"""Characters a parser may look ahead."""

TextSink = Callable[[str], None]
"""Receives text that is read: to show, keep or discard it."""
Parsing = Generator[None, None, None]
"""A part of a parser; yields where it needs more text."""
MarkerSearch = Generator[None, None, str]
"""A part of a parser that returns the marker it has met; empty at the end of the reply."""
Lookahead = bool | None
"""Whether the text ahead is what was looked for; None where more of it must be seen."""


class StreamBuffer:
    """The text of a reply, of which more may come."""

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._is_line_start = True
        self._is_closed = False
        self._has_lead: Callable[[str], object] | None = None
        self._sink: TextSink = discard

    def pass_through(self, text: str) -> bool:
        """Pass text without the beginning of a marker on to the reader; return False where it has to be appended."""
        if self._has_lead is None or self._has_lead(text) is not None:
            return False
        self._sink(text)
        return True

    def append(self, text: str) -> None:
        """Append text of the reply."""
        self._text = self._text[self._position :] + text
        self._position = 0

    def close(self) -> None:
        """Record that the reply is over."""
        self._is_closed = True
        self._has_lead = None

    def read_until(self, markers: MarkerMatcher, sink: TextSink) -> MarkerSearch:
        """Read through the next marker and return it; `sink` receives the text before it as soon as possible."""
        while (found := markers.search(self._text, self._position, at_line_start=self._is_line_start)) is None:
            held = self._count_held(markers)
            self._read(sink, len(self._text) - held)
            if self._is_closed:
                return ""
            if not (held or self._is_line_start):
                self._has_lead, self._sink = markers.has_lead, sink
            yield
            self._has_lead = None
        self._read(sink, found.start())
        self._position = found.end()
        self._is_line_start = False
        return found.group()

    def read_available(self, sink: TextSink) -> Generator[None, None, bool]:
        """Read the text there is, at least a character; return False at the end of the reply."""
        while self._position == len(self._text):
            if self._is_closed:
                return False
            yield
        self._read(sink, len(self._text))
        return True

    def look_ahead(self, decide: Callable[[str], Lookahead]) -> Generator[None, None, bool]:
        """Return what `decide` says about the text ahead, without reading it.

        Args:
            decide: receives up to `MAX_HEAD_CHARS` characters. Its answer for a text must hold for every longer one, so
                that it does not matter in which pieces the reply comes.
        """
        while True:
            head = self._text[self._position : self._position + MAX_HEAD_CHARS]
            answer = decide(head) if head else None
            if answer is not None:
                return answer
            if self._is_closed or len(head) == MAX_HEAD_CHARS:
                return False
            yield

    def begin_line(self) -> None:
        """Treat the text ahead as the beginning of a line: the marker before it is not shown."""
        self._is_line_start = True

    def unread(self, marker: str) -> None:
        """Move back before the marker that was just read."""
        self._position -= len(marker)

    def put_back(self, text: str) -> None:
        """Insert text before the text ahead."""
        self._text = text + self._text[self._position :]
        self._position = 0
        self._is_line_start = True

    def _count_held(self, markers: MarkerMatcher) -> int:
        """Return how many characters at the end may be the beginning of a marker."""
        if self._is_closed:
            return 0
        return markers.count_partial(self._text, self._position, at_line_start=self._is_line_start)

    def _read(self, sink: TextSink, end: int) -> None:
        if end > self._position:
            sink(self._text[self._position : end])
            self._position = end
            self._is_line_start = False


class BoundedText:
    """A text that is collected while it streams; far beyond `MAX_CALL_CHARS` nothing is kept."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        """Add a piece, where there is room for it."""
        if not self.is_too_long:
            self._pieces.append(text)
        self.size += len(text)

    @property
    def is_too_long(self) -> bool:
        """Whether the text is too long for a call."""
        return self.size > MAX_CALL_CHARS

    @property
    def text(self) -> str:
        """The collected text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


def discard(text: str) -> None:
    """Ignore the text."""

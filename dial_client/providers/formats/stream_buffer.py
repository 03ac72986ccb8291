"""The buffer of a streamed reply, from which parsers read text sequentially, independent of how it was split."""

from __future__ import annotations

from collections.abc import Callable, Generator

from dial_client.providers.formats.special_tokens import MarkerMatcher

MAX_CALL_CHARS = 1_000_000
"""The most characters of a call; a longer text is not a call."""
MAX_HEAD_CHARS = 512
"""The most characters that a parser may look ahead."""

TextSink = Callable[[str], None]
"""Receives text that was read, in order to show, store or discard it."""
Parsing = Generator[None, None, None]
"""A generator that parses a part of a reply, and yields when it needs more text."""
MarkerSearch = Generator[None, None, str]
"""A generator that parses up to a marker, and returns the marker; empty at the end of the reply."""
Lookahead = bool | None
"""True if the following text matches; False if it does not; None if more text is needed to decide."""


class StreamBuffer:
    """The text of a reply that may still grow."""

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._is_line_start = True
        self._is_closed = False
        self._has_lead: Callable[[str], object] | None = None
        self._sink: TextSink = discard

    def pass_through(self, text: str) -> bool:
        """Pass text that cannot begin a marker directly to the sink; return False if it must be appended instead."""
        if self._has_lead is None or self._has_lead(text) is not None:
            return False
        self._sink(text)
        return True

    def append(self, text: str) -> None:
        """Append text of the reply."""
        self._text = self._text[self._position :] + text
        self._position = 0

    def close(self) -> None:
        """Record that the reply has ended."""
        self._is_closed = True
        self._has_lead = None

    def read_until(self, markers: MarkerMatcher, sink: TextSink) -> MarkerSearch:
        """Read up to and including the next marker, and return it; `sink` receives earlier text as soon as possible."""
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
        """Read all available text, at least one character; return False at the end of the reply."""
        while self._position == len(self._text):
            if self._is_closed:
                return False
            yield
        self._read(sink, len(self._text))
        return True

    def look_ahead(self, decide: Callable[[str], Lookahead]) -> Generator[None, None, bool]:
        """Return the result of `decide` for the following text, without reading the text.

        Args:
            decide: The function that receives up to `MAX_HEAD_CHARS` characters. True and False must be final for every
                continuation of the text, so that the result does not depend on how the reply was split.
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
        """Treat the following text as the start of a line, because the marker before it is not shown."""
        self._is_line_start = True

    def unread(self, marker: str) -> None:
        """Return to the position before the marker that was just read."""
        self._position -= len(marker)

    def put_back(self, text: str) -> None:
        """Insert text before the following text."""
        self._text = text + self._text[self._position :]
        self._position = 0
        self._is_line_start = True

    def _count_held(self, markers: MarkerMatcher) -> int:
        """Return the number of characters at the end that may be the beginning of a marker."""
        if self._is_closed:
            return 0
        return markers.count_partial(self._text, self._position, at_line_start=self._is_line_start)

    def _read(self, sink: TextSink, end: int) -> None:
        if end > self._position:
            sink(self._text[self._position : end])
            self._position = end
            self._is_line_start = False


class BoundedText:
    """Collects text while it streams, and stops storing it soon after `MAX_CALL_CHARS` characters."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        """Add a piece; it is stored only if the text is not too long already."""
        if not self.is_too_long:
            self._pieces.append(text)
        self.size += len(text)

    @property
    def is_too_long(self) -> bool:
        """True if the text is too long for a call."""
        return self.size > MAX_CALL_CHARS

    @property
    def text(self) -> str:
        """The collected text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


def discard(text: str) -> None:
    """Discard the text."""

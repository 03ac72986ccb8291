"""The buffer of a streamed reply, the markers that parsers search in it, and the output that they fill.

A marker is a string with a meaning in a model's chat template. Parsers read the text sequentially, independent of how
it was split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import cached_property

from dial_client.runtime.lazy_pattern import compile_lazily

# Matches a special token of a chat template, such as ``<|im_end|>``, which is never shown to the user.
CONTROL = r"<[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>"

_TOKEN_PART = compile_lazily(r"`?(?:<(?:[|\uff5c][^\s<>|\uff5c]{0,64}+[|\uff5c]?)?)?\Z")
_LONGEST_TOKEN = 69


class Markers:
    """Markers that are plain strings, none of them a prefix of another. Patterns are compiled on first use.

    Args:
        markers: The strings. The first character of a marker occurs only at its beginning, perhaps several times.
        tokens: True if all special tokens of chat templates are markers too, even unknown ones.
        in_code: True if each marker with a backtick before it is a marker too.
    """

    def __init__(self, *markers: str, tokens: bool = False, in_code: bool = False) -> None:
        self._markers = markers
        self._tokens = tokens
        self._in_code = in_code

    @cached_property
    def _known(self) -> frozenset[str]:
        in_code = (f"`{marker}" for marker in self._markers if self._in_code and marker[0] != "`")
        return frozenset((*self._markers, *in_code))

    @cached_property
    def pattern(self) -> str:
        """A regular expression for all markers."""
        parts = [_build_pattern(self._known)]
        if self._tokens:
            parts.append(f"`?{CONTROL}" if self._in_code else CONTROL)
        return "|".join(parts)

    @cached_property
    def leads(self) -> str:
        """The characters with which markers begin."""
        extra_leads = ("<" if self._tokens else "") + ("`" if self._in_code else "")
        return "".join(sorted({marker[0] for marker in self._known} | set(extra_leads)))

    @cached_property
    def has_lead(self) -> Callable[..., re.Match[str] | None]:
        """A function that returns None for a text without any character that could begin a marker."""
        return re.compile(f"[{re.escape(self.leads)}]").search

    @cached_property
    def _search(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(self.pattern).search

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(marker[:length] for marker in self._known for length in range(1, len(marker)))

    @cached_property
    def _longest(self) -> int:
        return max([_LONGEST_TOKEN if self._tokens else 0, *map(len, self._known)])

    def search(self, text: str, start: int, *, at_line_start: bool = False) -> re.Match[str] | None:  # noqa: ARG002 - for labels
        """Return the first complete marker from `start` on.

        Args:
            text: The text to search.
            start: The index at which the search begins.
            at_line_start: True if `start` counts as the start of a line, whatever the text before it.
        """
        # To compile the pattern of all markers takes half as long as a short turn, and many replies have no lead.
        lead = self.has_lead(text, start)
        return None if lead is None else self._search(text, lead.start())

    def count_partial(self, text: str, start: int, *, at_line_start: bool = False) -> int:  # noqa: ARG002 - as above
        """Return the number of characters at the end of the text, from `start` on, that may begin a marker."""
        size = len(text)
        begin = max(start, size - self._longest)
        partial = 0
        for lead in self.leads:
            index = text.rfind(lead, begin)
            while index >= begin and self._may_begin(text, index):
                partial = max(partial, size - index)
                index = index - 1 if text[index - 1 : index] == lead else -1
        return partial

    def _may_begin(self, text: str, index: int) -> bool:
        return text[index:] in self._beginnings or (self._tokens and _TOKEN_PART.match(text, index) is not None)


def _build_pattern(strings: Iterable[str]) -> str:
    """Return a pattern for any of the strings, as a tree of common prefixes, which matches without backtracking."""
    tails: dict[str, set[str]] = {}
    for string in strings:
        tails.setdefault(string[:1], set()).add(string[1:])
    parts = []
    for first in sorted(tails):
        rest = tails[first]
        parts.append(re.escape(first) + ("" if rest == {""} else _build_pattern(rest)))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


# The most characters of a call; a longer text is not a call.
MAX_CALL_CHARS = 1_000_000
# The most characters that a parser may look ahead.
MAX_HEAD_CHARS = 512

# Receives text that was read, in order to show, store or discard it.
TextSink = Callable[[str], None]
# A generator that parses a part of a reply, and yields when it needs more text.
Parsing = Generator[None, None, None]
# A generator that parses up to a marker, and returns the marker; empty at the end of the reply.
MarkerSearch = Generator[None, None, str]
# True if the following text matches; False if it does not; None if more text is needed to decide.
Lookahead = bool | None


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

    def read_until(self, markers: Markers, sink: TextSink) -> MarkerSearch:
        """Read up to and including the next marker, and return it; `sink` receives earlier text as soon as possible."""
        while (found := markers.search(self._text, self._position, at_line_start=self._is_line_start)) is None:
            held = 0  # the characters at the end that may be the beginning of a marker
            if not self._is_closed:
                held = markers.count_partial(self._text, self._position, at_line_start=self._is_line_start)
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


# The number of last visible characters to store, which could form a marker with the following text.
_TAIL_CHARS = 80


class ReplyOutput:
    """Collects the visible text and the reasoning of a reply.

    White space at the beginning is held back, and dropped if there is a marker before the first word.
    """

    def __init__(self) -> None:
        self.tail = ""
        """The last visible characters."""
        self.has_begun = False
        """True if there is visible text other than white space."""
        self._visible: list[str] = []
        self._leading_space: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_chars = 0
        self._has_marker = False
        self._is_taken = False
        self.is_withdrawn = False
        """True if text that was already taken has turned out to be reasoning."""
        self._stripped: str | None = None

    def note_marker(self) -> None:
        """Record that the reply contains a marker, so that white space at its beginning is dropped."""
        self._has_marker = True

    def add_text(self, text: str) -> None:
        """Add visible text."""
        if not self.has_begun:
            self._leading_space.append(text)
            if not text.strip(self._stripped):
                return
            text = "".join(self._leading_space)
            text = text.lstrip(self._stripped) if self._has_marker else text
            self._leading_space.clear()
            self.has_begun = True
        self._visible.append(text)
        self.tail = text[-_TAIL_CHARS:] if len(text) >= _TAIL_CHARS else (self.tail + text)[-_TAIL_CHARS:]

    def add_reasoning(self, text: str) -> None:
        """Add reasoning, up to a limit, because the caller may never take it."""
        if self._reasoning_chars < MAX_CALL_CHARS:
            self._reasoning.append(text)
            self._reasoning_chars += len(text)

    def begin_answer(self, stripped: str | None) -> None:
        """Begin a new paragraph. `stripped` are the characters to drop at its beginning; None for white space."""
        if self.has_begun:
            self._visible.append("\n")
        self.has_begun = False
        self._stripped = stripped

    def move_text_to_reasoning(self) -> bool:
        """Convert all text so far to reasoning; return False if some of it was already taken."""
        self.is_withdrawn = self._is_taken
        self.add_reasoning("".join((*self._visible, *self._leading_space)))
        self._visible.clear()
        self._leading_space.clear()
        self.has_begun, self.tail = False, ""
        return not self._is_taken

    def close(self) -> None:
        """Release held-back white space if the reply contains nothing else."""
        if not (self.has_begun or self._has_marker):
            self._visible += self._leading_space
            self._leading_space.clear()

    def take_text(self) -> str:
        """Return the visible text since the last call."""
        if not self._visible:
            return ""
        text = "".join(self._visible)
        self._visible.clear()
        self._is_taken = self._is_taken or bool(text)
        return text

    def take_reasoning(self) -> str:
        """Return the reasoning since the last call."""
        if not self._reasoning:
            return ""
        text, self._reasoning_chars = "".join(self._reasoning), 0
        self._reasoning.clear()
        return text

"""The text of a reply while it comes: read from front to back, in whatever pieces."""

from __future__ import annotations

from collections.abc import Callable, Generator

from dial_client.formats.special_tokens import Marked

MAX_CALL_CHARS = 1_000_000
"""Characters of one call; a longer one is none."""
MAX_HEAD_CHARS = 512
"""Characters within which it must be known what a text is."""

Take = Callable[[str], None]
"""Where text goes that is read: shown, kept or dropped."""
Steps = Generator[None, None, str]
"""A part of a reading: yields where more text is needed, gives the marker it met, empty at the end of the reply."""
StepResult = bool | None
"""Whether a text is what it may be; None where more of it must be seen."""


class StreamBuffer:
    """The text of a reply, of which more may come."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._fresh = True
        self._ended = False
        self._stops: Callable[[str], object] | None = None
        self._take: Take = drop

    def passes(self, text: str) -> bool:
        """Take a piece in which no marker can begin, the shortest way; False where it must be looked at."""
        if self._stops is None or self._stops(text) is not None:
            return False
        self._take(text)
        return True

    def add(self, text: str) -> None:
        """Take more of the reply."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """Take note that nothing more comes."""
        self._ended = True
        self._stops = None

    def until(self, markers: Marked, take: Take) -> Steps:
        """Read up to the next marker and beyond it; `take` gets the text before it, as soon as that is known."""
        while (found := markers.search(self._text, self._at, fresh=self._fresh)) is None:
            held = 0 if self._ended else markers.held(self._text, self._at, fresh=self._fresh)
            self._read(take, len(self._text) - held)
            if self._ended:
                return ""
            if not (held or self._fresh):
                self._stops, self._take = markers.first, take
            yield
            self._stops = None
        self._read(take, found.start())
        self._at = found.end()
        self._fresh = False
        return found.group()

    def some(self, take: Take) -> Generator[None, None, bool]:
        """Read what there is, at least a character; False at the end of the reply."""
        while self._at == len(self._text):
            if self._ended:
                return False
            yield
        self._read(take, len(self._text))
        return True

    def look(self, decide: Callable[[str], StepResult]) -> Generator[None, None, bool]:
        """Ask what comes, without reading it.

        Args:
            decide: is given up to `MAX_HEAD_CHARS` characters; what it says of a text must hold for every longer one,
                so that it does not matter in which pieces the reply comes.
        """
        while True:
            head = self._text[self._at : self._at + MAX_HEAD_CHARS]
            verdict = decide(head) if head else None
            if verdict is not None:
                return verdict
            if self._ended or len(head) == MAX_HEAD_CHARS:
                return False
            yield

    def freshen(self) -> None:
        """Let a line begin here: behind a marker nobody sees."""
        self._fresh = True

    def unread(self, marker: str) -> None:
        """Let the marker that was just met be met again."""
        self._at -= len(marker)

    def put_back(self, text: str) -> None:
        """Let this be read once more."""
        self._text = text + self._text[self._at :]
        self._at = 0
        self._fresh = True

    def _read(self, take: Take, end: int) -> None:
        if end > self._at:
            take(self._text[self._at : end])
            self._at = end
            self._fresh = False


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
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


def drop(text: str) -> None:
    """Take text that nobody sees."""

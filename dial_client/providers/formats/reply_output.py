"""The visible text and the reasoning of a reply, stored until the reader returns them."""

from __future__ import annotations

from dial_client.providers.formats.stream_buffer import MAX_CALL_CHARS

_TAIL_CHARS = 80
"""The number of last visible characters to store, which could form a marker with the following text."""


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
        if self._is_taken:
            return False
        self.add_reasoning("".join((*self._visible, *self._leading_space)))
        self._visible.clear()
        self._leading_space.clear()
        self.has_begun, self.tail = False, ""
        return True

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
        text = "".join(self._reasoning)
        self._reasoning.clear()
        self._reasoning_chars = 0
        return text

"""One completion that Tab proposes."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.text.safe_text import one_line


@dataclass(frozen=True, slots=True)
class Proposal:
    """One completion."""

    text: str
    """Takes the place of what is replaced."""
    replaced: int
    """Characters before the cursor."""
    about: str = ""

    @property
    def is_safe(self) -> bool:
        """True if the text is the same when it is shown: a completed line is sent unchanged."""
        text = self.text.rstrip(" ")
        return text == one_line(text, len(text) + 1)

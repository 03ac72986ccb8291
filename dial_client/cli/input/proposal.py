"""One completion that Tab proposes."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.runtime.safe_text import to_one_line


@dataclass(frozen=True, slots=True)
class Proposal:
    """One completion."""

    text: str
    """The completed text, which replaces the last `replaced` characters."""
    replaced: int
    """The number of characters before the cursor to replace."""
    about: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether the displayed form is the text itself, because a completed line is sent without a further look."""
        text = self.text.rstrip(" ")
        return text == to_one_line(text, len(text) + 1)

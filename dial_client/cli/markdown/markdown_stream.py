"""One answer of the model as it streams: blocks that are complete, and a draft of the block that is not."""

from __future__ import annotations

from collections.abc import Callable

from dial_client.cli.markdown.themes import Theme
from dial_client.text.safe_text import SafeStream


class MarkdownStream:
    """Renders one message.

    Args:
        columns: returns the width of the terminal.
        theme: the colours.
    """

    def __init__(self, columns: Callable[[], int], theme: Theme) -> None:
        self._columns = columns
        self._theme = theme
        self._safe_text = SafeStream()
        self._line = ""

    def feed(self, text: str) -> str:
        """Add a piece of the message; return what became final: whole lines with ANSI sequences, or nothing."""
        *lines, self._line = (self._line + self._safe_text.feed(text)).split("\n")
        return "".join(f"{line}\n" for line in lines)

    def draft(self, rows: int) -> str:
        """Return the unfinished block as it looks now: at most so many rows, its end if it has more."""
        width = max(1, self._columns() - 1)
        pieces = [self._line[at : at + width] for at in range(0, len(self._line), width)]
        return "\n".join(pieces[-rows:])

    def finish(self) -> str:
        """End the message, and return what is left, as whole lines."""
        rest, self._line = self._line + self._safe_text.finish(), ""
        return f"{rest}\n" if rest else ""

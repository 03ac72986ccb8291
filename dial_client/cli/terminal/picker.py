"""A list in the live area: typed words filter it, the arrow keys move through it, Enter chooses an item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from dial_client.cli.cell_width import fit
from dial_client.cli.command_screen import MAX_FOUND, Choice, Search
from dial_client.cli.markdown.themes import Theme, style
from dial_client.messages.errors import DialError
from dial_client.runtime.safe_text import to_one_line

MAX_ITEMS = 12
"""The maximum number of items that are shown at once."""
HINT = "type to search · ↑ ↓ choose · Enter takes · Esc leaves"


@dataclass(eq=False)
class Picker:
    """The items that were found, and the marked item.

    Args:
        search: Finds the items.
        theme: The colours.
        on_change: Is called when the list must be redrawn.
    """

    search: Search
    theme: Theme
    on_change: Callable[[], None]
    found: Sequence[Choice] = ()
    words: str = ""
    """The words that were typed last."""
    marked: int = 0
    problem: str = ""
    """The reason why the last search failed; empty if it did not."""
    _searched: str | None = None
    """The words of the items in `found`."""
    _typed: anyio.Event = field(default_factory=anyio.Event)

    def type(self, words: str) -> None:
        """Search for other words."""
        self.words = words
        self._typed.set()

    def move(self, items: int) -> None:
        """Move the mark down by `items`; a single step wraps around at the ends of the list."""
        count = len(self.found)
        if count:
            at = self.marked + items
            self.marked = at % count if abs(items) == 1 else max(0, min(count - 1, at))
            self.on_change()

    async def follow(self) -> None:
        """Search whenever other words are typed, until cancelled."""
        while True:
            self._typed = anyio.Event()
            await self.update()
            await self._typed.wait()

    async def update(self) -> None:
        """Search for the words that were typed last, unless `found` has their items already."""
        while self._searched != self.words:
            words = self.words
            try:
                found, self.problem = await self.search(words), ""
            except DialError as error:
                found, self.problem = (), to_one_line(str(error), 200)
            self.found, self._searched, self.marked = found, words, 0
            self.on_change()

    @property
    def value(self) -> str | None:
        """The value of the marked item; None if nothing was found."""
        return self.found[self.marked].value if self.found else None

    def format_lines(self, columns: int, rows: int) -> list[str]:
        """Return the list in at most `rows` rows, with a hint on the last row."""
        most = max(1, min(MAX_ITEMS, rows - 1))
        first = max(0, min(self.marked - most // 2, len(self.found) - most))
        lines = []
        for at, choice in enumerate(self.found[first : first + most], first):
            is_marked = at == self.marked
            line = fit(f"{'→ ' if is_marked else '  '}{to_one_line(choice.label, 500)}", columns - 1)
            lines.append(style(line, self.theme.strong) if is_marked else line)
        if not lines and self._searched is not None:
            lines = [fit(self.problem or f"  nothing contains {to_one_line(self._searched, 60)!r}", columns - 1)]
        more = " or more" if len(self.found) >= MAX_FOUND else ""
        count = f"{self.marked + 1} of {len(self.found)}{more} · " if len(self.found) > most else ""
        return [*lines, style(fit(f"{count}{HINT}", columns - 1), self.theme.faint)][-rows:]

"""The part of the terminal that commands use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dial_client.cli.chat_commands.choice import Search


class CommandScreen(Protocol):
    """Prints and asks. The questions raise `tty.Unanswered` where the person presses Ctrl-C or Ctrl-D."""

    def print(self, text: str) -> None:
        """Print lines; text of models and servers in it is safe already."""
        ...

    def print_prose(self, text: str) -> None:
        """Print sentences of the program, broken between words where the terminal would break them elsewhere."""
        ...

    async def ask_key(self, lines: Sequence[str], question: str, keys: Mapping[str, str]) -> str:
        """Return the key that is pressed; `keys` has the meaning of each, and other keys ask again."""
        ...

    async def ask_line(self, question: str, *, hidden: bool = False, default: str = "") -> str:
        """Return the line that is typed."""
        ...

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Return the value of the item that is chosen, after a search for words; None for none."""
        ...

    async def page(self, text: str) -> None:
        """Show a text that may be long, safe already: page by page, where that is possible."""
        ...

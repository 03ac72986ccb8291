"""The interface of the terminal that commands use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dial_client.cli.chat_commands.choice import Search


class CommandScreen(Protocol):
    """Prints text and asks questions. Questions raise `tty.Unanswered` if the user presses Ctrl-C or Ctrl-D."""

    def print(self, text: str) -> None:
        """Print lines; text of models and servers in them must be escaped already."""
        ...

    def print_prose(self, text: str) -> None:
        """Print sentences of the program, with word wrap in a terminal."""
        ...

    async def ask_key(self, lines: Sequence[str], question: str, keys: Mapping[str, str]) -> str:
        """Return the pressed key. `keys` maps each valid key to its meaning; for any other key, ask again."""
        ...

    async def ask_line(self, question: str, *, hidden: bool = False, default: str = "") -> str:
        """Return the typed line."""
        ...

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Return the value of the item that the user chooses, after a search for `words`; None if they choose none."""
        ...

    async def page(self, text: str) -> None:
        """Show a text that may be long, page by page if possible. The text must be escaped already."""
        ...

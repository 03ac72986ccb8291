"""A screen of lines, for terminals without a live area: what commands print and ask."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from dial_client.cli import tty
from dial_client.cli.chat_commands.choice import Search
from dial_client.cli.chat_commands.pick import choose_by_number
from dial_client.cli.word_wrap import break_words


class PlainScreen:
    """Prints lines, and asks on a line of its own."""

    def print(self, text: str) -> None:
        """Print lines."""
        print(text, flush=True)

    def print_prose(self, text: str) -> None:
        """Print lines: in a terminal broken between words, else as they are, because a program may read them."""
        self.print(break_words(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)

    async def ask_key(self, lines: Sequence[str], question: str, keys: Mapping[str, str]) -> str:
        """Return one of the keys, typed as a line; other answers ask again."""
        for line in lines:
            print(line, file=sys.stderr)
        while True:
            answer = (await tty.typed(f"{question} ")).strip().lower()
            if answer in keys:
                return answer
            print("; ".join(f"{key}: {meaning}" for key, meaning in keys.items()), file=sys.stderr)

    async def ask_line(self, question: str, *, hidden: bool = False, default: str = "") -> str:
        """Return the line that is typed, or `default`, which the question shows, for an empty one."""
        shown = f"{question} [{default}] " if default else f"{question} "
        return await tty.typed(shown, hidden=hidden) or default

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Return the value of the item whose number is typed; None for an empty line."""
        return await choose_by_number(self, question, search, words)

    async def page(self, text: str) -> None:
        """Print the text: the terminal may be one that only prints, or that is read aloud."""
        self.print(text)

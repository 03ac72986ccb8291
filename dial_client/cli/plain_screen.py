"""The screen of commands in a terminal without a live area: prints lines and reads lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from dial_client.cli import tty
from dial_client.cli.command_screen import Search, choose_by_number
from dial_client.cli.word_wrap import break_words


class PlainScreen:
    """Prints lines, and reads each answer as a line."""

    def print(self, text: str) -> None:
        """Print lines."""
        print(text, flush=True)

    def print_prose(self, text: str) -> None:
        """Print text with word wrap in a terminal; elsewhere without, because a program may read the output."""
        self.print(break_words(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)

    async def ask_key(self, lines: Sequence[str], question: str, keys: Mapping[str, str]) -> str:
        """Ask until the user types one of the keys as a line, and return it."""
        for line in lines:
            print(line, file=sys.stderr)
        while True:
            answer = (await tty.ask_for_line(f"{question} ")).strip().lower()
            if answer in keys:
                return answer
            print("; ".join(f"{key}: {meaning}" for key, meaning in keys.items()), file=sys.stderr)

    async def ask_line(self, question: str, *, hidden: bool = False, default: str = "") -> str:
        """Return the typed line; for an empty line return `default`, which the question shows."""
        shown = f"{question} [{default}] " if default else f"{question} "
        return await tty.ask_for_line(shown, hidden=hidden) or default

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Return the value of the item whose number is typed; None for an empty line."""
        return await choose_by_number(self, question, search, words)

    async def page(self, text: str) -> None:
        """Print the text without a pager, because a dumb terminal or a screen reader cannot use one."""
        self.print(text)

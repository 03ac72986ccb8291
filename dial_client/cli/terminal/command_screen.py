"""The screen of commands: its interface, its form without a live area, and the choice of an item from a list."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dial_client.cli.markdown.themes import MONO, Theme
from dial_client.cli.streams import tty
from dial_client.cli.streams.word_wrap import break_words
from dial_client.cli.terminal.attention import QUESTION, Attention
from dial_client.runtime.safe_text import sanitize
from dial_client.settings.config_types import Notification


@dataclass(frozen=True, slots=True)
class Choice:
    """An item of a list."""

    value: str
    """The value that is returned if the item is chosen."""
    label: str
    """One line of text, escaped already."""


# The maximum number of items that a search returns; more words find the other items.
MAX_FOUND = 100

# Returns the rows of a panel for a width in columns and a maximum of rows; foreign text in them is escaped already.
Panel = Callable[[int, int], list[str]]

# Returns the items that contain all words of a text, at most `MAX_FOUND`; for an empty text it returns all items.
Search = Callable[[str], Awaitable[Sequence[Choice]]]


class CommandScreen(Protocol):
    """Prints text and asks questions. Questions raise `tty.Unanswered` if the user presses Ctrl-C or Ctrl-D."""

    @property
    def theme(self) -> Theme:
        """The colours of its output."""

    @property
    def set_theme(self) -> Callable[[str], None] | None:
        """Sets the colours by the name of a theme, or raises `KeyError`; None if the screen has no colours."""

    def render(self, answer: str) -> str:
        """Format an answer of the model for the terminal."""

    def suspend(self) -> AbstractAsyncContextManager[None]:
        """Leave the terminal to another program in this context."""

    def print(self, text: str) -> None:
        """Print lines; text of models and servers in them must be escaped already."""

    def print_prose(self, text: str) -> None:
        """Print sentences of the program, with word wrap in a terminal."""

    def show_panel(self, panel: Panel, notice: str) -> AbstractContextManager[None]:
        """Show rows above the questions of this context; where nothing can be drawn, do nothing.

        `notice` is the text of a notification for a user who has turned to something else.
        """

    async def ask_key(
        self,
        lines: Sequence[str],
        question: str,
        keys: Mapping[str, str],
        *,
        on_move: Callable[[int], None] | None = None,
    ) -> str:
        """Return the pressed key. `keys` maps each valid key to its meaning; for any other key, ask again.

        `on_move` is called with a number of rows for the keys that move through a list, which answer nothing.
        """

    async def ask_line(
        self, question: str, *, hidden: bool = False, default: str = "", on_move: Callable[[int], None] | None = None
    ) -> str:
        """Return the typed line. Esc raises `tty.Escaped`; `on_move` is as for `ask_key`."""

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Return the value of the item that the user chooses, after a search for `words`; None if they choose none."""

    async def page(self, text: str) -> None:
        """Show a text that may be long, page by page if possible. The text must be escaped already."""


# The maximum number of items that are printed at once.
ROWS = 12


async def pick(screen: CommandScreen, question: str, search: Search, *, nothing: str, words: str = "") -> str | None:
    """Let the user choose an item, and return its value; None if they choose none, or there are no items.

    Args:
        screen: The screen that asks.
        question: The kind of item, in one or two words.
        search: Finds the items.
        nothing: The text to print if there are no items at all.
        words: The words of the first search.
    """
    if not words and not await search(""):
        screen.print_prose(nothing)
        return None
    return await screen.choose(question, search, words)


async def choose_by_number(screen: CommandScreen, question: str, search: Search, words: str = "") -> str | None:
    """Print the items with numbers, ask for a number or for words to search for, and return the value of an item.

    Returns None for an empty line. The arguments are those of `pick`.
    """
    while True:
        found = await search(words)
        for number, choice in enumerate(found[:ROWS], 1):
            screen.print_prose(f"{number:>3}  {choice.label}")
        if not found:
            screen.print_prose(f"Nothing contains {words!r}.")
        elif len(found) > ROWS:
            screen.print_prose("     … there are more: search for a word")
        answer = (await screen.ask_line(f"{question}: number, or words to search for (Enter: none):")).strip()
        if not answer:
            return None
        if answer.isdecimal() and 0 < int(answer) <= min(len(found), ROWS):
            return found[int(answer) - 1].value
        words = answer


class PlainScreen:
    """Prints lines, and reads each answer as a line."""

    theme = MONO
    set_theme: Callable[[str], None] | None = None
    suspend = nullcontext
    """Does nothing, because nothing is drawn."""

    def __init__(self) -> None:
        self.attention = Attention()

    def notify_by(self, kind: Notification) -> None:
        """Tell the user in this way that an approval or an answer waits for them."""
        self.attention.kind = kind

    async def ask(self, question: str, *, hidden: bool = False, notice: str = QUESTION) -> str:
        """Return the line that is typed after a question, as `tty.ask_for_line` does; notify the user in time.

        Args:
            question: The question, in one line.
            hidden: Do not show the typed characters.
            notice: The words of the notification.
        """
        self.attention.expect(notice)
        asked = partial(tty.ask_for_line, question, hidden=hidden)
        return await self.attention.notify_during(asked, sys.__stderr__ or sys.stderr)

    def render(self, answer: str) -> str:
        """Return the text without control characters, with word wrap in a terminal."""
        return self._wrap(sanitize(answer))

    def print(self, text: str) -> None:
        """Print lines."""
        print(text, flush=True)

    def print_prose(self, text: str) -> None:
        """Print text with word wrap in a terminal; elsewhere without, because a program may read the output."""
        self.print(self._wrap(text))

    def _wrap(self, text: str) -> str:
        return break_words(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text

    def show_panel(self, panel: Panel, notice: str) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is drawn
        """Do nothing, because nothing is drawn."""
        return nullcontext()

    async def ask_key(
        self,
        lines: Sequence[str],
        question: str,
        keys: Mapping[str, str],
        *,
        on_move: Callable[[int], None] | None = None,  # noqa: ARG002 - there is nothing to move
    ) -> str:
        """Ask until the user types one of the keys as a line, and return it."""
        for line in lines:
            print(line, file=sys.stderr)
        while True:
            answer = (await self.ask(f"{question} ")).strip().lower()
            if answer in keys:
                return answer
            print("; ".join(f"{key}: {meaning}" for key, meaning in keys.items()), file=sys.stderr)

    async def ask_line(
        self,
        question: str,
        *,
        hidden: bool = False,
        default: str = "",
        on_move: Callable[[int], None] | None = None,  # noqa: ARG002 - there is nothing to move
    ) -> str:
        """Return the typed line; for an empty line return `default`, which the question shows."""
        shown = f"{question} [{default}] " if default else f"{question} "
        return await self.ask(shown, hidden=hidden) or default

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Return the value of the item whose number is typed; None for an empty line."""
        return await choose_by_number(self, question, search, words)

    async def page(self, text: str) -> None:
        """Print the text without a pager, because a dumb terminal or a screen reader cannot use one."""
        self.print(text)

"""A choice from a list: by its number, or after a search."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dial_client.cli.chat_commands.command_screen import CommandScreen

ROWS = 12
"""The most items that are shown at once."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An item of a list."""

    value: str
    """What is returned for it."""
    label: str
    """One line, safe to print."""


Search = Callable[[str], Awaitable[Sequence[Choice]]]
"""Returns the items that contain all these words, the most likely first; all items for no word."""


async def pick(screen: CommandScreen, search: Search, *, nothing: str, words: str = "") -> str | None:
    """Let the person choose an item, and return its value; None where they choose none, or there is none.

    Args:
        screen: prints the list, and asks.
        search: finds the items.
        nothing: what to print where there are no items at all.
        words: of the first search.
    """
    while True:
        found = await search(words)
        if not found and not words:
            screen.print(nothing)
            return None
        for number, choice in enumerate(found[:ROWS], 1):
            screen.print(f"{number:>3}  {choice.label}")
        if not found:
            screen.print(f"Nothing contains {words!r}.")
        elif len(found) > ROWS:
            screen.print("     … there are more: search for a word")
        answer = (await screen.ask_line("Number, or words to search for (Enter: none): ")).strip()
        if not answer:
            return None
        if answer.isdecimal() and 0 < int(answer) <= min(len(found), ROWS):
            return found[int(answer) - 1].value
        words = answer

"""A choice from a list: in the live area, or by number if there is no live area."""

from __future__ import annotations

from dial_client.cli.chat_commands.choice import Search
from dial_client.cli.chat_commands.command_screen import CommandScreen

ROWS = 12
"""The maximum number of items that are printed at once."""


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
        screen.print(nothing)
        return None
    return await screen.choose(question, search, words)


async def choose_by_number(screen: CommandScreen, question: str, search: Search, words: str = "") -> str | None:
    """Print the items with numbers, ask for a number or for words to search for, and return the value of an item.

    Returns None for an empty line. The arguments are those of `pick`.
    """
    while True:
        found = await search(words)
        for number, choice in enumerate(found[:ROWS], 1):
            screen.print(f"{number:>3}  {choice.label}")
        if not found:
            screen.print(f"Nothing contains {words!r}.")
        elif len(found) > ROWS:
            screen.print("     … there are more: search for a word")
        answer = (await screen.ask_line(f"{question}: number, or words to search for (Enter: none):")).strip()
        if not answer:
            return None
        if answer.isdecimal() and 0 < int(answer) <= min(len(found), ROWS):
            return found[int(answer) - 1].value
        words = answer

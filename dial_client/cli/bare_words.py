"""Prompts of a single word that resembles a command. The user probably meant the command; a question costs money."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from dial_client.cli.command_line import find_prompt_words
from dial_client.cli.typer_apps import list_command_names

_CUTOFF = 0.75
"""The minimum similarity, from 0 to 1, for a word to count as a mistyped command."""
_ALIASES = {
    "help": "--help",
    "version": "--version",
    "history": "conversations",
    "sessions": "conversations",
    "chats": "conversations",
    "resume": "--resume=",
    "continue": "--continue",
    "chat": "",
    "login": "servers login NAME",
    "logout": "servers logout NAME",
    "export": "conversations export ID",
    "import": "conversations import FILE",
    "delete": "conversations delete ID",
    "update": "pip install --upgrade dial-client",
    "upgrade": "pip install --upgrade dial-client",
    "setup": "init",
    "check": "doctor",
    "diagnose": "doctor",
}
"""Command words of other programs, each with its equivalent here."""


def resolve_bare_word(words: Sequence[str]) -> list[str] | None:
    """Return the arguments to run for a prompt of one word; None to run nothing.

    A word that resembles no command is a question for the model. For any other word the user is asked in a terminal;
    without a terminal nothing is sent, and a message on standard error names the command.
    """
    place = find_prompt_words(words)[0]
    word = words[place]
    near = find_near_command(word)
    if near is None:
        return [*words]
    shown = near if near.startswith("pip ") else f"dial-chat {near.removesuffix('=')}".strip()
    can_run = near == near.lower() and not near.startswith("pip ")
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not is_terminal:
        hint = f"did you mean: {shown}; to ask the model: dial-chat -- {word}"
        print(f"dial-chat: {word!r} is not a command; {hint}", file=sys.stderr)
        return None
    answer = _ask(word, shown, can_run=can_run)
    if answer == "s":
        return [*words[:place], *words[place + 1 :], "--", word]
    return [*words[:place], *near.split(), *words[place + 1 :]] if answer == "r" else None


def find_near_command(word: str) -> str | None:
    """Return the arguments of the command that a word resembles; None if it resembles none."""
    commands = list_command_names()
    if word.lower() in commands:
        return word.lower()
    if word.lower() in _ALIASES:
        return _ALIASES[word.lower()]
    near = difflib.get_close_matches(word.lower(), [*commands, *_ALIASES], n=1, cutoff=_CUTOFF)
    return _ALIASES.get(near[0], near[0]) if near else None


def _ask(word: str, shown: str, *, can_run: bool) -> str:
    """Return ``r`` to run the command, ``s`` to send the word, or ``q`` to quit."""
    print(f"dial-chat: {word!r} is not a command. Did you mean: {shown}", file=sys.stderr)
    question = f"{'[r]un that, ' if can_run else ''}[s]end {word!r} to the model, [q]uit: "
    while True:
        try:
            print(question, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            line = ""
        answer = line.strip().lower()[:1]
        if not line or answer == "q":
            print(file=sys.stderr)
            return "q"
        if answer == "s" or (answer == "r" and can_run):
            return answer

"""The words of a command line: which command they name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from typer.core import TyperOption
from typer.main import get_command

from dial_client.cli.typer_apps import more, talk


def split_command(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the command among the arguments, wherever options stand, and the other words: without one, a prompt."""
    places = find_prompt_words(words)
    if places and words[places[0]] in command_names():
        return words[places[0]], [*words[: places[0]], *words[places[0] + 1 :]]
    return None, [*words]


def command_names() -> set[str]:
    """Return the names of the commands beside the chat."""
    return {info.name or info.callback.__name__ for info in more.registered_commands if info.callback}


def find_prompt_words(words: Sequence[str]) -> list[int]:
    """Return the indexes of the words that are neither options nor their values, up to ``--``."""
    takes_value = {
        flag
        for parameter in get_command(talk).params
        if isinstance(parameter, TyperOption) and not parameter.is_flag
        for flag in parameter.opts
    }
    found: list[int] = []
    skip = False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            break
        elif word.startswith("-") and len(word) > 1:
            skip = word in takes_value
        else:
            found.append(at)
    return found


def is_bare_word(words: Sequence[str]) -> bool:
    """Return True if the prompt is a single word: it may be meant as a command."""
    places = find_prompt_words(words)
    return (
        "--" not in words
        and len(places) == 1
        and re.fullmatch(r"[A-Za-z][A-Za-z-]{1,30}", words[places[0]]) is not None
    )


def name_choice(words: Sequence[str]) -> list[str]:
    """Return the words with ``--resume=`` for a ``--resume`` without an id, which asks for a conversation."""
    return [
        "--resume=" if word == "--resume" and (at + 1 == len(words) or words[at + 1].startswith("-")) else word
        for at, word in enumerate(words)
    ]

"""The words of a command line: which command they name."""

from __future__ import annotations

from collections.abc import Sequence

from typer.core import TyperOption
from typer.main import get_command

from dial_client.cli.typer_apps import more, talk


def split_command(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the command among the arguments, wherever options stand, and the other words: without one, a prompt."""
    commands = {info.name or info.callback.__name__ for info in more.registered_commands if info.callback}
    takes_value = {
        flag
        for parameter in get_command(talk).params
        if isinstance(parameter, TyperOption) and not parameter.is_flag
        for flag in parameter.opts
    }
    skip = False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            break
        elif word.startswith("-") and len(word) > 1:
            skip = word in takes_value
        else:
            return (word, [*words[:at], *words[at + 1 :]]) if word in commands else (None, [*words])
    return None, [*words]

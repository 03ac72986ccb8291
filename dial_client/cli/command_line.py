"""Parsing of a command line: the command that it names, and the words of a prompt."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from typer.core import TyperOption

from dial_client.cli.typer_apps import build_chat, list_command_names, list_group_commands

DEFAULT_COMMAND = "list"
"""The command that a group runs if the command line names none."""


def split_command(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the command that the arguments name, before or after options, and the other words.

    The command is None for a prompt. A command of a group is returned with the group's name: ``servers login``.
    """
    command, rest = find_command(words)
    commands = list_group_commands(command or "")
    if not commands or DEFAULT_COMMAND not in commands or find_prompt_words(rest) or {"-h", "--help"} & {*rest}:
        return command, rest  # the group itself shows its help, or reports an unknown command
    return f"{command} {DEFAULT_COMMAND}", rest


def find_command(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the command that the arguments name, or a group if they name none of its commands, and the other words."""
    command, rest = _take_command(words, list_command_names())
    subcommand, arguments = _take_command(rest, list_group_commands(command or ""))
    return (command, rest) if subcommand is None else (f"{command} {subcommand}", arguments)


def _take_command(words: Sequence[str], names: Container[str]) -> tuple[str | None, list[str]]:
    places = find_prompt_words(words)
    if places and words[places[0]] in names:
        return words[places[0]], [*words[: places[0]], *words[places[0] + 1 :]]
    return None, [*words]


def find_prompt_words(words: Sequence[str]) -> list[int]:
    """Return the indexes of the words that are neither options nor their values, up to ``--``."""
    takes_value = {
        flag
        for parameter in build_chat().params
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
    """Return True if the prompt is a single word, which may be a mistyped command."""
    places = find_prompt_words(words)
    return (
        "--" not in words
        and len(places) == 1
        and re.fullmatch(r"[A-Za-z][A-Za-z-]{1,30}", words[places[0]]) is not None
    )


def normalize_resume(words: Sequence[str]) -> list[str]:
    """Return the words; ``--resume`` without an id becomes ``--resume=``, which lets the user choose a conversation."""
    return [
        "--resume=" if word == "--resume" and (at + 1 == len(words) or words[at + 1].startswith("-")) else word
        for at, word in enumerate(words)
    ]

"""The reference of commands, from the same source as `--help`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.cli.commands.command_help import (
    DESCRIPTION,
    EXAMPLES,
    EXIT_CODES,
    USAGE,
    OptionHelp,
    describe_option,
    group_options,
    is_shown,
)


def write_commands() -> str:
    """Return the page: each command with its arguments and options."""
    from dial_client.cli.commands import program_commands as registered  # noqa: F401 - it registers the commands
    from dial_client.cli.commands.typer_commands import build_all_commands

    commands = build_all_commands()
    return "\n".join([*_chat(commands.pop("")), *_commands(commands), *_exit_codes()]) + "\n"


def _chat(command: Any) -> Iterator[str]:
    yield from ("# Commands", "", "The text of `--help` and of `man dial-chat`.", "")
    yield from ("## dial-chat", "", DESCRIPTION, "", "```text", *USAGE, "```", "")
    for heading, options in group_options(command):
        yield from (f"### {heading}", "", *_options(options))
    yield from ("### Examples", "", "```sh", *EXAMPLES, "```", "")


def _commands(commands: Mapping[str, Any]) -> Iterator[str]:
    for name, command in sorted(commands.items()):
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        words = [argument.metavar or (argument.name or "").upper() for argument in arguments]
        yield from (f"## dial-chat {name}", "", "```text", " ".join(["dial-chat", name, *words]), "```", "")
        yield from (_escape(command.help or ""), "")
        yield from _options([describe_option(option) for option in command.params if is_shown(option)])


def _options(options: list[OptionHelp]) -> Iterator[str]:
    if options:
        yield from ("| option | |", "|---|---|")
        yield from (f"| `{_cell(option.flags)}` | {_escape(_cell(option.text))} |" for option in options)
        yield ""


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {_escape(_cell(text))} |" for code, _, text in EXIT_CODES)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escape(text: str) -> str:
    """Return text in which HTML tags, emphasis and links are escaped."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")

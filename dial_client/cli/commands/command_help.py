"""The help of ``dial-chat``: its options by subject, its commands, exit codes and examples.

`site_pages.manual_page` writes the manual page from the same source, with the full text of each option.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand, TyperOption

from dial_client.cli.commands.typer_commands import describe_command, list_command_names

# The option groups of ``dial-chat --help``: headings with names of parameters. Other options form a last group.
GROUPS = (
    ("Model", "model base_url fallback_model system tool_format max_depth timeout tool_timeout no_stream"),
    ("Servers and tools", "config server profile trust strict allow deny mode yes policy sampling"),
    ("Conversation", "continue_latest resume all_folders no_save record no_audit audit_arguments"),
)
USAGE = ("dial-chat [OPTIONS] [PROMPT]", "dial-chat COMMAND [OPTIONS]")
DESCRIPTION = "Answer PROMPT and piped input with your MCP servers, or hold a conversation."
EXIT_CODES = (
    (0, "answered", "The question was answered, or the command did what it was asked."),
    (1, "failed", "A tool call, a login or a check failed, or something unexpected happened."),
    (2, "usage", "The command line or the configuration is wrong."),
    (3, "model", "The model could not be reached, or refused the request."),
    (4, "limit", "A limit was reached, and the text up to it is printed. Or the answer does not fit --schema."),
    (5, "call denied", "The question was answered, but a tool call was denied because it had no permission."),
    (6, "asks", "policy test: the call needs approval."),
    (130, "interrupted", "Ctrl-C."),
)
EXAMPLES = (
    'dial-chat "What changed in @CHANGELOG.md since May?"',
    'git diff | dial-chat -m local "Write a commit message"',
    """dial-chat --allow 'time/*' --output json "What time is it in Tokyo?\"""",
)
_COLUMN = 24
_COMMAND_COLUMN = 15
_REST = "Input and output"


@dataclass(frozen=True, slots=True)
class OptionHelp:
    """The help of one option."""

    flags: str
    """The names of the option, with its value: ``-m, --model NAME``."""
    text: str

    @property
    def first_sentence(self) -> str:
        """The text up to the end of its first sentence, without the full stop."""
        return self.text.partition(". ")[0].rstrip(".")


def group_options(command: Any) -> Iterator[tuple[str, list[OptionHelp]]]:
    """Yield the groups of the options of a chat that are not empty, with their headings."""
    options = {option.name: describe_option(option) for option in command.params if is_shown(option)}
    for heading, names in GROUPS:
        found = [options.pop(name) for name in names.split() if name in options]
        if found:
            yield heading, found
    yield _REST, [*options.values(), OptionHelp("-h, --help", "Show this help.")]


def is_shown(option: Any) -> bool:
    """Return True for an option that help shows."""
    return isinstance(option, TyperOption) and not option.hidden


def describe_option(option: Any) -> OptionHelp:
    """Return the help of an option."""
    flags = ", ".join(option.opts)
    value = option.metavar or (option.name or "").upper().rpartition("_")[2]
    return OptionHelp(flags if option.is_flag else f"{flags} {value}", option.help or "")


def format_chat_help(command: Any, commands: Iterable[str], width: int) -> str:
    """Return the text of ``dial-chat --help``."""
    lines = [f"{'Usage:' if usage is USAGE[0] else '':<6} {usage}" for usage in USAGE]
    lines += ["", *textwrap.wrap(DESCRIPTION, width)]
    for heading, options in group_options(command):
        lines += ["", f"{heading}:", *(line for option in options for line in _format_option(option, width))]
    lines += ["", "Commands, each with its own --help:"]
    for name in commands:
        # What follows a colon or a semicolon is in the help of the command itself.
        lines += _format_option(OptionHelp(name, re.split("[;:] ", describe_command(name))[0]), width, _COMMAND_COLUMN)
    codes = ", ".join(f"{code} {word}" for code, word, _ in EXIT_CODES)
    lines += ["", *textwrap.wrap(f"Exit codes: {codes}.", width, subsequent_indent="  ", break_on_hyphens=False)]
    lines += ["", "Examples:", *(f"  {example}" for example in EXAMPLES)]
    return "\n".join(lines)


def _format_option(option: OptionHelp, width: int, column: int = _COLUMN) -> list[str]:
    text = textwrap.wrap(option.first_sentence, width - column - 2)
    left = f"  {option.flags}"
    first = [left, text.pop(0)] if len(left) <= column else [left]
    lines = [f"{first[0]:<{column}}  {first[1]}" if len(first) > 1 else left]
    return lines + [" " * (column + 2) + line for line in text]


class ChatTyperCommand(TyperCommand):
    """The chat command, whose help groups the options by subject."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature of Typer
        """Write the help into the formatter."""
        formatter.write(format_chat_help(self, sorted(list_command_names()), formatter.width) + "\n")

"""The entry point of ``dial-chat``: finds the command of a command line, and runs it. It registers all commands."""

from __future__ import annotations

from collections.abc import Sequence

from dial_client.cli.commands import config_command, init_command, program_commands  # noqa: F401 - they register commands
from dial_client.cli.commands.command_line import is_bare_word, normalize_resume, resolve_bare_word, split_command
from dial_client.cli.commands.typer_apps import SETTINGS, build_command
from dial_client.cli.options import ExitCode


def run(arguments: Sequence[str]) -> int:
    """Run the command of these arguments, and return its exit code."""
    command, words = split_command(normalize_resume(arguments))
    if not command and is_bare_word(words):
        resolved = resolve_bare_word(words)
        if resolved is None:
            return int(ExitCode.USAGE)
        command, words = split_command(resolved)
    try:
        build_command(command, SETTINGS)([*(command or "").split(), *words], prog_name="dial-chat")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(ExitCode.UNEXPECTED)
    return int(ExitCode.ANSWERED)

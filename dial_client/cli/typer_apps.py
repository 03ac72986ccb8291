"""The Typer applications for the chat and for the other commands, and the function that runs a command."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command
from typer.models import CommandInfo

from dial_client.cli.options import Options

SETTINGS = {"help_option_names": ["-h", "--help"]}

chat_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The chat, which runs without a command name."""
command_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The commands other than the chat."""


@command_app.callback()
def _command_app() -> None:
    """The commands other than the chat."""


GROUPS = {"servers": ("dial_client.cli.server_commands", "Add, change, test and list MCP servers.")}
"""The groups of commands: ``dial-chat GROUP COMMAND``. Each has the module that registers its commands, which is
imported when a command of the group is named, and a text for ``--help``."""
_groups: dict[str, typer.Typer] = {}


def open_group_app(name: str) -> typer.Typer:
    """Return the application of a group, for the modules that register its commands."""
    if name not in _groups:
        _groups[name] = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        command_app.add_typer(_groups[name], name=name, help=GROUPS[name][1], context_settings=SETTINGS)
    return _groups[name]


def load_groups() -> None:
    """Import all groups, for completion and the manual page, which need all commands."""
    for name in GROUPS:
        list_group_commands(name)


def list_command_names() -> set[str]:
    """Return the names of the commands and groups other than the chat, without building or importing them."""
    return {*_list_names(command_app), *GROUPS}


def list_group_commands(name: str) -> set[str]:
    """Return the names of the commands of a group; an empty set if there is no such group."""
    if name not in GROUPS:
        return set()
    import_module(GROUPS[name][0])
    return {*_list_names(open_group_app(name))}


def select_command(app: typer.Typer, path: Sequence[str]) -> typer.Typer:
    """Return the application with one command or group only.

    Typer builds every parameter of every command of an application, which takes longer than most commands run.

    Args:
        app: The application.
        path: The name of the command or group; for a command of a group, the name of its group before it.
    """
    name, *rest = path
    selected = copy(app)
    selected.registered_commands = [info for info in app.registered_commands if _find_name(info) == name]
    selected.registered_groups = []
    for info in app.registered_groups:
        if info.name == name and info.typer_instance is not None:
            group = copy(info)
            group.typer_instance = select_command(info.typer_instance, rest) if rest else info.typer_instance
            selected.registered_groups.append(group)
    return selected


@cache
def build_chat() -> Any:
    """Return the command of the chat, built once: its options are needed to find the prompt, and then to run."""
    return get_command(chat_app)


def run_command(choose: Callable[[], Callable[[], Awaitable[int]]], options: Options) -> None:
    """Run the coroutine that `choose` returns, and exit with its code. `choose` imports what the command needs."""
    from dial_client.cli.process_runner import run_to_exit_code

    code = run_to_exit_code(choose, logs=options.logs)
    sys.stdout.flush()
    raise typer.Exit(code)


def _list_names(app: typer.Typer) -> list[str]:
    return [_find_name(info) for info in app.registered_commands]


def _find_name(info: CommandInfo) -> str:
    return info.name or (info.callback.__name__ if info.callback is not None else "")

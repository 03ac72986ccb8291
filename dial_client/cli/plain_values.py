"""Command line parameters that skip Typer's validation if their value does not need it.

Typer validates every value, even a missing one, with a pydantic adapter that it builds for each parameter. With thirty
options this takes a third of the program's start. A missing value needs no validation, and neither does text for a
parameter that expects text or a path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from dial_client.cli.typer_apps import build_chat, command_app, select_command


class PlainOption(TyperOption):
    """An option that uses Typer's validation only if its value needs it."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value of the option in the type that the command expects."""
        return _convert(self, ctx, value) if _is_plain(self, value) else super().process_value(ctx, value)


class PlainArgument(TyperArgument):
    """An argument that uses Typer's validation only if its value needs it."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value of the argument in the type that the command expects."""
        return _convert(self, ctx, value) if _is_plain(self, value) else super().process_value(ctx, value)


def build_command(name: str | None, settings: dict[str, Any]) -> Any:
    """Return the program with the command that will run and no other, with plain options and arguments.

    Args:
        name: The command, after the name of its group if it is in one; None for the chat.
        settings: The context settings of the command.
    """
    words = name.split() if name else []
    program = command = typer.main.get_command(select_command(command_app, words)) if words else build_chat()
    path = [program]
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
        path.append(command)
    for command in path:
        # Typer builds the parameters itself, including the help option, and offers no way to choose their class.
        for parameter in (*command.params, command.get_help_option(typer.Context(command, **settings))):
            if type(parameter) is TyperOption:
                parameter.__class__ = PlainOption
            elif type(parameter) is TyperArgument:
                parameter.__class__ = PlainArgument
    return program


def _is_plain(parameter: TyperOption | TyperArgument, value: Any) -> bool:
    if value is None:
        return not parameter.required
    expected = parameter.type_descriptor.annotation
    return type(value) is expected or (expected is Path and type(value) is str)


def _convert(parameter: TyperOption | TyperArgument, ctx: Any, value: Any) -> Any:
    if type(value) is str and parameter.type_descriptor.annotation is Path:
        return Path(value)  # the command that opens the file reports what is wrong with it
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)

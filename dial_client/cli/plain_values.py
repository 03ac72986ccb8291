"""Options and arguments of the command line whose values are taken as they are.

Typer checks every value, a missing one too, with a pydantic adapter that it builds for each parameter: a third of the
start of a program with thirty options. Nothing needs a check where no value was given, or the value is text and
text or a path is expected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption


class PlainOption(TyperOption):
    """An option that asks Typer only where its value needs a check."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value of the option as the command takes it."""
        return _convert(self, ctx, value) if _is_plain(self, value) else super().process_value(ctx, value)


class PlainArgument(TyperArgument):
    """An argument that asks Typer only where its value needs a check."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value of the argument as the command takes it."""
        return _convert(self, ctx, value) if _is_plain(self, value) else super().process_value(ctx, value)


def build_command(app: typer.Typer, name: str | None, settings: dict[str, Any]) -> Any:
    """Return the command of an application with plain options and arguments.

    Args:
        app: the application.
        name: of the command that will run, behind that of its group; None where the application is one command.
        settings: the context settings of the command.
    """
    program = command = typer.main.get_command(app)
    path = [program]
    for word in name.split() if name else ():
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
        path.append(command)
    for command in path:
        # Typer makes the parameters itself, the option for help too, and takes no class for them.
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

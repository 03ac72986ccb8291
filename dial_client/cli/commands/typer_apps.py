"""The Typer applications for the chat and for the other commands, built for one command with plain values.

Typer validates every value, even a missing one, with a pydantic adapter that it builds for each parameter. With thirty
options this takes a third of the program's start. A missing value needs no validation, and neither does text for a
parameter that expects text or a path.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from copy import copy
from dataclasses import is_dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command
from typer.models import CommandInfo

from dial_client.cli.options import Logs, Options, Verbose

PROGRAM = "dial-chat"
CommandRun = Coroutine[Any, Any, int | None]
"""The work of a command, which ends with the exit code; None for 0."""
CommandFunction = Callable[..., CommandRun]
SETTINGS = {"help_option_names": ["-h", "--help"]}

chat_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The chat, which runs without a command name."""
command_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The commands other than the chat."""


@command_app.callback()
def _command_app() -> None:
    """The commands other than the chat."""


GROUPS = {"servers": ("dial_client.cli.commands.servers_commands", "Add, change, test and list MCP servers.")}
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
    return {*map(_find_name, command_app.registered_commands), *GROUPS}


def list_group_commands(name: str) -> set[str]:
    """Return the names of the commands of a group; an empty set if there is no such group."""
    if name not in GROUPS:
        return set()
    import_module(GROUPS[name][0])
    return {*map(_find_name, open_group_app(name).registered_commands)}


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


class _Callback:
    """The function of a command, as Typer calls it: with one parameter for each option.

    A parameter of the function whose type is a dataclass of options becomes one parameter for each field.

    Args:
        function: The function of the command.
        program: The name of the command in the audit log, such as ``dial-chat call``.
        shared: The fields of `Options` that the command has.
    """

    def __init__(self, function: CommandFunction, program: str, shared: Sequence[str]) -> None:
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__annotations__: dict[str, Any] = {}  # Typer takes the types from the signature
        self._function, self._program, self._shared = function, program, shared
        self._fields: dict[str, tuple[Any, list[str]]] = {}
        """The parameters of the function that are dataclasses, each with its class and fields."""

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """The parameters for Typer. They are built only for the command that runs, because this takes a while."""
        hints = get_type_hints(self._function, include_extras=True)
        parameters = list[inspect.Parameter]()
        for parameter in inspect.signature(self._function).parameters.values():
            kind = hints[parameter.name]
            if is_dataclass(kind):
                names = [name for name in kind.__dataclass_fields__ if kind is not Options or name in self._shared]
                self._fields[parameter.name] = kind, names
                parameters += self._expand(kind, names)
            else:
                parameters.append(parameter.replace(annotation=kind))
        return inspect.Signature(parameters)

    def _expand(self, kind: Any, names: Sequence[str]) -> Iterator[inspect.Parameter]:
        hints = get_type_hints(kind, include_extras=True)
        if self._program != PROGRAM and kind is Options:
            hints["verbose"] = Verbose
        for name in names:
            default = kind.__dataclass_fields__[name].default
            annotation = hints[name]
            if default == ():  # Typer knows lists only
                annotation, default = Annotated[list[str] | None, get_args(annotation)[1]], None
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def __call__(self, **values: Any) -> None:
        """Run the command, and exit with its code."""
        arguments = dict(values)
        logs: Logs = "none"
        for parameter, (kind, names) in self._fields.items():
            chosen = {name: arguments.pop(name) for name in names}
            filled = {
                name: tuple(value or ()) if isinstance(kind.__dataclass_fields__[name].default, tuple) else value
                for name, value in chosen.items()
            }
            arguments[parameter] = kind(**filled, **({"command": self._program} if kind is Options else {}))
            if kind is Options:
                logs = arguments[parameter].logs
        from dial_client.cli.process_runner import run_to_exit_code

        code = run_to_exit_code(lambda: self._function(**arguments), logs=logs)
        sys.stdout.flush()
        raise typer.Exit(code)


def command(
    app: typer.Typer, *shared: str, name: str | None = None, **settings: Any
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function as a command of an application.

    The function gets its options as keywords, imports what the command needs, and returns the coroutine to run.

    Args:
        app: The application.
        shared: The fields of `Options` that the command has, if the function has a parameter `options`.
        name: The name of the command, if it is not the name of the function.
        settings: Further settings of Typer's commands.
    """

    def register(function: CommandFunction) -> CommandFunction:
        group = next((f"{group} " for group, group_app in _groups.items() if group_app is app), "")
        program = PROGRAM if app is chat_app else f"{PROGRAM} {group}{name or function.__name__}"
        app.command(name, context_settings=SETTINGS, **settings)(_Callback(function, program, shared))
        return function

    return register


def _find_name(info: CommandInfo) -> str:
    return info.name or (info.callback.__name__ if info.callback is not None else "")


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
    return value == parameter.default or type(value) is expected or (expected is Path and type(value) is str)


def _convert(parameter: TyperOption | TyperArgument, ctx: Any, value: Any) -> Any:
    if type(value) is str and parameter.type_descriptor.annotation is Path:
        return Path(value)  # the command that opens the file reports what is wrong with it
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)

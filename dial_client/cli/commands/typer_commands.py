"""The commands of the program and their groups; Typer builds the one that runs, which takes plain values unchecked.

Typer validates every value, even a missing one, with a pydantic adapter that it builds for each parameter. With thirty
options this takes a third of the program's start. A missing value needs no validation, and neither does text for a
parameter that expects text or a path.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_from_info
from typer.models import CommandInfo

from dial_client.cli.options import Logs, Options, Verbose

PROGRAM = "dial-chat"
# The work of a command, which ends with the exit code; None for 0.
CommandRun = Coroutine[Any, Any, int | None]
CommandFunction = Callable[..., CommandRun]
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

# The commands by their full names, such as ``servers login``; the chat, which runs without a name, has an empty one.
# The commands of a group are added when its module is imported.
COMMANDS: dict[str, CommandInfo] = {}
# The groups of commands: ``dial-chat GROUP COMMAND``. Each has the module that registers its commands, which is
# imported when a command of the group is named, and a text for ``--help``.
GROUPS = {
    "servers": ("dial_client.cli.commands.servers_commands", "Add, change, test and list MCP servers."),
    "skills": ("dial_client.cli.commands.skills_commands", "List, show, add and trust Agent Skills."),
}


def list_command_names(group: str = "") -> list[str]:
    """Return the names of the commands of a group, or of the commands and groups of the program without the chat."""
    if not group:
        return [*(name for name in COMMANDS if name and " " not in name), *GROUPS]
    if group in GROUPS:
        import_module(GROUPS[group][0])
    return [name.removeprefix(f"{group} ") for name in COMMANDS if name.startswith(f"{group} ")]


def describe_command(name: str) -> str:
    """Return the first sentence of the help of a command or a group, by its full name, without the full stop."""
    text = GROUPS[name][1] if name in GROUPS else inspect.getdoc(COMMANDS[name].callback)
    return (text or "").split("\n\n")[0].partition(". ")[0].rstrip(".").replace("\n", " ")


@cache
def build_command(name: str) -> Any:
    """Return a command; for the name of a group, the group with all its commands.

    Typer builds each parameter of a command, which takes longer than most commands run: only what is asked for is
    built, and once.
    """
    if name in GROUPS:
        commands = {word: build_command(f"{name} {word}") for word in list_command_names(name)}
        return TyperGroup(
            name=name, commands=commands, help=GROUPS[name][1], context_settings=SETTINGS, rich_markup_mode=None
        )
    command: Any = get_command_from_info(COMMANDS[name], pretty_exceptions_short=True, rich_markup_mode=None)
    # Typer builds the parameters itself, including the help option, and offers no way to replace their validation.
    for parameter in (*command.params, command.get_help_option(typer.Context(command, **SETTINGS))):
        parameter.process_value = partial(_process_value, parameter)
    return command


def build_all_commands() -> dict[str, Any]:
    """Return all commands by their full names, for the manual page."""
    for group in GROUPS:
        list_command_names(group)
    return {name: build_command(name) for name in COMMANDS}


def list_options(command: Any) -> dict[str, TyperOption]:
    """Return the options of a command by each of their flags."""
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
    return {flag: option for option in options for flag in option.opts}


def list_given_words(context: typer.Context, *left_out: str) -> list[str]:
    """Return the options that the user gave on the command line, as words with absolute paths.

    Args:
        context: The command that runs.
        left_out: The names of parameters to leave out.
    """
    words: list[str] = []
    for parameter in context.command.params:
        name, source = str(parameter.name), context.get_parameter_source(str(parameter.name))
        if name in left_out or source is None or source.name != "COMMANDLINE":
            continue
        flag, value = max(parameter.opts, key=len), context.params[name]
        if isinstance(value, bool):
            words += [flag] if value else []
            continue
        values = value if isinstance(value, list | tuple) else [value]
        words += [word for item in values for word in (flag, str(item.absolute() if isinstance(item, Path) else item))]
    return words


def _process_value(parameter: Any, context: Any, value: Any) -> Any:
    """Return the value of a parameter in the type that the command expects, with Typer's validation if it is needed."""
    expected = parameter.type_descriptor.annotation
    if expected is Path and type(value) is str:
        return Path(value)  # the command that opens the file reports what is wrong with it
    if type(value) is tuple and expected == list[str]:
        return [*value] or None
    if type(value) is expected or (value in (None, parameter.default) and not parameter.required):
        return value if parameter.callback is None else parameter.callback(context, parameter, value)
    return type(parameter).process_value(parameter, context, value)


class _Callback:
    """The function of a command, as Typer calls it: with one parameter for each option.

    A parameter of the function whose type is a dataclass of options becomes one parameter for each field.

    Args:
        function: The function of the command.
        program: The name of the command in the audit log, such as ``dial-chat call``.
        shared: The fields of `Options` that the command has.
    """

    def __init__(self, function: CommandFunction, program: str, shared: Sequence[str]) -> None:
        self.__doc__ = function.__doc__
        self.__annotations__: dict[str, Any] = {}  # Typer takes the types from the signature
        self._function, self._program, self._shared = function, program, shared
        # The parameters of the function that are dataclasses, each with its class and fields.
        self._fields: dict[str, tuple[Any, list[str]]] = {}

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
        for parameter, (kind, names) in self._fields.items():
            chosen = {name: arguments.pop(name) for name in names}
            for name in names:
                if kind.__dataclass_fields__[name].default == ():  # Typer knows lists only
                    chosen[name] = tuple(chosen[name] or ())
            if kind is Options:
                chosen["command"] = self._program
            arguments[parameter] = kind(**chosen)
        logs: Logs = next((value.logs for value in arguments.values() if isinstance(value, Options)), "none")
        from dial_client.cli.streams.process_runner import run_to_exit_code

        raise typer.Exit(run_to_exit_code(lambda: self._begin(arguments), logs=logs))

    def _begin(self, arguments: Mapping[str, Any]) -> CommandRun:
        """Return the work of the command.

        Raises:
            ConfigError: Two options contradict each other.
        """
        from dial_client.cli.option_checks import check_options
        from dial_client.messages.errors import ConfigError

        for options in (value for value in arguments.values() if isinstance(value, Options)):
            try:
                check_options(options)
            except ConfigError as error:
                if options.command == PROGRAM:
                    from dial_client.cli.chat.one_shot import print_error

                    print_error(error, options)
                raise
        return self._function(**arguments)


def command(
    name: str, *shared: str, cls: type[TyperCommand] | None = None
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function as a command.

    The function gets its options as keywords, imports what the command needs, and returns the coroutine to run.

    Args:
        name: The full name of the command; empty for the chat.
        shared: The fields of `Options` that the command has, if the function has a parameter `options`.
        cls: The class of the command, if it is not Typer's.
    """

    def register(function: CommandFunction) -> CommandFunction:
        callback = _Callback(function, f"{PROGRAM} {name}".strip(), shared)
        word = name.rpartition(" ")[2] or PROGRAM
        COMMANDS[name] = CommandInfo(word, cls=cls, callback=callback, context_settings=SETTINGS)
        return function

    return register

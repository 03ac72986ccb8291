"""The candidates for the last word of a command line. Import `commands` first, because it registers the commands."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command

from dial_client.cli.command_help import describe_option
from dial_client.cli.command_line import find_command
from dial_client.cli.completion.known_names import KnownNames
from dial_client.cli.typer_apps import chat_app, command_app, list_group_commands, load_groups
from dial_client.runtime.safe_text import to_one_line

Candidates = Mapping[str, str]
"""Candidate values, with descriptions."""

_OPTION_VALUES: Mapping[str, Callable[[KnownNames], Candidates]] = {
    "model": KnownNames.list_models,
    "profile": KnownNames.list_profiles,
    "allow": KnownNames.list_patterns,
    "deny": KnownNames.list_patterns,
    "resume": KnownNames.list_conversations,
}
_OF_SERVERS = ("login", "logout", "remove", "enable", "disable", "test")
"""The commands of the group ``servers`` that take the name of an existing server."""
_SHELLS = dict.fromkeys(("bash", "zsh", "fish", "powershell"), "")
_ARGUMENT_VALUES: Mapping[tuple[str, str], Callable[[KnownNames], Candidates]] = {
    ("call", "name"): KnownNames.list_tools,
    **{(f"servers {name}", "name"): KnownNames.list_servers for name in _OF_SERVERS},
    ("conversations", "target"): KnownNames.list_conversations,
    ("policy", "name"): KnownNames.list_tools,
}


def find_candidates(words: Sequence[str]) -> Candidates:
    """Return the candidates for the last of the words after ``dial-chat``; none if the shell should propose files."""
    *previous, current = words or [""]
    command, rest = find_command(previous)
    options = _list_options(command)
    names = KnownNames(_find_value(options["--config"].opts, previous) if "--config" in options else None)
    flag, equals, value = current.partition("=")
    if previous and not _is_flag(options.get(previous[-1])):
        return _filter_by_prefix(_list_option_values(options[previous[-1]], names), current)
    if equals and not _is_flag(options.get(flag)):
        found = _filter_by_prefix(_list_option_values(options[flag], names), value)
        return {f"{flag}={candidate}": about for candidate, about in found.items()}
    if current.startswith("-"):
        found = {name: describe_option(option).first_sentence for name, option in options.items()}
        return _filter_by_prefix({name: about for name, about in found.items() if not previous.count(name)}, current)
    return _filter_by_prefix(_list_argument_values(command, _find_positional(rest, options), names, previous), current)


def _is_flag(option: Any) -> bool:
    """Return True for an option without a value, and for None."""
    return option is None or option.is_flag


def _list_options(command: str | None) -> dict[str, Any]:
    """Return the options of a command, or of the chat, by each of their flags."""
    parameters = [parameter for parameter in _list_parameters(command) if isinstance(parameter, TyperOption)]
    return {flag: option for option in parameters if not option.hidden for flag in option.opts}


def _list_parameters(command: str | None) -> Sequence[Any]:
    if command is None:
        return get_command(chat_app).params
    found: Any = get_command(command_app)
    for word in command.split():
        found = found.commands[word]
    return [parameter for parameter in found.params if isinstance(parameter, TyperArgument | TyperOption)]


def _find_value(flags: Iterable[str], words: Sequence[str]) -> str | None:
    """Return the value that the words set for an option; None if they set none."""
    following = [value for flag, value in pairwise(words) if flag in flags]
    written = [word.partition("=")[2] for word in words if word.partition("=")[0] in flags and "=" in word]
    return next(iter([*following, *written]), None)


def _find_positional(words: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return the words that are neither options nor values of options."""
    found: list[str] = []
    skip = False
    for word in words:
        if not skip and not word.startswith("-"):
            found.append(word)
        skip = not skip and not _is_flag(options.get(word))
    return found


def _list_option_values(option: Any, names: KnownNames) -> Candidates:
    if option.name in _OPTION_VALUES:
        return _OPTION_VALUES[option.name](names)
    return _parse_listed_values(describe_option(option).first_sentence.partition(": ")[2])


def _list_argument_values(
    command: str | None, positional: Sequence[str], names: KnownNames, previous: Sequence[str]
) -> Candidates:
    if command is None:
        if {"--install-completion", "--show-completion"} & {*previous}:
            return _SHELLS
        return {} if positional else _list_commands()
    if list_group_commands(command):
        return {} if positional else _list_commands(command)
    arguments = [parameter for parameter in _list_parameters(command) if isinstance(parameter, TyperArgument)]
    if len(positional) >= len(arguments):
        return {}
    argument = arguments[len(positional)]
    if argument.name == "action":
        return _parse_listed_values((argument.help or "").partition(".")[0])
    values = _ARGUMENT_VALUES.get((command, argument.name or ""))
    return values(names) if values else {}


def _parse_listed_values(text: str) -> Candidates:
    """Return the values that a help text lists, as in "list, show or delete"; none if it is not such a list."""
    words = re.split(r",? or |, ", text)
    return dict.fromkeys(words, "") if all(re.fullmatch(r"[a-z-]+", word) for word in words) else {}


def _list_commands(name: str | None = None) -> Candidates:
    load_groups()
    group = get_command(command_app)
    assert isinstance(group, TyperGroup)
    if name is not None:
        group = group.commands[name]
        assert isinstance(group, TyperGroup)
    return {name: (command.help or "").partition(". ")[0] for name, command in sorted(group.commands.items())}


def _filter_by_prefix(found: Candidates, current: str) -> Candidates:
    return {value: about for value, about in found.items() if value.startswith(current)}


def print_candidates(shell: str, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Print the candidates, one per line, in the form that the shell's script reads; return the exit code."""
    try:
        lines = _format_bash_lines(environment) if shell == "bash" else _format_lines(shell, find_candidates(words))
    except Exception:  # noqa: BLE001 - an error message would appear in the command line that the user is typing
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _format_lines(shell: str, found: Candidates) -> list[str]:
    """Return values with descriptions, one line each, without control characters."""
    pairs = [(value, to_one_line(about, 80)) for value, about in found.items() if value == to_one_line(value, 1000)]
    if shell == "zsh":
        escaped = [(value.replace("\\", "\\\\").replace(":", "\\:"), about) for value, about in pairs]
        return [f"{value}:{about}" if about else value for value, about in escaped]
    return [f"{value}\t{about}" for value, about in pairs]


def _format_bash_lines(environment: Mapping[str, str]) -> list[str]:
    """Return values as bash inserts them: in place of the text after the last word break character."""
    line = environment.get("_DIAL_CHAT_LINE", "")
    try:
        words, is_quoted = shlex.split(line), False
    except ValueError:
        words, is_quoted = next((shlex.split(line + quote) for quote in "'\"" if _is_closed(line + quote)), []), True
    if not line or (line[-1].isspace() and not is_quoted):
        words.append("")
    current = words[-1] if len(words) > 1 else ""
    breaks = "" if is_quoted else "".join(set(environment.get("_DIAL_CHAT_BREAKS", ":=")) & {":", "="})
    known = re.match(rf".*[{re.escape(breaks)}]", current) if breaks else None
    start = known.end() if known else 0
    values = [value[start:] for value in find_candidates(words[1:]) if value == to_one_line(value, 1000)]
    if is_quoted:
        # Inside quotes bash inserts a value unchanged: it must not end the quotes or run a command.
        return [value for value in values if not set(value) & set("'\"$`\\!")]
    return [shlex.quote(value) for value in values]


def _is_closed(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True

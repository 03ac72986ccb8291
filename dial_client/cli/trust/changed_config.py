"""Changes of a configuration by a command: finds the file, changes it with a backup, and renews its trust."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dial_client.cli.options import ConfigChoice
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.streams.tty import can_ask_user, user_agrees
from dial_client.cli.streams.word_wrap import find_terminal_width
from dial_client.cli.trust.trust_review import review_file, trust_now
from dial_client.cli.trust.trust_summary import build_rows, render_rows
from dial_client.messages.errors import ConfigError
from dial_client.providers import find_name_problem
from dial_client.runtime.safe_text import escape_line
from dial_client.settings import config_editor, configuration
from dial_client.settings.config_editor import ConfigText, read_text, set_value, write_text
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path, is_user_config
from dial_client.settings.config_trust import EnvFiles, read_found


def find_file(choice: ConfigChoice) -> Path:
    """Return the file to change: that which the options name, else ./servers.json if it exists, else the user's file.

    Raises:
        ConfigError: The options contradict each other, or the user does not trust ./servers.json.
    """
    named = find_named_file(choice)
    if named is not None:
        return named
    folder_file = Path(FILE_NAME)
    if not folder_file.exists():
        return build_user_config_path()
    if not is_file_trusted(folder_file):
        raise ConfigError(
            "you have not trusted the servers.json of this folder",
            f"--user changes your own configuration, -c {FILE_NAME} the file of this folder",
        )
    return folder_file


def find_holder(name: str, choice: ConfigChoice) -> ConfigText:
    """Return the text of the file that has a server: the file that the options name, else the first file in use.

    A file of the working folder that the user does not trust is not in use.

    Raises:
        ConfigError: No file has a server of this name.
    """
    named = find_named_file(choice)
    if named is None:
        existing = [path for path in (Path(FILE_NAME), build_user_config_path()) if path.exists()]
        in_use = [path for path in existing if is_file_trusted(path)]
        for path in in_use:
            if name in config_editor.list_server_names((found := read_text(path)).text):
                return found
        if in_use != existing:
            raise ConfigError(
                f"there is no server {name!r} in the files you trust",
                f"you have not trusted the {FILE_NAME} of this folder; -c {FILE_NAME} changes it",
            )
        named = next(iter(in_use), None)
    if named is None or not named.exists():
        raise ConfigError(f"there is no server {name!r}: there is no configuration", path=str(named or ""))
    found = read_text(named)
    try:
        config_editor.check_server(found.text, name)
    except ConfigError as error:
        raise ConfigError(error.problem, error.hint, error.path or str(named), error.line, error.column) from None
    return found


async def remove_server(name: str, choice: ConfigChoice) -> None:
    """Remove a server from the file that has it.

    Raises:
        ConfigError: There is no such server, or the file cannot be written.
    """
    change_config(
        find_holder(name, choice), lambda text: config_editor.remove_server(text, name), f"removed {escape_line(name)}"
    )


async def switch_server(name: str, choice: ConfigChoice, *, is_enabled: bool) -> None:
    """Enable or disable a server.

    Raises:
        ConfigError: There is no such server, or the file cannot be written.
    """
    change_config(
        find_holder(name, choice),
        lambda text: config_editor.set_enabled(text, name, is_enabled=is_enabled),
        f"{'enabled' if is_enabled else 'disabled'} {escape_line(name)}",
    )


def change_config(before: ConfigText, edit: Callable[[str], str], summary: str) -> None:
    """Change a configuration, keep the old text as a backup, renew trust, and print the change.

    If the file is new, or the user trusted its old text, the changed file is trusted.

    Args:
        before: The text that was read.
        edit: Returns the changed text.
        summary: The change in a few words, for the user.

    Raises:
        ConfigError: The changed text is not a valid configuration, or it cannot be written.
    """
    text = edit(before.text)
    shown = escape_line(str(before.path.absolute()))
    if text == before.text:
        print(f"{summary} already: {shown} is not changed")
        return
    is_renewed = before.data is None or is_file_trusted(before.path)
    backup = write_text(before, text)
    print(f"{summary} in {shown}" + (", a new file" if backup is None else f" (backup: {escape_line(backup.name)})"))
    _warn_of_unknown_models(before, text)
    renew_trust(before.path, was_trusted=is_renewed)


def _warn_of_unknown_models(before: ConfigText, text: str) -> None:
    """Print a warning for each name in the changed text, but not in the old one, that names no model so far.

    It is no error: the profile of the model may be written next.
    """
    known: set[str] = set()
    with suppress(ConfigError):  # the user's own file may be missing or invalid
        known.update(configuration.outline(read_text(build_user_config_path()).text).models)
    problems = _find_unknown_models(text, known)
    with suppress(ConfigError):
        problems = {name: problems[name] for name in problems.keys() - _find_unknown_models(before.text, known).keys()}
    for _, problem in sorted(problems.items()):
        warn_once(escape_line(str(problem)))


def _find_unknown_models(text: str, known: Collection[str]) -> dict[str, ConfigError]:
    names = {*known, *configuration.outline(text).models}
    found = ((name, find_name_problem(name, names)) for name in configuration.list_model_names(text))
    return {name: problem for name, problem in found if problem is not None}


def renew_trust(path: Path, *, was_trusted: bool) -> None:
    """Trust a file that the user has changed, if it was trusted before; else print how to trust it."""
    if is_user_config(path):
        return
    if was_trusted:
        trust_now(read_found(path), EnvFiles())
    elif path.name == FILE_NAME:
        print(f"You have not trusted this file: read it, then run `dial-chat trust {escape_line(str(path))}`.")


async def confirm_addition(
    entries: Mapping[str, Mapping[str, Any]], path: Path, *, is_agreed: bool, question: str = ""
) -> bool:
    """Print what servers would do, as the trust prompt does, and return True if the user agrees to add them.

    Args:
        entries: The entries of the servers by name.
        path: The configuration to add them to.
        is_agreed: Ask nothing.
        question: The question; empty for one about the addition.

    Raises:
        ConfigError: There is no terminal to ask at.
    """
    outline = configuration.outline(set_value("{}", ["mcpServers"], {name: dict(entries[name]) for name in entries}))
    print(render_rows(build_rows(outline, EnvFiles(), path.parent.absolute()), find_terminal_width(sys.stdout)))
    if is_agreed:
        return True
    if not can_ask_user():
        raise ConfigError("there is no terminal to ask at", "--yes adds what is shown without a question")
    what = escape_line(next(iter(entries))) if len(entries) == 1 else f"these {len(entries)} servers"
    return await user_agrees(question or f"Add {what} to {escape_line(str(path))}?")


def find_named_file(choice: ConfigChoice) -> Path | None:
    """Return the file that the options name; None if they name none.

    Raises:
        ConfigError: The options contradict each other.
    """
    named = {
        "--user": build_user_config_path() if choice.user else None,
        "--folder": Path(FILE_NAME) if choice.folder else None,
        "--file": choice.file,
    }
    chosen = {option: path for option, path in named.items() if path is not None}
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} name different files", "give one of them")
    return next(iter(chosen.values()), None)


def is_file_trusted(path: Path) -> bool:
    """Return True if the user trusts the current content of the file, apart from changes that need no question."""
    return is_user_config(path) or review_file(path).is_accepted

"""The work of ``dial-chat config set``, ``unset`` and ``edit``: changes that keep a file's comments and key order."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from anyio import to_thread

from dial_client.cli.input.user_programs import find_editor
from dial_client.cli.options import ConfigChoice, ExitCode, Options
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.error_stream import report_error
from dial_client.cli.streams.tty import ask_or_skip, can_ask_user
from dial_client.cli.trust.changed_config import change_config, find_file, is_file_trusted, renew_trust
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.safe_text import escape_line
from dial_client.runtime.text import find_nearest, fold_name
from dial_client.settings.config_editor import (
    ConfigText,
    find_problem,
    find_servers_path,
    read_text,
    remove_value,
    set_value,
    write_text,
)
from dial_client.settings.config_entries import LIMIT_KEYS, OTHER_HOSTS_KEYS, SERVER_ALIASES, SERVER_KEYS
from dial_client.settings.config_values import COMMENTS, TOP_KEYS, quote_key
from dial_client.settings.jsonc import read

# The keys of a server's entry that have an effect here, or in another host.
SERVER_NAMES = (*SERVER_KEYS, *SERVER_ALIASES, *OTHER_HOSTS_KEYS)


def set_key(options: Options, key: str | None, value: str | None, *, in_user_file: bool) -> None:
    """Set one value of a file. `value` is JSON; text that is not JSON is a string.

    Raises:
        ConfigError: Key or value is missing, the key has no effect, or the file would not be a valid configuration.
    """
    if not key or value is None:
        raise ConfigError("missing value", hint="dial-chat config set KEY VALUE, such as defaultModel local")
    before = read_text(find_file(ConfigChoice(user=in_user_file, file=options.config)))
    keys = _find_keys(before, key)
    _check_key(before.text, keys)
    change_config(before, lambda text: set_value(text, keys, _parse_value(value)), f"set {escape_line(key)}")


def _check_key(text: str, keys: Sequence[str]) -> None:
    """Refuse a key that has no effect, at the top level or in the entry of a server. Readers check all other keys.

    Raises:
        ConfigError: The key is unknown; the hint names the nearest key.
    """
    servers = find_servers_path(text)
    if not servers and keys[0] not in TOP_KEYS:
        keys, known = keys[1:], SERVER_NAMES
        prefix = ""
    elif keys[:1] == servers:
        keys, known, prefix = keys[2:], SERVER_NAMES, f"{servers[0]}.{keys[1]}." if len(keys) > 1 else ""
    else:
        known, prefix = TOP_KEYS, ""
    if not keys or keys[0].startswith(COMMENTS) or fold_name(keys[0]) in map(fold_name, known):
        return
    near = find_nearest(keys[0], known) or ("" if prefix else _find_limit(keys[0]))
    hint = f'did you mean "{prefix}{near}"?' if near else "`dial-chat config schema` lists the keys"
    raise ConfigError(f"the key {quote_key(keys[0])} would have no effect", hint)


def _find_limit(key: str) -> str:
    nearest = find_nearest(key, LIMIT_KEYS)
    return f"limits.{nearest}" if nearest else ""


def unset_key(options: Options, key: str | None, *, in_user_file: bool) -> None:
    """Remove one value of a file.

    Raises:
        ConfigError: There is no such value, or the file would not be a valid configuration any more.
    """
    if not key:
        raise ConfigError("missing value", hint="dial-chat config unset KEY")
    before = read_text(find_file(ConfigChoice(user=in_user_file, file=options.config)))
    keys = _find_keys(before, key)

    def edit(text: str) -> str:
        try:
            return remove_value(text, keys)
        except KeyError:
            raise ConfigError(f"there is no value at {key!r}", path=str(before.path)) from None

    change_config(before, edit, f"removed {escape_line(key)}")


async def edit_file(options: Options, *, in_user_file: bool) -> int:
    """Open a file in the user's editor, then check it; if it has an error, offer to edit it again.

    Raises:
        ConfigError: There is no editor, or no terminal.
    """
    path = find_file(ConfigChoice(user=in_user_file, file=options.config))
    editor = find_editor()
    if not can_ask_user():
        raise ConfigError("there is no terminal for the editor", hint="`config set KEY VALUE` changes one value")
    if not editor:
        raise ConfigError("there is no editor", hint="set VISUAL or EDITOR to the name of a program")
    was_trusted = not path.exists() or is_file_trusted(path)
    if not path.exists():
        write_text(read_text(path), '{\n  "mcpServers": {}\n}\n')
    while True:
        with process_runner.interrupts.ignored():
            await to_thread.run_sync(_run, [*editor, str(path)])
        problem = find_problem(read_text(path).text, path)
        if problem is None:
            break
        report_error(str(problem))
        if not (await ask_or_skip("[e]dit it again, or [l]eave it as it is: ")).strip().lower().startswith("e"):
            return ExitCode.USAGE
    renew_trust(path, was_trusted=was_trusted)
    print(f"{escape_line(str(path))} is valid.")
    return ExitCode.ANSWERED


def _run(command: Sequence[str]) -> None:
    """Run an editor until it ends.

    Raises:
        ConfigError: The editor cannot be started.
    """
    try:
        subprocess.run(command, check=False)
    except OSError as error:
        problem = f"the editor {escape_line(command[0])} cannot be started: {describe_system_error(error)}"
        raise ConfigError(problem, "set VISUAL or EDITOR to another program") from None


def _find_keys(before: ConfigText, dotted: str) -> list[str]:
    """Return the path of keys to a value. The path of a server begins with the key that the file uses for servers.

    Raises:
        ConfigError: The path names all servers, but in this file they are top-level keys, beside other keys.
    """
    top = read(before.text, str(before.path)).value
    keys = _split(top, dotted)
    if keys[0] not in ("mcpServers", "servers"):
        return keys
    path = find_servers_path(before.text)
    if not path and len(keys) == 1:
        raise ConfigError("the servers are top-level keys of this file", "name a single server", str(before.path))
    return [*path, *_split(top.get(path[0]) if path else top, dotted[len(keys[0]) + 1 :])]


def _split(value: Any, dotted: str) -> list[str]:
    """Split a dotted path into keys; a key of the file that contains dots itself is recognized."""
    keys: list[str] = []
    rest = dotted
    while rest:
        known = [key for key in value if rest == key or rest.startswith(f"{key}.")] if isinstance(value, dict) else []
        key = max(known, key=len) if known else rest.partition(".")[0]
        keys.append(key)
        value, rest = value.get(key) if known else None, rest[len(key) + 1 :]
    return keys


def _parse_value(value: str) -> Any:
    """Parse a value as JSON; any other text is a string. NaN and Infinity are not JSON."""
    try:
        parsed = json.loads(value)
        json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return value
    return parsed

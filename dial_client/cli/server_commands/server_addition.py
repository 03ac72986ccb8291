"""The work of ``dial-chat servers add``: builds an entry from command line words, and prints warnings about it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dial_client.cli.bootstrap import warn
from dial_client.cli.config_summary import escape_line
from dial_client.cli.options import ExitCode
from dial_client.cli.server_commands.changed_config import change_config, find_file
from dial_client.cli.server_commands.server_group import ConfigChoice
from dial_client.messages.errors import ConfigError, ServerStartError
from dial_client.settings import jsonc, server_edits
from dial_client.settings.config_writer import read_text
from dial_client.settings.variables import find_references


@dataclass(frozen=True, slots=True)
class NewServer:
    """A server as the words of a command line describe it."""

    name: str
    target: tuple[str, ...]
    """A URL, or a program with its arguments."""
    env: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    cwd: str | None = None
    transport: str | None = None
    auto_approve: tuple[str, ...] = ()


async def add_server(new: NewServer, choice: ConfigChoice, *, replace: bool) -> int:
    """Add a server to a configuration; return the exit code.

    Raises:
        ConfigError: The words describe no server, there is a server of this name, or the file cannot be written.
    """
    write_entry(new.name, build_server_entry(new), choice, replace=replace)
    return ExitCode.ANSWERED


async def add_json_entry(name: str, text: str, choice: ConfigChoice, *, replace: bool) -> int:
    """Add a server whose entry is JSON to a configuration; return the exit code.

    Raises:
        ConfigError: The text is not a valid entry, there is a server of this name, or the file cannot be written.
    """
    entry = jsonc.read(text, "the entry").value
    if isinstance(entry, dict) and len(entry) == 1 and {"mcpServers", "servers"} & entry.keys():
        (servers,) = entry.values()
        if isinstance(servers, dict) and len(servers) == 1:
            (entry,) = servers.values()
    if not isinstance(entry, dict):
        raise ConfigError("the entry is not a JSON object", """like '{"command": "mcp-server-time"}'""")
    write_entry(name, entry, choice, replace=replace)
    return ExitCode.ANSWERED


def write_entry(name: str, entry: Mapping[str, Any], choice: ConfigChoice, *, replace: bool) -> None:
    """Add an entry to a configuration, and print the change and warnings about the entry.

    Raises:
        ConfigError: The entry is wrong, there is a server of this name, or the file cannot be written.
    """
    before = read_text(find_file(choice))
    change_config(
        before,
        lambda text: server_edits.add_server(text, name, entry, replace=replace),
        f"added {escape_line(name)}",
    )
    for warning in find_entry_warnings(entry):
        warn(warning)
    print(f"Try: dial-chat servers test {escape_line(name)}")


def build_server_entry(new: NewServer) -> dict[str, Any]:
    """Return the entry of a server, as ``servers.json`` has it.

    Raises:
        ConfigError: The words describe no server.
    """
    if not new.target:
        raise ConfigError(
            "which program, or which URL?",
            f"dial-chat servers add {new.name} -- uvx mcp-server-time, or dial-chat servers add {new.name} https://…",
        )
    first, *rest = new.target
    is_url = re.match(r"(?i)https?://", first) is not None
    if is_url and rest:
        raise ConfigError("nothing may follow a URL", "put options before it, and a program after --")
    entry: dict[str, Any] = {"type": new.transport} if new.transport else {}
    entry |= {"url": first} if is_url else {"command": first} | ({"args": rest} if rest else {})
    if new.env:
        entry["env"] = dict(_pair(text, "=", "--env KEY=VALUE") for text in new.env)
    if new.headers:
        entry["headers"] = dict(_pair(text, ":", "--header 'Name: value'") for text in new.headers)
    if new.cwd is not None:
        entry["cwd"] = new.cwd
    if new.auto_approve:
        entry["autoApprove"] = list(new.auto_approve)
    misplaced = {"env": is_url, "headers": not is_url, "cwd": is_url}
    for key, is_misplaced in misplaced.items():
        if is_misplaced and key in entry:
            kind = "a server with a URL" if is_url else "a program"
            raise ConfigError(f"{kind} has no {key}", "dial-chat servers add --help")
    return entry


def find_entry_warnings(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about an entry: secrets in plain text, variables that are not set, a missing program."""
    from dial_client.servers.secret_detection import find_literal_secrets

    for place, variable in find_literal_secrets(entry):
        yield f"{place} seems to contain a secret in plain text; set a variable, and write ${{{variable}}} in its place"
    text = json.dumps(entry, ensure_ascii=False)
    for name in dict.fromkeys(find_references(text)):
        if name not in os.environ and f"{name}:-" not in text:
            yield f"the variable {name} is not set yet: the server needs it"
    command = entry.get("command")
    if isinstance(command, str) and "${" not in command:
        problem = _check_program(command)
        if problem:
            yield problem


def _pair(text: str, separator: str, usage: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise ConfigError(f"this has no {separator!r}", usage)
    return (name.strip(), value.strip()) if separator == ":" else (name, value)


def _check_program(command: str) -> str:
    from dial_client.servers.transports.environment import find_program

    try:
        find_program("the server", command, os.environ.get("PATH"), None)
    except ServerStartError as error:
        return error.problem
    return ""

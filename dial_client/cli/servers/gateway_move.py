"""``dial-chat servers import HOST --behind-gateway``: a host's servers move behind the gateway; ``--undo``: back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dial_client.cli.options import ConfigChoice, ExitCode
from dial_client.cli.servers.host_exchange import find_host_paths
from dial_client.cli.streams.tty import can_ask_user, user_agrees
from dial_client.cli.trust.changed_config import change_config, confirm_addition, find_named_file
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.runtime.text import count_noun, suggest_name
from dial_client.settings import config_editor, configuration, gateway_entry, host_backups
from dial_client.settings.config_editor import ConfigText, read_text
from dial_client.settings.config_locations import build_user_config_path, is_user_config
from dial_client.settings.config_values import Keys, find_references
from dial_client.settings.host_documents import HostServer, guess_host, parse_document, read_servers
from dial_client.settings.host_edits import find_value
from dial_client.settings.mcp_hosts import HOSTS, HostEntry, HostName, write_entry


@dataclass(frozen=True, slots=True)
class _HostFile:
    """The file of a host, and its servers that move."""

    before: ConfigText
    host: HostName
    servers: list[HostServer] = field(default_factory=list)

    def read_entries(self) -> dict[Keys, HostEntry]:
        """Return the entries that move as the host has them, by their places."""
        top = parse_document(self.before.data or b"", self.before.path)
        return {server.keys: dict(find_value(top, server.keys)) for server in self.servers}


async def move_servers(
    source: str | None, names: Sequence[str], choice: ConfigChoice, *, replace: bool, is_agreed: bool
) -> int:
    """Import the servers of a host, and replace them in its file by the gateway, after a question; return an exit code.

    Args:
        source: The host, or its file.
        names: The servers to move; empty for all.
        choice: The configuration that gets the servers; the user's, unless an option names a file.
        replace: Replace servers of the same names.
        is_agreed: Move the servers without a question.

    Raises:
        ConfigError: There is no such host, file or server, a file cannot be changed, or there is no terminal.
    """
    # Not ./servers.json: a host starts the gateway in a folder of its own choice.
    own = read_text(find_named_file(choice) or build_user_config_path())
    files = [_choose(path, host, names, own, replace=replace) for path, host in _find_files(source)]
    moved = {server.name: server.entry or {} for file in files for server in file.servers}
    for name in names:
        if name not in moved:
            raise ConfigError(f"there is no server {name!r} to move", suggest_name(name, moved))
    if not moved:
        print("There is nothing to move.")
        return ExitCode.ANSWERED
    taken = config_editor.list_server_names(own.text)
    text = own.text
    for name, entry in moved.items():
        if replace or name not in taken:
            text = config_editor.add_server(text, name, entry, replace=replace)
    program = gateway_entry.find_own_program()
    options = [] if is_user_config(own.path) else ["--config", str(own.path.absolute())]
    question = f"Move {count_noun(len(moved), 'server')} behind the gateway?"
    if not await confirm_addition(moved, own.path, is_agreed=is_agreed, question=question):
        return ExitCode.USAGE
    # First the own file: if the second one cannot be written, both have the servers, and nothing is lost.
    if text != own.text:
        change_config(own, lambda _: text, f"imported {count_noun(len(moved), 'server')}")
    variables = sorted(find_references(text))
    for file in files:
        if file.servers:
            entry = gateway_entry.build_gateway_entry(file.host, program, options, variables)
            _take(file, write_entry(file.host, gateway_entry.NAME, entry), source or "")
    return ExitCode.ANSWERED


def _find_files(source: str | None) -> list[tuple[Path, HostName | None]]:
    """Return the user's own files of a host, or the file that is named."""
    if source is None:
        raise ConfigError("name the host whose servers move", "dial-chat servers import cursor --behind-gateway")
    found = find_host_paths(source, with_folder=False)
    if not found:
        raise ConfigError(f"no configuration of {HOSTS[HostName(source)].title} was found", "name its file")
    return found


def _choose(path: Path, host: HostName | None, names: Sequence[str], own: ConfigText, *, replace: bool) -> _HostFile:
    """Return a host's file with the servers that move, and print what happens to each of its servers."""
    before = host_backups.read_host_text(path)
    top = parse_document(before.data or b"", path)
    host = host or guess_host(path, top)
    outline = configuration.outline(own.text, str(own.path))
    entries = {name: {key: node.value for key, node in entry.items()} for name, entry in outline.servers.items()}
    file = _HostFile(before, host)
    print(f"{HOSTS[host].title}, {escape_line(str(path))}:")
    for server in read_servers(host, top, Path.cwd()):
        if names and server.name not in names:
            continue
        obstacle = _find_obstacle(server, None if replace else entries.get(server.name))
        if not obstacle:
            file.servers.append(server)
        print(f"  {escape_line(server.name)}: {f'stays: {obstacle}' if obstacle else 'moves'}")
        for loss in server.losses:
            print(f"    {escape_line(loss)}")
    return file


def _find_obstacle(server: HostServer, taken: HostEntry | None) -> str:
    """Return why a server stays in its host; empty if it moves."""
    if server.entry is None:
        return "it cannot be imported"
    if gateway_entry.is_gateway(server.entry):
        return "it is the gateway itself, which would start itself without end"
    if server.entry.get("disabled") is True or server.entry.get("enabled") is False:
        return "it is disabled, or would not start here"
    if not all(isinstance(key, str) for key in server.keys):
        return "a list of servers cannot be changed here"
    if taken is not None and taken != server.entry:
        return "there is another server of this name (--replace)"
    return ""


def _take(file: _HostFile, gateway: HostEntry, source: str) -> None:
    entries = file.read_entries()
    places = {(*keys[:-1], gateway_entry.NAME): gateway for keys in entries}
    copy = host_backups.take_servers(file.before, entries, places)
    shown = escape_line(str(file.before.path))
    print(f"{shown} starts the gateway now (before: {escape_line(str(copy))}). Restart {HOSTS[file.host].title}.")
    print(f"dial-chat servers import {escape_line(source)} --undo brings the servers back.")


async def return_servers(source: str | None, *, is_agreed: bool) -> int:
    """Put the servers of a host back into its file, after a question; return the exit code.

    Args:
        source: The host, or its file.
        is_agreed: Ask nothing.

    Raises:
        ConfigError: No server of the host has moved, the file cannot be changed, or there is no terminal.
    """
    found = [host_backups.find_moved(path) for path, _ in _find_files(source)]
    moved = [servers for servers in found if servers is not None]
    if not moved:
        raise ConfigError(f"no servers of {source} are behind the gateway", "--behind-gateway moves them")
    for servers in moved:
        names = ", ".join(escape_line(str(keys[-1])) for keys in servers.servers)
        shown = escape_line(str(servers.path))
        if not is_agreed and not can_ask_user():
            raise ConfigError("there is no terminal to ask at", "--yes asks nothing")
        if not is_agreed and not await user_agrees(f"Put {names} back into {shown}, and take the gateway out?"):
            return ExitCode.USAGE
        host_backups.return_servers(servers)
        print(f"{shown} has {names} again. They stay in your servers.json, too: dial-chat servers remove NAME")
    return ExitCode.ANSWERED

"""The work of ``dial-chat servers import`` and ``servers export``: servers of other MCP hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dial_client.cli.options import ConfigChoice, ExitCode, Options
from dial_client.cli.servers.server_addition import find_entry_warnings
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.trust.changed_config import change_config, confirm_addition, find_file
from dial_client.cli.trust.configuration_files import ask_for_files
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.runtime.text import suggest_name
from dial_client.settings import config_editor, configuration
from dial_client.settings.config_editor import read_text
from dial_client.settings.gateway_entry import is_gateway
from dial_client.settings.host_documents import HostServer, read_host_file
from dial_client.settings.mcp_hosts import HOSTS, HostName, find_host_files, write_host_text

# A host with its file, for the output, and the servers in the file.
FoundServers = tuple[str, list[HostServer]]


async def import_servers(
    source: str | None, names: Sequence[str], choice: ConfigChoice, *, replace: bool, is_agreed: bool
) -> int:
    """Import servers of other hosts, after a question that shows what each server does; return the exit code.

    Args:
        source: A host, or a file; None for the files of all hosts on this machine.
        names: The servers to import; empty for all.
        choice: The file to change.
        replace: Replace servers of the same names.
        is_agreed: Import the servers without a question.

    Raises:
        ConfigError: There is no such host, file or server, or there is no terminal to ask at.
    """
    found = find_servers(source, with_folder=source is not None or not is_agreed)
    before = read_text(find_file(choice))
    chosen, sentences = _choose(found, names, config_editor.list_server_names(before.text), replace=replace)
    for sentence in sentences:
        print(sentence)
    if not chosen:
        print("There is nothing to import.")
        return ExitCode.ANSWERED
    text = before.text
    entries = {server.name: server.entry or {} for server in chosen}
    for name, entry in entries.items():
        text = config_editor.add_server(text, name, entry, replace=replace)
    if not await confirm_addition(entries, before.path, is_agreed=is_agreed):
        return ExitCode.USAGE
    noun = "server" if len(chosen) == 1 else "servers"
    change_config(before, lambda _: text, f"imported {len(chosen)} {noun}")
    for name, entry in entries.items():
        for warning in find_entry_warnings(entry):
            warn(f"{name}: {warning}")
    return ExitCode.ANSWERED


def find_servers(source: str | None, *, with_folder: bool = True) -> list[FoundServers]:
    """Return the servers of a host, of a file, or of all hosts on this machine.

    Args:
        source: A host, or a file; None for all hosts.
        with_folder: Read the files of the working folder too, which may be untrusted.

    Raises:
        ConfigError: There is no such host or file, or a file that was named cannot be read.
    """
    folder = Path.cwd()
    if source is not None and source not in {*HostName}:
        ((path, _),) = find_host_paths(source)
        return [(str(path), read_host_file(path, None, folder))]
    found = list[FoundServers]()
    for path, host in find_host_paths(source, with_folder=with_folder):
        assert host is not None
        try:
            servers = read_host_file(path, host, folder)
            found.append((f"{HOSTS[host].title}, {path}", servers))
        except ConfigError as error:
            warn(f"{HOSTS[host].title}: {error}")
    if not found and source is not None:
        raise ConfigError(f"no configuration of {HOSTS[HostName(source)].title} was found", "name its file")
    return [(title, servers) for title, servers in found if servers]


def find_host_paths(source: str | None, *, with_folder: bool = True) -> list[tuple[Path, HostName | None]]:
    """Return the files of a host, or of all hosts, that exist, with their hosts; or the file that is named.

    Args:
        source: A host, or a file; None for all hosts.
        with_folder: Return the files of the working folder too, which may be untrusted.

    Raises:
        ConfigError: There is no such host or file.
    """
    if source is not None and source not in {*HostName}:
        path = Path(source).expanduser()
        if not path.is_file():
            raise ConfigError(f"{source!r} is neither a host nor a file", suggest_name(source, HostName))
        return [(path, None)]
    paths = list[tuple[Path, HostName | None]]()
    for file in find_host_files(Path.cwd()):
        if source is not None and file.host.name != source:
            continue
        if with_folder or not file.is_of_folder:
            paths.append((file.path, file.host.name))
        elif source is None:
            warn(f"{file.path} is left out: dial-chat servers import {file.host.name} reads it")
    return paths


def _choose(
    found: Sequence[FoundServers], names: Sequence[str], taken: Sequence[str], *, replace: bool
) -> tuple[list[HostServer], list[str]]:
    """Return the servers to import, and a sentence for each that is left out or changed."""
    known = [server.name for _, servers in found for server in servers]
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no server {name!r} to import", suggest_name(name, known))
    chosen: dict[str, HostServer] = {}
    sentences = []
    for title, servers in found:
        sentences.append(f"{escape_line(title)}:")
        for server in servers:
            if names and server.name not in names:
                continue
            state = _describe_state(server, chosen, () if replace else taken)
            if state == "import":
                chosen[server.name] = server
            sentences.append(f"  {escape_line(server.name)}: {state}")
            sentences += [f"    {escape_line(loss)}" for loss in server.losses]
    return list(chosen.values()), sentences


def _describe_state(server: HostServer, chosen: dict[str, HostServer], taken: Sequence[str]) -> str:
    if server.entry is None:
        return "cannot be imported"
    if is_gateway(server.entry):
        return "left out: it is the gateway of this program, which would start itself without end"
    if server.name in chosen:
        is_same = chosen[server.name].entry == server.entry
        return "the same as above" if is_same else "left out: a server above has this name (name its file to import it)"
    return "left out: there is a server of this name (--replace)" if server.name in taken else "import"


async def export_servers(options: Options, names: Sequence[str], to: str) -> None:
    """Print servers in the form of another host, without expanding variables.

    Raises:
        ConfigError: There is no such host or server, or a file is not trusted, and the user cannot be asked.
    """
    if to not in {*HostName}:
        raise ConfigError(f"{to!r} is not a host", suggest_name(to, HostName))
    servers: dict[str, dict[str, Any]] = {}
    for file in await ask_for_files(options, warn):
        outline = configuration.outline(file.text, file.path)
        servers |= {name: {key: node.value for key, node in entry.items()} for name, entry in outline.servers.items()}
    for name in names:
        if name not in servers:
            raise ConfigError(f"there is no server {name!r}", suggest_name(name, servers))
    chosen = {name: entry for name, entry in servers.items() if not names or name in names}
    text, losses = write_host_text(HostName(to), chosen)
    print(text, end="")
    for loss in losses:
        warn(loss)

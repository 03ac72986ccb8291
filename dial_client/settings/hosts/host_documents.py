"""Reads the servers in the configuration file of another host: JSON with comments, TOML or YAML."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.settings import configuration, jsonc
from dial_client.settings.hosts.host_entries import HostEntry, Losses, translate
from dial_client.settings.hosts.host_files import HostName
from dial_client.settings.hosts.yaml_reader import read_yaml

MAX_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a host's file. Claude Code keeps the history of its projects in the same file."""


@dataclass(frozen=True, slots=True)
class HostServer:
    """A server of another host."""

    name: str
    entry: HostEntry | None = field(repr=False)
    """The entry for ``servers.json``; None if the server cannot be imported."""
    losses: tuple[str, ...] = ()
    """What was not imported, and what the user has to do: one sentence each."""


def read_host_file(path: Path, host: HostName | None, folder: Path) -> list[HostServer]:
    """Return the servers in the file of another host, in the order of the file.

    Args:
        path: The path of the file.
        host: The host that the file belongs to; None to guess it from the file.
        folder: The working folder, which selects one of Claude Code's projects.

    Raises:
        ConfigError: The file cannot be read, is too large, or is invalid.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {describe_system_error(error)}", path=str(path)) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"a configuration must not exceed {MAX_BYTES:,} bytes", path=str(path))
    top = _parse(data, path)
    return read_servers(host or guess_host(path, top), top, folder)


def read_servers(host: HostName, top: Mapping[str, Any], folder: Path) -> list[HostServer]:
    """Return the servers of a parsed configuration, in its order."""
    inputs = _index_inputs(top)
    found = [_read_server(host, name, entry, inputs) for name, entry in _list_entries(host, top, folder)]
    return [*found, *_list_other_servers(top, folder)]


def guess_host(path: Path, top: Mapping[str, Any]) -> HostName:
    """Return the host that a file probably belongs to; Claude Desktop for the form that most hosts share."""
    if path.suffix == ".toml":
        return HostName.CODEX
    if path.suffix in (".yaml", ".yml"):
        return HostName.GOOSE
    parts = {part.lower().lstrip(".") for part in path.parts[-3:]}
    for host, keys, folders in _TRAITS:
        if any(key in top for key in keys) or parts & folders:
            return host
    return HostName.CLAUDE_DESKTOP


_TRAITS: tuple[tuple[HostName, tuple[str, ...], set[str]], ...] = (
    (HostName.ZED, ("context_servers",), set()),
    (HostName.VS_CODE, ("inputs", "servers", "mcp"), {"vscode"}),
    (HostName.CURSOR, (), {"cursor"}),
    (HostName.WINDSURF, (), {"windsurf"}),
    (HostName.GEMINI_CLI, (), {"gemini"}),
    (HostName.CLAUDE_CODE, ("projects",), {"mcp.json", "claude.json"}),
)


def _parse(data: bytes, path: Path) -> Mapping[str, Any]:
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"this is not TOML: {error}", path=str(path)) from None
    if path.suffix in (".yaml", ".yml"):
        return read_yaml(data, str(path))
    value = jsonc.read(data, str(path)).value
    if not isinstance(value, dict):
        raise ConfigError("expected an object", path=str(path))
    return value


def _to_names(value: Any) -> set[str]:
    """Return the strings of a list; empty if the value is no list."""
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _index_inputs(top: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = top.get("mcp")
    inputs = top.get("inputs") or (nested.get("inputs") if isinstance(nested, dict) else None) or []
    items = inputs if isinstance(inputs, list) else ()
    return {str(item["id"]): item for item in items if isinstance(item, dict) and "id" in item}


def _list_entries(host: HostName, top: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and entries of a file's servers: first those of this folder's project, then those of all projects."""
    off: set[str] = set()
    if host is HostName.CLAUDE_CODE:
        project = _find_project(top, folder)
        off = _to_names(project.get("disabledMcpServers")) | _to_names(project.get("disabledMcpjsonServers"))
        yield from _mark_disabled(_to_object(project.get("mcpServers")), off)
    if host is HostName.GEMINI_CLI:
        rules = _to_object(top.get("mcp"))
        off = _to_names(rules.get("excluded"))
        if allowed := _to_names(rules.get("allowed")):
            off |= _to_object(top.get("mcpServers")).keys() - allowed
    nested = _to_object(top.get("mcp"))
    for key in ("mcpServers", "servers", "context_servers", "mcp_servers"):
        yield from _mark_disabled(_to_object(top.get(key)) or _to_object(nested.get(key)), off)
    if host is HostName.GOOSE:
        for name, extension in _to_object(top.get("extensions")).items():
            flat = _to_object(extension)
            yield name, {**flat, **_to_object(flat.get("config"))} if "config" in flat else extension


def _mark_disabled(entries: Mapping[str, Any], off: set[str]) -> Iterator[tuple[str, Any]]:
    for name, entry in entries.items():
        yield name, {**entry, "disabled": True} if name in off and isinstance(entry, dict) else entry


def _find_project(top: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return Claude Code's settings for the project in this folder; empty if there are none."""
    projects = _to_object(top.get("projects"))
    location = os.path.normcase(os.path.realpath(folder))
    for path, project in projects.items():
        if os.path.normcase(os.path.realpath(path)) == location:
            return _to_object(project)
    return {}


def _list_other_servers(top: Mapping[str, Any], folder: Path) -> Iterator[HostServer]:
    """Yield the servers of Claude Code's projects in other folders, without entries."""
    current = _find_project(top, folder)
    for path, project in _to_object(top.get("projects")).items():
        if project is not current:
            sentence = f"it belongs to the project {path}: import it there"
            yield from (
                HostServer(name, None, (sentence,)) for name in _to_object(_to_object(project).get("mcpServers"))
            )


def _to_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_server(host: HostName, name: str, entry: Any, inputs: Mapping[str, Any]) -> HostServer:
    losses = Losses()
    server_name = name.replace("/", "-")
    if server_name != name:
        losses.add(f"its name in the other host is {name!r}; names in servers.json must not contain /")
    if not isinstance(entry, dict):
        return HostServer(server_name, None, ("it is not a valid server entry",))
    try:
        translated = translate(host, entry, inputs, losses)
        if translated is not None:
            _check(server_name, translated, losses)
    except (ConfigError, TypeError, ValueError, AttributeError, KeyError) as error:
        problem = error.problem if isinstance(error, ConfigError) else "its entry is not valid"
        return HostServer(server_name, None, (*losses.sentences, problem))
    return HostServer(server_name, translated, tuple(losses.sentences))


def _check(name: str, entry: HostEntry, losses: Losses) -> None:
    """Raise `ConfigError` if an entry is invalid; its variables need not be set."""
    switched_off = {key: value for key, value in entry.items() if key not in ("enabled", "disabled")}
    server = configuration.read_server_mapping(name, {**switched_off, "disabled": True})
    for warning in server.warnings:
        losses.add(warning)

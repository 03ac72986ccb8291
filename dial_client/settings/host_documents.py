"""Reads the servers in the configuration file of another host: JSON with comments, TOML or YAML."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.runtime.json_fields import find_object, find_text, to_list, to_object
from dial_client.runtime.safe_text import escape_line
from dial_client.runtime.text import count_noun
from dial_client.settings import configuration, jsonc
from dial_client.settings.config_locations import report_unreadable
from dial_client.settings.config_values import Keys
from dial_client.settings.mcp_hosts import HostEntry, HostName, Losses, find_host_files, translate

# Maximum bytes of a file: the parser takes seconds for one mebibyte.
MAX_YAML_BYTES = 1024 * 1024
# Maximum number of values after the expansion of aliases: nested aliases could otherwise fill the memory.
MAX_VALUES = 100_000
MAX_DEPTH = 100


def read_yaml(data: bytes, path: str) -> dict[str, Any]:
    """Return the mapping in a YAML file, with string keys, expanded aliases, and dates as strings.

    Args:
        data: The content of the file.
        path: The path of the file, for messages.

    Raises:
        ConfigError: The content is not YAML, is no mapping, is too large, or is nested too deeply.
    """
    from yaml import SafeLoader, YAMLError  # the loader creates plain values only

    if len(data) > MAX_YAML_BYTES:
        raise ConfigError(f"a YAML file has at most {MAX_YAML_BYTES:,} bytes", path=path)
    try:
        loader = SafeLoader(data)
        node = loader.get_single_node()
        # The nodes are counted before values are made of them: nested merge keys (``<<``) could fill the memory, too.
        _check_size(node, count(1))
        value = None if node is None else _to_json_value(loader.construct_document(node))
    except RecursionError:
        raise ConfigError("the YAML is nested too deeply", path=path) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"this is not YAML: {error}", path=path) from None
    if not isinstance(value, dict):
        raise ConfigError("expected a mapping", path=path)
    return value


def _check_size(node: Any, numbers: Iterator[int], depth: int = 0) -> None:
    """Raise `ValueError` if a node has too many values, counted with its aliases expanded, or is nested too deeply."""
    if next(numbers) > MAX_VALUES or depth > MAX_DEPTH:
        raise ValueError("the YAML is too large with its aliases, or is nested too deeply")
    for child in node.value if node is not None and not isinstance(node.value, str) else ():
        _check_size(child[1] if isinstance(child, tuple) else child, numbers, depth + 1)


def _to_json_value(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _to_json_value(child) for key, child in value.items()}
        case list() | tuple() | set():
            return [_to_json_value(child) for child in value]
        case bytes():
            raise ValueError("binary values are not supported")
        case date():
            return value.isoformat()
        case _:
            return value


# Maximum bytes of a host's file. Claude Code keeps the history of its projects in the same file.
MAX_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HostServer:
    """A server of another host."""

    name: str
    entry: HostEntry | None = field(repr=False)
    """The entry for ``servers.json``; None if the server cannot be imported."""
    losses: tuple[str, ...] = ()
    """What was not imported, and what the user has to do: one sentence each."""
    keys: Keys = ()
    """The place of the entry in the host's file."""


def read_host_file(path: Path, host: HostName | None, folder: Path) -> list[HostServer]:
    """Return the servers in the file of another host, in the order of the file.

    Args:
        path: The path of the file.
        host: The host that the file belongs to; None to guess it from the file.
        folder: The working folder, which selects one of Claude Code's projects.

    Raises:
        ConfigError: The file cannot be read, is too large, or is invalid.
    """
    with report_unreadable(path), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"a configuration must not exceed {MAX_BYTES:,} bytes", path=str(path))
    top = parse_document(data, path)
    return read_servers(host or guess_host(path, top), top, folder)


def describe_folder_servers(folder: Path) -> str:
    """Return which files of other hosts in a folder have servers, and how to import them; empty if there are none.

    The servers are not used: the files may come from a stranger.
    """
    described = []
    for file in find_host_files(folder):
        if file.is_of_folder:
            with suppress(ConfigError):  # `dial-chat servers import` reports the error
                if number := len(read_host_file(file.path, file.host.name, folder)):
                    command = f"dial-chat servers import {file.host.name}"
                    name = escape_line(str(file.path.relative_to(folder)))
                    described.append(f"{name} has {count_noun(number, 'server')} ({command} asks before it adds them)")
    return "; ".join(described)


def read_servers(host: HostName, top: Mapping[str, Any], folder: Path) -> list[HostServer]:
    """Return the servers of a parsed configuration, in its order."""
    items = to_list(top.get("inputs") or find_object(top, "mcp").get("inputs"))
    inputs = {str(item["id"]): item for item in items if isinstance(item, dict) and "id" in item}
    found = [
        replace(_read_server(host, name, entry, inputs), keys=keys)
        for name, entry, keys in _list_entries(host, top, folder)
    ]
    return [*found, *_list_other_servers(top, folder)]


def guess_host(path: Path, top: Mapping[str, Any]) -> HostName:
    """Return the host that a file probably belongs to; Claude Desktop for the form that most hosts share."""
    if path.suffix == ".toml":
        return HostName.CODEX
    parts = {part.lower().lstrip(".") for part in path.parts[-3:]} | {path.stem.lower()}
    schema = str(top.get("$schema", ""))
    if any(to_object(entry).get("type") in ("local", "remote") for entry in find_object(top, "mcp").values()):
        return HostName.OPENCODE
    for host, keys, names in _TRAITS:
        if any(key in top for key in keys) or parts & names or any(name in schema for name in names):
            return host
    if isinstance(top.get("mcpServers"), list):
        return HostName.CONTINUE
    if path.suffix in (".yaml", ".yml"):
        return HostName.LIBRECHAT if "mcpServers" in top else HostName.GOOSE
    return HostName.CLAUDE_DESKTOP


# For each host: keys of its files, and names of its files and folders, which are also in the addresses of its schema.
_TRAITS: tuple[tuple[HostName, tuple[str, ...], set[str]], ...] = (
    (HostName.ZED, ("context_servers",), set()),
    (HostName.OPENCODE, (), {"opencode"}),
    (HostName.CRUSH, (), {"crush"}),
    (HostName.AMP, ("amp.mcpServers",), set()),
    (HostName.VS_CODE, ("inputs", "servers", "mcp", "customizations"), {"vscode"}),
    (HostName.CURSOR, (), {"cursor"}),
    (HostName.WINDSURF, (), {"windsurf"}),
    (HostName.GEMINI_CLI, (), {"gemini"}),
    (HostName.CLAUDE_CODE, ("projects",), {"mcp.json", "claude.json"}),
)


def parse_document(data: bytes, path: Path) -> Mapping[str, Any]:
    """Return the top level of a host's file, whose suffix says whether it is TOML, YAML, or JSON with comments.

    Raises:
        ConfigError: The content has another form.
    """
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


_Entries = Iterator[tuple[str, Any, Keys]]


def _list_entries(host: HostName, top: Mapping[str, Any], folder: Path) -> _Entries:
    """Yield name, entry and place of a file's servers: first those of this folder's project, then those of all."""
    off: set[str] = set()
    if host is HostName.CLAUDE_CODE:
        path, project = _find_project(top, folder)
        off = _to_names(project.get("disabledMcpServers")) | _to_names(project.get("disabledMcpjsonServers"))
        yield from _mark_disabled(top, ("projects", path, "mcpServers"), off)
    if host is HostName.GEMINI_CLI:
        rules = find_object(top, "mcp")
        off = _to_names(rules.get("excluded"))
        if allowed := _to_names(rules.get("allowed")):
            off |= find_object(top, "mcpServers").keys() - allowed
    outer: Keys = ("mcp",) if find_object(top, "mcp") else ("customizations", "vscode", "mcp")
    for key in ("mcpServers", "servers", "context_servers", "mcp_servers", "amp.mcpServers"):
        yield from _mark_disabled(top, (key,) if find_object(top, key) else (*outer, key), off)
    nested = _find_nested(top, outer)
    yield from ((name, entry, (*outer, name)) for name, entry in nested.items() if _TARGETS & to_object(entry).keys())
    for index, entry in enumerate(map(to_object, to_list(top.get("mcpServers")))):
        yield find_text(entry, "name", "uses"), entry, ("mcpServers", index)
    if host is HostName.GOOSE:
        extensions = find_object(top, "extensions")
        for name, extension in extensions.items():
            flat = find_object(extensions, name)
            whole = {**flat, **find_object(flat, "config")} if "config" in flat else extension
            yield name, whole, ("extensions", name)


# The keys of which an entry has one.
_TARGETS = {"command", "url"}


def _mark_disabled(top: Mapping[str, Any], keys: Keys, off: set[str]) -> _Entries:
    for name, entry in _find_nested(top, keys).items():
        yield name, {**entry, "disabled": True} if name in off and isinstance(entry, dict) else entry, (*keys, name)


def _find_nested(top: Mapping[str, Any], keys: Keys) -> Mapping[str, Any]:
    """Return the object at a place; empty if there is none."""
    for key in keys:
        top = find_object(top, str(key))
    return top


def _find_project(top: Mapping[str, Any], folder: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the path and the settings of Claude Code's project in this folder; both empty if there is none."""
    projects = find_object(top, "projects")
    location = os.path.normcase(os.path.realpath(folder))
    for path in projects:
        if os.path.normcase(os.path.realpath(path)) == location:
            return path, find_object(projects, path)
    return "", {}


def _list_other_servers(top: Mapping[str, Any], folder: Path) -> Iterator[HostServer]:
    """Yield the servers of Claude Code's projects in other folders, without entries."""
    _, current = _find_project(top, folder)
    for path, project in find_object(top, "projects").items():
        if project is not current:
            sentence = f"it belongs to the project {path}: import it there"
            yield from (HostServer(name, None, (sentence,)) for name in find_object(project, "mcpServers"))


def _read_server(host: HostName, name: str, entry: Any, inputs: Mapping[str, Any]) -> HostServer:
    losses = Losses()
    server_name = name.replace("/", "-")
    if server_name != name:
        losses.add(f"its name in the other host is {name!r}; names in servers.json must not contain /")
    if not isinstance(entry, dict):
        return HostServer(server_name, None, ("it is not a valid server entry",))
    try:
        translated = translate(host, entry, inputs, losses)
        if translated is not None:  # read as a disabled server: its variables need not be set
            switched_off = {key: value for key, value in translated.items() if key != "enabled"} | {"disabled": True}
            for warning in configuration.read_server_mapping(server_name, switched_off).warnings:
                losses.add(warning)
    except (ConfigError, TypeError, ValueError, AttributeError, KeyError) as error:
        problem = error.problem if isinstance(error, ConfigError) else "its entry is not valid"
        return HostServer(server_name, None, (*losses.sentences, problem))
    return HostServer(server_name, translated, tuple(losses.sentences))


_LINK = re.compile(
    r"(?P<cursor>cursor://[\w.-]+/mcp/install\?|https://cursor\.com/(?:[a-z-]+/)?install-mcp\?)"
    r"|(?:vscode|vscode-insiders):/*mcp/install\?|https://(?:insiders\.)?vscode\.dev/redirect(?:/mcp/install)?\?",
    re.IGNORECASE,
)

# Keys that let calls run without approval; they are ignored, because a link is not trusted.
_APPROVALS = frozenset(("autoApprove", "alwaysAllow", "trusted", "trust"))


def is_deep_link(text: str) -> bool:
    """Return True if a text is a deep link that installs a server."""
    return _LINK.match(text) is not None


def read_deep_link(text: str) -> HostServer:
    """Return the server of a deep link, with an entry for ``servers.json``.

    Raises:
        ConfigError: The link does not contain a server.
    """
    found = _LINK.match(text)
    if found is None:
        raise ConfigError("this is not a link that installs a server")
    is_cursor = found["cursor"] is not None
    name, config = _parse_cursor_link(text) if is_cursor else _parse_vscode_link(text)
    inputs = config.pop("inputs", [])
    if not name:
        raise ConfigError("the link does not name its server", "dial-chat servers add NAME LINK")
    if is_cursor and isinstance(config.get("command"), str) and "args" not in config:
        config["command"], *config["args"] = config["command"].split() or [""]
    host = HostName.CURSOR if is_cursor else HostName.VS_CODE
    for key in _APPROVALS & config.keys():
        del config[key]
    (server, *_) = read_servers(host, {"mcpServers": {name: config}, "inputs": inputs}, Path())
    return server


def _parse_cursor_link(text: str) -> tuple[str, dict[str, Any]]:
    query = parse_qs(urlsplit(text).query)
    encoded = (query.get("config") or [""])[0].replace(" ", "+")
    try:
        data = base64.b64decode(
            encoded + "=" * (-len(encoded) % 4), altchars=b"-_" if re.search("[-_]", encoded) else None
        )
        config = _parse_object(data.decode())
    except (binascii.Error, ValueError):
        raise ConfigError("the link's config is not JSON in base64") from None
    return (query.get("name") or [""])[0], config


def _parse_vscode_link(text: str) -> tuple[str, dict[str, Any]]:
    query = text.partition("?")[2]
    if query.startswith(("%7B", "%7b", "{")):
        config = _parse_object(unquote(query))
        return str(config.pop("name", "")), config
    fields = parse_qs(query)
    if "url" in fields and is_deep_link(fields["url"][0]):
        return _parse_vscode_link(fields["url"][0])
    config = _parse_object((fields.get("config") or [""])[0])
    if "inputs" in fields:
        try:
            config["inputs"] = json.loads(fields["inputs"][0])
        except ValueError:
            raise ConfigError("the link's inputs are not JSON") from None
    return (fields.get("name") or [""])[0], config


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise ConfigError("the link does not contain JSON") from None
    if not isinstance(value, dict):
        raise ConfigError("the link does not contain an object")
    return value

"""Translates entries of other hosts to entries of ``servers.json``.

Each host has its own names for the same settings, and its own variables. A translation takes the host's entry and
returns an entry of ``servers.json``; `Losses` collects a sentence for each setting that cannot be translated.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from dial_client.settings.config_entries import SERVER_ALIASES, SERVER_KEYS
from dial_client.settings.config_values import Node


class HostName(StrEnum):
    """The hosts whose configurations can be read and written."""

    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VS_CODE = "vscode"
    WINDSURF = "windsurf"
    GEMINI_CLI = "gemini-cli"
    CODEX = "codex"
    GOOSE = "goose"
    ZED = "zed"


@dataclass(frozen=True, slots=True)
class Host:
    """A host, and its files. Placeholders: ``{home}``, ``{config}`` (application data), ``{xdg}`` and ``{codex}``."""

    name: HostName
    title: str
    user_files: tuple[str, ...]
    """The user's own files."""
    folder_files: tuple[str, ...] = ()
    """Files in a project's folder, relative to it."""
    linux: tuple[str, ...] = ()
    """Used instead of `user_files` on Linux, if not empty."""
    windows: tuple[str, ...] = ()
    """Used instead of `user_files` on Windows, if not empty."""


HOSTS: Mapping[HostName, Host] = {
    host.name: host
    for host in (
        Host(HostName.CLAUDE_DESKTOP, "Claude Desktop", ("{config}/Claude/claude_desktop_config.json",)),
        Host(HostName.CLAUDE_CODE, "Claude Code", ("{home}/.claude.json",), (".mcp.json",)),
        Host(HostName.CURSOR, "Cursor", ("{home}/.cursor/mcp.json",), (".cursor/mcp.json",)),
        Host(
            HostName.VS_CODE,
            "VS Code",
            ("{config}/Code/User/mcp.json", "{config}/Code/User/settings.json"),
            (".vscode/mcp.json",),
        ),
        Host(HostName.WINDSURF, "Windsurf", ("{home}/.codeium/windsurf/mcp_config.json",)),
        Host(HostName.GEMINI_CLI, "Gemini CLI", ("{home}/.gemini/settings.json",), (".gemini/settings.json",)),
        Host(HostName.CODEX, "Codex", ("{codex}/config.toml",), (".codex/config.toml",)),
        Host(
            HostName.GOOSE,
            "goose",
            ("{home}/.config/goose/config.yaml",),
            windows=("{config}/Block/goose/config/config.yaml",),
        ),
        Host(
            HostName.ZED,
            "Zed",
            ("{home}/.config/zed/settings.json",),
            (".zed/settings.json",),
            linux=("{xdg}/zed/settings.json",),
            windows=("{config}/Zed/settings.json",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class HostFile:
    """A configuration file of a host that exists on this machine."""

    host: Host
    path: Path
    is_of_folder: bool
    """True for a file in the working folder, which is not trusted."""


def find_host_files(
    folder: Path, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Iterator[HostFile]:
    """Yield the configuration files of other hosts that exist.

    Args:
        folder: The working folder.
        environ: The environment, which defines the home folder.
        platform: A value of `sys.platform`.
    """
    for host in HOSTS.values():
        for path in list_user_paths(host, environ, platform):
            if _exists(path):
                yield HostFile(host, path, is_of_folder=False)
        for name in host.folder_files:
            if _exists(folder / name):
                yield HostFile(host, folder / name, is_of_folder=True)


def list_user_paths(host: Host, environ: Mapping[str, str], platform: str) -> Iterator[Path]:
    """Yield the paths of the user's own files of a host, whether they exist or not."""
    home = environ.get("USERPROFILE" if platform == "win32" else "HOME") or str(Path.home())
    xdg = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    config = {
        "win32": environ.get("APPDATA") or f"{home}/AppData/Roaming",
        "darwin": f"{home}/Library/Application Support",
    }.get(platform, xdg)
    files = {"win32": host.windows, "darwin": ()}.get(platform, host.linux) or host.user_files
    codex = environ.get("CODEX_HOME") or f"{home}/.codex"
    yield from (Path(file.format(config=config, home=home, xdg=xdg, codex=codex)) for file in files)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


HostEntry = dict[str, Any]


@dataclass(slots=True)
class Losses:
    """The settings that could not be translated, and what the user has to do."""

    sentences: list[str] = field(default_factory=list)
    is_unusable: bool = False
    """True if the server cannot start with the translated entry; it is imported disabled."""

    def add(self, sentence: str) -> None:
        """Add a sentence, unless it was added before."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)


def translate(host: HostName, entry: Mapping[str, Any], inputs: Mapping[str, Any], losses: Losses) -> HostEntry | None:
    """Return an entry of ``servers.json`` for an entry of another host; None for a part of the host that is no server.

    Args:
        host: The host that the entry belongs to.
        entry: The entry in the host's file.
        inputs: The definitions of VS Code's ``${input:…}``, by their ids.
        losses: Gets a sentence for each setting that is not translated.
    """
    translated = _TRANSLATIONS[host](dict(entry), losses) if host in _TRANSLATIONS else dict(entry)
    if translated is None:
        return None
    known, unknown = Node(translated).split_members(SERVER_KEYS, SERVER_ALIASES)
    _drop(dict(unknown), [key for key in unknown if key not in _SILENT], losses)
    kept = {str(node.keys[-1]) for node in known.values()} | {"description"}
    known_entry = {
        _PROPER.get(key, key): value for key, value in translated.items() if key in kept and value is not None
    }
    if host in _WITH_VARIABLES:
        known_entry = _translate_variables(known_entry, host, inputs, losses)
    elif any("${" in text for text in collect_strings(entry)):
        losses.add("${…} is literal text in the other host, but a variable here")
    for key in ("cwd", "envFile"):
        if key in known_entry and not _ABSOLUTE.match(str(known_entry[key])):
            losses.add(f"{key}: here a relative path begins at the folder of the configuration file")
    if losses.is_unusable:
        known_entry.pop("enabled", None)
        known_entry["disabled"] = True
    return known_entry


def collect_strings(value: Any) -> list[str]:
    """Return all strings in a JSON value, without keys."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for child in inner for text in collect_strings(child)]


def _rename(entry: HostEntry, **names: str) -> HostEntry:
    """Rename the keys of an entry that has them; return the entry."""
    for key, new_key in names.items():
        if (value := entry.pop(key, None)) is not None:
            entry[new_key] = value
    return entry


def _translate_gemini(entry: HostEntry, losses: Losses) -> HostEntry | None:
    if entry.pop("trust", False) is True:
        losses.add('trust: it lets all calls run without approval; here "autoApprove": ["*"] does that')
    if "url" in entry and "httpUrl" not in entry and "type" not in entry:
        entry["type"] = "sse"
    if entry.get("httpUrl") and entry.get("url"):
        del entry["url"]
    login = entry.get("oauth")
    if isinstance(login, dict):
        if login.pop("enabled", True) is False:
            del entry["oauth"]
        _drop(login, ("redirectUri", "audiences", "tokenParamName"), losses, "oauth.")
    return entry


def _translate_codex(entry: HostEntry, losses: Losses) -> HostEntry | None:
    headers = dict(entry.pop("http_headers", None) or {})
    headers |= {name: f"${{{variable}}}" for name, variable in (entry.pop("env_http_headers", None) or {}).items()}
    if variable := entry.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    if headers:
        entry["headers"] = headers
    variables = entry.pop("env_vars", None) or []
    names = [variable.get("name") if isinstance(variable, dict) else variable for variable in variables]
    if forwarded := {str(name): f"${{{name}}}" for name in names if name}:
        entry["env"] = forwarded | (entry.get("env") or {})
    if milliseconds := entry.pop("startup_timeout_ms", None):
        entry["startupTimeout"] = milliseconds / 1000
    if scopes := entry.pop("scopes", None):
        entry["oauth"] = {"scopes": scopes}
    tools = entry.pop("tools", None) or {}
    approved = [name for name, tool in tools.items() if tool.get("approval_mode") == "approve"]
    if approved:
        entry["autoApprove"] = approved
    if entry.pop("default_tools_approval_mode", None) == "approve":
        losses.add('default_tools_approval_mode: here "autoApprove": ["*"] lets all calls run without approval')
    return entry


def _translate_goose(entry: HostEntry, losses: Losses) -> HostEntry | None:
    kind = entry.pop("type", "stdio")
    if kind not in ("stdio", "sse", "streamable_http"):
        losses.add(f"it is a part of goose ({kind}), not a server")
        return None
    if kind != "stdio":
        entry["type"] = "sse" if kind == "sse" else "http"
    _rename(entry, cmd="command", envs="env", uri="url", timeout="toolTimeout", available_tools="enabledTools")
    if keys := entry.pop("env_keys", None):
        entry["env"] = dict(entry.get("env") or {}) | {key: f"${{{key}}}" for key in keys}
        losses.add(f"the values of {', '.join(keys)} are in the keyring of goose: set variables of these names")
    if not entry.get("enabledTools", True):  # goose offers all tools for an empty list
        del entry["enabledTools"]
    for key in ("name", "display_name", "bundled"):
        entry.pop(key, None)
    return entry


def _translate_zed(entry: HostEntry, losses: Losses) -> HostEntry | None:
    source = entry.pop("source", "custom")
    command = entry.get("command")
    if isinstance(command, dict):  # the format before 2025-06
        entry["command"] = command.get("path")
        entry |= {key: command[key] for key in ("args", "env", "timeout") if command.get(key)}
    if not entry.get("command") and not entry.get("url"):
        losses.add("an extension of Zed starts it" if source == "extension" or "settings" in entry else "it is empty")
        return None
    timeout = entry.pop("timeout", None)
    if isinstance(timeout, int | float):  # seconds in current versions, milliseconds in older ones
        entry["toolTimeout"] = timeout / 1000 if timeout >= 1000 else timeout
    if entry.get("settings") in ({}, None):
        entry.pop("settings", None)
    return entry


def _drop(entry: HostEntry, keys: Iterable[str], losses: Losses, path: str = "") -> None:
    for key in keys:
        if key in entry:
            del entry[key]
            losses.add(f"{path}{key}: there is no such setting here")


_ABSOLUTE = re.compile(r"[/\\~]|\$\{|[A-Za-z]:[/\\]")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_WITH_VARIABLES = {HostName.CLAUDE_CODE, HostName.CURSOR, HostName.VS_CODE, HostName.WINDSURF, HostName.GEMINI_CLI}
"""The hosts that expand variables in their configuration."""


def _translate_variables(entry: HostEntry, host: HostName, inputs: Mapping[str, Any], losses: Losses) -> HostEntry:
    def replace_text(node: Node) -> str:
        text = str(node.value)
        if host is HostName.GEMINI_CLI:
            text = _SHELL_VARIABLE.sub(r"${\1}", text)
        return _REFERENCE.sub(lambda found: _translate_variable(found[1], inputs, losses), text)

    replaced = Node(entry).with_strings(replace_text).value
    assert isinstance(replaced, dict)
    return replaced


def _translate_variable(reference: str, inputs: Mapping[str, Any], losses: Losses) -> str:
    """Return the text of ``servers.json`` for a reference ``${…}`` of another host.

    Args:
        reference: The text between the braces.
        inputs: The definitions of VS Code's ``${input:…}``, by their ids.
        losses: Gets a sentence if the user has to do something.
    """
    if reference in ("pathSeparator", "/"):
        return os.sep
    if reference == "workspaceFolder":
        losses.add("here ${workspaceFolder} is the folder of the configuration file")
    kind, has_kind, name = reference.partition(":")
    if kind == "input":
        variable = re.sub(r"\W+", "_", name).upper()
        definition = inputs.get(name)
        about = definition.get("description", "") if isinstance(definition, dict) else ""
        losses.add(f"the other host asks for ${{input:{name}}}{f' ({about})' if about else ''}: set {variable}")
        default = definition.get("default") if isinstance(definition, dict) else None
        return f"${{{variable}:-{default}}}" if default and not re.search(r"[{}]", str(default)) else f"${{{variable}}}"
    is_supported = not has_kind or kind == "env" or name.startswith("-")
    if not is_supported or reference == "workspaceFolderBasename":
        losses.is_unusable = True
        losses.add(f"${{{reference}}} is not supported here: replace it by a value, then enable the server")
    return f"${{{reference}}}"


_SILENT = frozenset(
    (
        *("displayName", "display_name", "gallery", "icon", "iconUrl", "icons", "id", "logoUrl", "metadata", "name"),
        *("note", "notes", "tags", "title", "version", "description"),
    )
)
_PROPER = {name: key for name, key in SERVER_ALIASES.items() if name.endswith("_sec")} | {
    "enabled_tools": "enabledTools",
    "disabled_tools": "disabledTools",
}
_TRANSLATIONS: Mapping[HostName, Callable[[HostEntry, Losses], HostEntry | None]] = {
    HostName.WINDSURF: lambda entry, _: _rename(entry, serverUrl="url"),
    HostName.GEMINI_CLI: _translate_gemini,
    HostName.CODEX: _translate_codex,
    HostName.GOOSE: _translate_goose,
    HostName.ZED: _translate_zed,
}


_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMON = ("type", "command", "args", "env", "url", "headers", "cwd")
_KEYS: Mapping[HostName, tuple[str, ...]] = {
    HostName.CLAUDE_DESKTOP: ("command", "args", "env"),
    HostName.CLAUDE_CODE: ("type", "command", "args", "env", "url", "headers", "oauth", "timeout"),
    HostName.CURSOR: (*_COMMON, "envFile"),
    HostName.VS_CODE: (*_COMMON, "envFile"),
    HostName.WINDSURF: ("command", "args", "env", "serverUrl", "headers", "disabled", "disabledTools"),
    HostName.GEMINI_CLI: (
        *("command", "args", "env", "cwd", "url", "httpUrl", "headers", "oauth", "timeout", "includeTools"),
        *("excludeTools", "description"),
    ),
    HostName.CODEX: (
        *("command", "args", "env", "env_vars", "cwd", "url", "bearer_token_env_var", "http_headers"),
        *("env_http_headers", "startup_timeout_sec", "tool_timeout_sec", "enabled", "required", "enabled_tools"),
        *("disabled_tools", "scopes"),
    ),
    HostName.GOOSE: (
        *("type", "name", "enabled", "cmd", "args", "envs", "env_keys", "uri", "headers", "timeout"),
        *("available_tools", "description"),
    ),
    HostName.ZED: ("command", "args", "env", "url", "headers", "enabled"),
}
_TOP = {
    HostName.VS_CODE: "servers",
    HostName.CODEX: "mcp_servers",
    HostName.GOOSE: "extensions",
    HostName.ZED: "context_servers",
}
"""The top-level key of the servers, for hosts that do not use ``mcpServers``."""
_ENV_REFERENCE = {HostName.CURSOR, HostName.VS_CODE, HostName.WINDSURF}
"""The hosts that write ``${env:NAME}``."""
_PLAIN_REFERENCE = {HostName.CLAUDE_CODE, HostName.GEMINI_CLI}
"""The hosts that write ``${NAME}``."""


def write_host_text(host: HostName, servers: Mapping[str, HostEntry]) -> tuple[str, list[str]]:
    """Return a host's configuration with these servers, and a sentence for each setting the host does not support.

    The format is JSON for most hosts, TOML for Codex, and YAML (its JSON subset) for goose.

    Args:
        host: The host to write for.
        servers: The entries by name, with canonical keys and unexpanded variables.
    """
    written: dict[str, HostEntry] = {}
    sentences: list[str] = []
    for name, entry in servers.items():
        losses = Losses()
        translated = _WRITERS.get(host, _export_default)(name, dict(entry), losses)
        for key in [key for key in translated if key not in _KEYS[host]]:
            del translated[key]
            losses.add(f"{key}: the host has no such setting")
        translated = _with_host_variables(translated, host, losses)
        sentences += [f"{name}: {sentence}" for sentence in losses.sentences]
        if "url" in entry and host is HostName.CLAUDE_DESKTOP:
            sentences.append(f"{name}: it is left out: add its URL as a connector in the settings of Claude Desktop")
            continue
        written[name] = translated
    top = {_TOP.get(host, "mcpServers"): written}
    text = _format_toml(written) if host is HostName.CODEX else json.dumps(top, indent=2, ensure_ascii=False) + "\n"
    return text, sentences


def _export_default(name: str, entry: HostEntry, losses: Losses) -> HostEntry:  # noqa: ARG001 - a writer
    if "toolTimeout" in entry and "timeout" not in entry:
        entry["timeout"] = round(entry.pop("toolTimeout") * 1000)
    return entry


def _export_windsurf(name: str, entry: HostEntry, losses: Losses) -> HostEntry:  # noqa: ARG001 - a writer
    if "url" in entry:
        entry.pop("type", None)
    _rename(entry, url="serverUrl")
    if entry.pop("enabled", True) is False:
        entry["disabled"] = True
    return entry


def _export_gemini(name: str, entry: HostEntry, losses: Losses) -> HostEntry:
    entry = _export_default(name, entry, losses)
    kind = entry.pop("type", None)
    if "url" in entry and kind != "sse":
        entry["httpUrl"] = entry.pop("url")
    return _rename(entry, enabledTools="includeTools", disabledTools="excludeTools")


def _export_codex(name: str, entry: HostEntry, losses: Losses) -> HostEntry:  # noqa: ARG001 - a writer
    entry.pop("type", None)
    _switch(entry)
    env = entry.pop("env", None) or {}
    forwarded = [key for key, value in env.items() if _find_variable(value) == key]
    if forwarded:
        entry["env_vars"] = forwarded
    if plain := {key: str(value) for key, value in env.items() if key not in forwarded and value is not None}:
        entry["env"] = plain
    headers = entry.pop("headers", None) or {}
    token = re.fullmatch(r"Bearer " + _VARIABLE.pattern, str(headers.get("Authorization", "")))
    if token:
        entry["bearer_token_env_var"] = token[1]
        headers = {key: value for key, value in headers.items() if key != "Authorization"}
    from_env = {key: variable for key, value in headers.items() if (variable := _find_variable(value))}
    if from_env:
        entry["env_http_headers"] = from_env
    if plain := {key: str(value) for key, value in headers.items() if key not in from_env}:
        entry["http_headers"] = plain
    return _rename(
        entry,
        startupTimeout="startup_timeout_sec",
        toolTimeout="tool_timeout_sec",
        enabledTools="enabled_tools",
        disabledTools="disabled_tools",
    )


def _export_goose(name: str, entry: HostEntry, losses: Losses) -> HostEntry:  # noqa: ARG001 - a writer
    kind = entry.pop("type", None)
    _switch(entry)
    entry = {"type": "stdio", "name": name, "enabled": True, **entry}
    if "url" in entry:
        entry["type"] = "sse" if kind == "sse" else "streamable_http"
        entry["uri"] = entry.pop("url")
    env = entry.pop("env", None) or {}
    keys = [key for key, value in env.items() if _find_variable(value) == key]
    if keys:
        entry["env_keys"] = keys
    if plain := {key: value for key, value in env.items() if key not in keys}:
        entry["envs"] = plain
    return _rename(entry, command="cmd", toolTimeout="timeout", enabledTools="available_tools")


def _export_zed(name: str, entry: HostEntry, losses: Losses) -> HostEntry:  # noqa: ARG001 - a writer
    entry.pop("type", None)
    _switch(entry)
    return entry


def _switch(entry: HostEntry) -> None:
    """Replace ``disabled`` by ``enabled``."""
    if "disabled" in entry:
        entry["enabled"] = not entry.pop("disabled")


def _find_variable(value: Any) -> str | None:
    """Return the name of the variable if a value consists of one ``${NAME}``; otherwise None."""
    found = _VARIABLE.fullmatch(str(value))
    return found[1] if found else None


def _with_host_variables(entry: HostEntry, host: HostName, losses: Losses) -> HostEntry:
    if host in _ENV_REFERENCE or host in _PLAIN_REFERENCE:
        form = r"${env:\1}" if host in _ENV_REFERENCE else r"${\1}"
        entry = Node(entry).with_strings(lambda leaf: _VARIABLE.sub(form, str(leaf.value))).value
    elif any("${" in text for text in collect_strings(entry)):
        losses.add("the host does not expand variables: replace ${…} by values")
    if host in _ENV_REFERENCE and any(":-" in text for text in collect_strings(entry)):
        losses.add("the host does not support defaults of variables: write ${env:NAME} instead of ${NAME:-…}")
    return entry


def _format_toml(servers: Mapping[str, HostEntry]) -> str:
    tables = []
    for name, entry in servers.items():
        key = name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        lines = "\n".join(
            f"{field} = {_format_toml_value(value)}" for field, value in entry.items() if value is not None
        )
        tables.append(f"[mcp_servers.{key}]\n{lines}\n")
    return "\n".join(tables)


def _format_toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        members = (
            f"{json.dumps(key, ensure_ascii=False)} = {_format_toml_value(child)}" for key, child in value.items()
        )
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_WRITERS: Mapping[HostName, Callable[[str, HostEntry, Losses], HostEntry]] = {
    HostName.WINDSURF: _export_windsurf,
    HostName.GEMINI_CLI: _export_gemini,
    HostName.CODEX: _export_codex,
    HostName.GOOSE: _export_goose,
    HostName.ZED: _export_zed,
}

"""Translates entries of other hosts to entries of ``servers.json``.

Each host has its own names for the same settings, and its own variables. A translation takes the host's entry and
returns an entry of ``servers.json``; `Losses` collects a sentence for each setting that cannot be translated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.settings.hosts.host_files import HostName
from dial_client.settings.jsonc import Node
from dial_client.settings.server_config import SERVER_ALIASES, SERVER_KEYS

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
    translated = _TRANSLATIONS.get(host, _translate_plain)(dict(entry), losses)
    if translated is None:
        return None
    known_entry = _select_known_keys(translated, losses)
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


def _translate_plain(entry: HostEntry, losses: Losses) -> HostEntry | None:  # noqa: ARG001 - a translation
    return entry


def _translate_windsurf(entry: HostEntry, losses: Losses) -> HostEntry | None:  # noqa: ARG001 - a translation
    if "serverUrl" in entry:
        entry["url"] = entry.pop("serverUrl")
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
    for host_key, key in (("cmd", "command"), ("envs", "env"), ("uri", "url"), ("timeout", "toolTimeout")):
        if (value := entry.pop(host_key, None)) is not None:
            entry[key] = value
    if keys := entry.pop("env_keys", None):
        entry["env"] = dict(entry.get("env") or {}) | {key: f"${{{key}}}" for key in keys}
        losses.add(f"the values of {', '.join(keys)} are in the keyring of goose: set variables of these names")
    if tools := entry.pop("available_tools", None):
        entry["enabledTools"] = tools
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


def _select_known_keys(entry: HostEntry, losses: Losses) -> HostEntry:
    """Return the keys of an entry that exist here; all others are reported, except for descriptions and icons."""
    known, unknown = Node(entry).split_members(SERVER_KEYS, SERVER_ALIASES)
    _drop(dict(unknown), [key for key in unknown if key not in _SILENT], losses)
    kept = {str(node.keys[-1]) for node in known.values()} | {"description"}
    return {_PROPER.get(key, key): value for key, value in entry.items() if key in kept and value is not None}


def _drop(entry: HostEntry, keys: Any, losses: Losses, path: str = "") -> None:
    for key in keys:
        if key in entry:
            del entry[key]
            losses.add(f"{path}{key}: there is no such setting here")


_ABSOLUTE = re.compile(r"[/\\~]|\$\{|[A-Za-z]:[/\\]")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_WITH_VARIABLES = {
    HostName.CLAUDE_CODE,
    HostName.CURSOR,
    HostName.VS_CODE,
    HostName.WINDSURF,
    HostName.GEMINI_CLI,
}
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
    HostName.WINDSURF: _translate_windsurf,
    HostName.GEMINI_CLI: _translate_gemini,
    HostName.CODEX: _translate_codex,
    HostName.GOOSE: _translate_goose,
    HostName.ZED: _translate_zed,
}

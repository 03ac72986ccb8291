"""Translates entries of ``servers.json`` to the format of another host, including variables that the host supports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dial_client.settings.hosts.host_entries import HostEntry, Losses, collect_strings
from dial_client.settings.hosts.host_files import HostName
from dial_client.settings.jsonc import Node

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
        entry["serverUrl"] = entry.pop("url")
        entry.pop("type", None)
    if entry.pop("enabled", True) is False:
        entry["disabled"] = True
    return entry


def _export_gemini(name: str, entry: HostEntry, losses: Losses) -> HostEntry:
    entry = _export_default(name, entry, losses)
    kind = entry.pop("type", None)
    if "url" in entry and kind != "sse":
        entry["httpUrl"] = entry.pop("url")
    for key, host_key in (("enabledTools", "includeTools"), ("disabledTools", "excludeTools")):
        if key in entry:
            entry[host_key] = entry.pop(key)
    return entry


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
    for key, host_key in (
        ("startupTimeout", "startup_timeout_sec"),
        ("toolTimeout", "tool_timeout_sec"),
        ("enabledTools", "enabled_tools"),
        ("disabledTools", "disabled_tools"),
    ):
        if key in entry:
            entry[host_key] = entry.pop(key)
    return entry


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
    for key, host_key in (("command", "cmd"), ("toolTimeout", "timeout"), ("enabledTools", "available_tools")):
        if key in entry:
            entry[host_key] = entry.pop(key)
    return entry


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
    if host in _ENV_REFERENCE:
        entry = Node(entry).with_strings(lambda leaf: _VARIABLE.sub(r"${env:\1}", str(leaf.value))).value
    elif host in _PLAIN_REFERENCE:
        entry = Node(entry).with_strings(lambda leaf: _VARIABLE.sub(r"${\1}", str(leaf.value))).value
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

"""Translates entries of other hosts to entries of ``servers.json``.

Each host has its own names for the same settings, and its own variables. A translation takes the host's entry and
returns an entry of ``servers.json``; `Losses` collects a sentence for each setting that cannot be translated.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from dial_client.runtime.json_fields import find_object
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
    OPENCODE = "opencode"
    CRUSH = "crush"
    AMP = "amp"
    LIBRECHAT = "librechat"
    CONTINUE = "continue"


_COMMON_KEYS = ("type", "command", "args", "env", "url", "headers", "cwd")
_ENV_REFERENCE, _PLAIN_REFERENCE = r"${env:\1}", r"${\1}"
_SHELL_VARIABLE = r"\$([A-Za-z_][A-Za-z0-9_]*)"


@dataclass(frozen=True, slots=True)
class Host:
    """A host, and its files. Placeholders: ``{home}``, ``{config}`` (application data), ``{xdg}`` and ``{codex}``."""

    name: HostName
    title: str
    user_files: tuple[str, ...]
    """The user's own files."""
    keys: tuple[str, ...]
    """The keys of a server's entry."""
    folder_files: tuple[str, ...] = ()
    """Files in a project's folder, relative to it."""
    linux: tuple[str, ...] = ()
    """Used instead of `user_files` on Linux, if not empty."""
    windows: tuple[str, ...] = ()
    """Used instead of `user_files` on Windows, if not empty."""
    servers_key: str = "mcpServers"
    """The top-level key of the servers."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Maps keys of the host to the keys of ``servers.json`` with the same meaning."""
    reference: str = ""
    r"""How a reference to the variable ``\1`` is written; empty for a host that expands no variables."""
    variable: str = ""
    r"""A regular expression of references other than ``${…}``; its group 1 is the name of the variable."""
    dynamic: str = ""
    """How a value begins that only the host can compute, such as the output of a program."""


HOSTS: Mapping[HostName, Host] = {
    host.name: host
    for host in (
        Host(
            HostName.CLAUDE_DESKTOP,
            "Claude Desktop",
            ("{config}/Claude/claude_desktop_config.json",),
            ("command", "args", "env"),
        ),
        Host(
            HostName.CLAUDE_CODE,
            "Claude Code",
            ("{home}/.claude.json",),
            ("type", "command", "args", "env", "url", "headers", "oauth", "timeout"),
            (".mcp.json",),
            reference=_PLAIN_REFERENCE,
        ),
        Host(
            HostName.CURSOR,
            "Cursor",
            ("{home}/.cursor/mcp.json",),
            (*_COMMON_KEYS, "envFile"),
            (".cursor/mcp.json",),
            reference=_ENV_REFERENCE,
        ),
        Host(
            HostName.VS_CODE,
            "VS Code",
            ("{config}/Code/User/mcp.json", "{config}/Code/User/settings.json"),
            (*_COMMON_KEYS, "envFile"),
            (".vscode/mcp.json", ".devcontainer/devcontainer.json", ".devcontainer.json"),
            servers_key="servers",
            reference=_ENV_REFERENCE,
        ),
        Host(
            HostName.WINDSURF,
            "Windsurf",
            ("{home}/.codeium/windsurf/mcp_config.json",),
            ("command", "args", "env", "serverUrl", "headers", "disabled", "disabledTools"),
            names={"serverUrl": "url"},
            reference=_ENV_REFERENCE,
        ),
        Host(
            HostName.GEMINI_CLI,
            "Gemini CLI",
            ("{home}/.gemini/settings.json",),
            (
                *("command", "args", "env", "cwd", "url", "httpUrl", "headers", "oauth", "timeout", "includeTools"),
                *("excludeTools", "description"),
            ),
            (".gemini/settings.json",),
            reference=_PLAIN_REFERENCE,
            variable=_SHELL_VARIABLE,
        ),
        Host(
            HostName.CODEX,
            "Codex",
            ("{codex}/config.toml",),
            (
                *("command", "args", "env", "env_vars", "cwd", "url", "bearer_token_env_var", "http_headers"),
                *("env_http_headers", "startup_timeout_sec", "tool_timeout_sec", "enabled", "required"),
                *("enabled_tools", "disabled_tools", "scopes"),
            ),
            (".codex/config.toml",),
            servers_key="mcp_servers",
            names={
                "startup_timeout_sec": "startupTimeout",
                "tool_timeout_sec": "toolTimeout",
                "enabled_tools": "enabledTools",
                "disabled_tools": "disabledTools",
            },
        ),
        Host(
            HostName.GOOSE,
            "goose",
            ("{home}/.config/goose/config.yaml",),
            (
                *("type", "name", "enabled", "cmd", "args", "envs", "env_keys", "uri", "headers", "timeout"),
                *("available_tools", "description"),
            ),
            windows=("{config}/Block/goose/config/config.yaml",),
            servers_key="extensions",
            names={
                "cmd": "command",
                "envs": "env",
                "uri": "url",
                "timeout": "toolTimeout",
                "available_tools": "enabledTools",
            },
        ),
        Host(
            HostName.ZED,
            "Zed",
            ("{home}/.config/zed/settings.json",),
            ("command", "args", "env", "url", "headers", "enabled"),
            (".zed/settings.json",),
            linux=("{xdg}/zed/settings.json",),
            windows=("{config}/Zed/settings.json",),
            servers_key="context_servers",
        ),
        Host(
            HostName.OPENCODE,
            "opencode",
            ("{home}/.config/opencode/opencode.json", "{home}/.config/opencode/opencode.jsonc"),
            ("type", "command", "environment", "enabled", "url", "headers", "oauth", "timeout"),
            ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
            linux=("{xdg}/opencode/opencode.json", "{xdg}/opencode/opencode.jsonc"),
            servers_key="mcp",
            names={"environment": "env"},
            reference=r"{env:\1}",
            variable=r"\{env:([^{}]+)\}",
            dynamic="{file:",
        ),
        Host(
            HostName.CRUSH,
            "Crush",
            ("{home}/.config/crush/crush.json",),
            ("type", "command", "args", "env", "url", "headers", "timeout", "disabled", "disabled_tools"),
            ("crush.json", ".crush.json"),
            linux=("{xdg}/crush/crush.json",),
            windows=("{home}/AppData/Local/crush/crush.json",),
            servers_key="mcp",
            names={"timeout": "toolTimeout", "disabled_tools": "disabledTools"},
            reference=_PLAIN_REFERENCE,
            variable=_SHELL_VARIABLE,
            dynamic="$(",
        ),
        Host(
            HostName.AMP,
            "Amp",
            ("{home}/.config/amp/settings.json",),
            ("command", "args", "env", "url", "headers", "includeTools"),
            (".amp/settings.json",),
            linux=("{xdg}/amp/settings.json",),
            servers_key="amp.mcpServers",
            reference=_PLAIN_REFERENCE,
        ),
        Host(
            HostName.LIBRECHAT,
            "LibreChat",
            (),
            ("type", "command", "args", "env", "url", "headers", "timeout", "initTimeout"),
            ("librechat.yaml",),
            reference=_PLAIN_REFERENCE,
            dynamic="{{",
        ),
        Host(
            HostName.CONTINUE,
            "Continue",
            ("{home}/.continue/config.yaml",),
            (*_COMMON_KEYS, "name", "requestOptions"),
            reference=r"${{ secrets.\1 }}",
            variable=r"\$\{\{ *(?:secrets|inputs)\.(\w+) *\}\}",
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


def find_host_files(folder: Path, environ: Mapping[str, str] = os.environ) -> Iterator[HostFile]:
    """Yield the configuration files of other hosts that exist.

    Args:
        folder: The working folder.
        environ: The environment, which defines the home folder.
    """
    for host in HOSTS.values():
        files = [HostFile(host, path, is_of_folder=False) for path in list_user_paths(host, environ, sys.platform)]
        files += [HostFile(host, folder / name, is_of_folder=True) for name in host.folder_files]
        # Unlike `Path.is_file`, this is False for a file in a folder that cannot be read.
        yield from (file for file in files if os.path.isfile(file.path))  # noqa: PTH113


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


HostEntry = dict[str, Any]


@dataclass(slots=True)
class Losses:
    """The settings that could not be translated, and what the user has to do."""

    sentences: list[str] = field(default_factory=list)
    is_unusable: bool = False
    """True if the server cannot start with the translated entry; it is imported disabled."""

    def add_unusable(self, value: str) -> None:
        """Add a sentence about a value without which the server cannot start."""
        self.is_unusable = True
        self.add(f"{value} is not supported here: replace it by a value, then enable the server")

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
    names = {**_SWITCHES, **HOSTS[host].names}
    translated = {names.get(key, key): value for key, value in entry.items() if value is not None}
    if host in _TRANSLATIONS and not _TRANSLATIONS[host](translated, losses):
        return None
    known, unknown = Node(translated).split_members(SERVER_KEYS, SERVER_ALIASES)
    for key in unknown.keys() - _SILENT:
        losses.add(f"{key}: there is no such setting here")
    kept = {str(node.keys[-1]) for node in known.values()} | {"description"}
    known_entry = {key: value for key, value in translated.items() if key in kept}
    if HOSTS[host].reference:
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


def _translate_gemini(entry: HostEntry, losses: Losses) -> bool:
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
        for key in ("audiences", "tokenParamName"):
            if login.pop(key, None) is not None:
                losses.add(f"oauth.{key}: there is no such setting here")
    return True


def _translate_codex(entry: HostEntry, losses: Losses) -> bool:
    headers = dict(entry.pop("http_headers", {}))
    headers |= {name: f"${{{variable}}}" for name, variable in entry.pop("env_http_headers", {}).items()}
    if variable := entry.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    if headers:
        entry["headers"] = headers
    variables = entry.pop("env_vars", [])
    names = [variable.get("name") if isinstance(variable, dict) else variable for variable in variables]
    if forwarded := {str(name): f"${{{name}}}" for name in names if name}:
        entry["env"] = forwarded | entry.get("env", {})
    if milliseconds := entry.pop("startup_timeout_ms", None):
        entry["startupTimeout"] = milliseconds / 1000
    if scopes := entry.pop("scopes", None):
        entry["oauth"] = {"scopes": scopes}
    approved = [name for name, tool in entry.pop("tools", {}).items() if tool.get("approval_mode") == "approve"]
    if approved:
        entry["autoApprove"] = approved
    if entry.pop("default_tools_approval_mode", None) == "approve":
        losses.add('default_tools_approval_mode: here "autoApprove": ["*"] lets all calls run without approval')
    return True


def _translate_goose(entry: HostEntry, losses: Losses) -> bool:
    kind = entry.pop("type", "stdio")
    if kind not in ("stdio", "sse", "streamable_http"):
        losses.add(f"it is a part of goose ({kind}), not a server")
        return False
    if kind != "stdio":
        entry["type"] = "sse" if kind == "sse" else "http"
    if keys := entry.pop("env_keys", None):
        entry["env"] = entry.get("env", {}) | {key: f"${{{key}}}" for key in keys}
        losses.add(f"the values of {', '.join(keys)} are in the keyring of goose: set variables of these names")
    if not entry.get("enabledTools", True):  # goose offers all tools for an empty list
        del entry["enabledTools"]
    return True


def _translate_zed(entry: HostEntry, losses: Losses) -> bool:
    source = entry.pop("source", "custom")
    command = entry.get("command")
    if isinstance(command, dict):  # the format before 2025-06
        entry["command"] = command.get("path")
        entry |= {key: command[key] for key in ("args", "env", "timeout") if command.get(key)}
    if not entry.get("command") and not entry.get("url"):
        losses.add("an extension of Zed starts it" if source == "extension" or "settings" in entry else "it is empty")
        return False
    timeout = entry.pop("timeout", None)
    if isinstance(timeout, int | float):  # seconds in current versions, milliseconds in older ones
        entry["toolTimeout"] = timeout / 1000 if timeout >= 1000 else timeout
    if entry.get("settings") == {}:
        del entry["settings"]
    return True


def _translate_opencode(entry: HostEntry, losses: Losses) -> bool:  # noqa: ARG001 - a translation
    entry.pop("type", None)  # "local" or "remote": the command or the URL says it
    if isinstance(entry.get("command"), list):
        entry["command"], *entry["args"] = entry["command"] or [""]
    if timeout := entry.pop("timeout", None):
        entry["toolTimeout"] = timeout / 1000
    if entry.get("oauth") is False:
        del entry["oauth"]
    return True


def _translate_librechat(entry: HostEntry, losses: Losses) -> bool:
    if entry.get("type") == "websocket":
        losses.add("websocket: there is no such transport here")
        return False
    if timeout := entry.pop("initTimeout", None):
        entry["startupTimeout"] = timeout / 1000
    for key in ("iconPath", "chatMenu", "requiresOAuth", "customUserVars"):  # a login is asked for where it is needed
        entry.pop(key, None)
    return True


def _translate_continue(entry: HostEntry, losses: Losses) -> bool:
    if "uses" in entry:
        losses.add("it is a block of Continue's hub: add the server itself")
        return False
    if headers := find_object(entry.pop("requestOptions", None), "headers"):
        entry["headers"] = headers
    if timeout := entry.pop("connectionTimeout", None):
        entry["startupTimeout"] = timeout / 1000
    return True


# Keys of other hosts for ``enabled``.
_SWITCHES = {"isActive": "enabled", "active": "enabled"}
_CLOSING = {"{file:": "}", "$(": ")", "{{": "}}"}
_ABSOLUTE = re.compile(r"[/\\~]|\$\{|[A-Za-z]:[/\\]")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def _translate_variables(entry: HostEntry, host: HostName, inputs: Mapping[str, Any], losses: Losses) -> HostEntry:
    variable, dynamic = HOSTS[host].variable, HOSTS[host].dynamic

    def replace_text(node: Node) -> str:
        text = str(node.value)
        if dynamic and dynamic in text:
            losses.add_unusable(f"{dynamic}…{_CLOSING[dynamic]}")
        if variable:
            text = re.sub(variable, r"${\1}", text)
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
        definition = find_object(inputs, name)
        about, default = definition.get("description", ""), definition.get("default")
        losses.add(f"the other host asks for ${{input:{name}}}{f' ({about})' if about else ''}: set {variable}")
        return f"${{{variable}:-{default}}}" if default and not re.search(r"[{}]", str(default)) else f"${{{variable}}}"
    is_supported = not has_kind or kind == "env" or name.startswith("-")
    if not is_supported or reference == "workspaceFolderBasename":
        losses.add_unusable(f"${{{reference}}}")
    return f"${{{reference}}}"


_SILENT = frozenset(
    (
        *("displayName", "display_name", "gallery", "icon", "iconUrl", "icons", "id", "logoUrl", "metadata", "name"),
        *("note", "notes", "tags", "title", "version", "description", "bundled"),
    )
)
# Functions that translate an entry in place. They return False for a part of a host that is no server.
_TRANSLATIONS: Mapping[HostName, Callable[[HostEntry, Losses], bool]] = {
    HostName.GEMINI_CLI: _translate_gemini,
    HostName.CODEX: _translate_codex,
    HostName.GOOSE: _translate_goose,
    HostName.ZED: _translate_zed,
    HostName.OPENCODE: _translate_opencode,
    HostName.LIBRECHAT: _translate_librechat,
    HostName.CONTINUE: _translate_continue,
}


_YAML_HOSTS = frozenset((HostName.GOOSE, HostName.LIBRECHAT, HostName.CONTINUE))
# Longer lines of YAML are folded, which is right for prose only.
MAX_YAML_WIDTH = 100_000
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_host_text(host: HostName, servers: Mapping[str, HostEntry]) -> tuple[str, list[str]]:
    """Return a host's configuration with these servers, and a sentence for each setting the host does not support.

    The format is JSON for most hosts, TOML for Codex, and YAML for goose, LibreChat and Continue.

    Args:
        host: The host to write for.
        servers: The entries by name, with canonical keys and unexpanded variables.
    """
    written: dict[str, HostEntry] = {}
    sentences: list[str] = []
    for name, entry in servers.items():
        losses = Losses()
        translated = _write_entry(HOSTS[host], name, dict(entry), losses)
        sentences += [f"{name}: {sentence}" for sentence in losses.sentences]
        if "url" in entry and host is HostName.CLAUDE_DESKTOP:
            sentences.append(f"{name}: it is left out: add its URL as a connector in the settings of Claude Desktop")
            continue
        written[name] = translated
    if host is HostName.CODEX:
        tables = (format_toml_table((HOSTS[host].servers_key, name), entry) for name, entry in written.items())
        return "\n".join(tables), sentences
    key = HOSTS[host].servers_key
    top: dict[str, Any] = {key: written}
    if host is HostName.CONTINUE:
        # A file without a name and a version is not read at all.
        top = {"name": "Local Config", "version": "1.0.0", "schema": "v1", key: list(written.values())}
    if host in _YAML_HOSTS:
        from yaml import safe_dump

        return safe_dump(top, sort_keys=False, allow_unicode=True, width=MAX_YAML_WIDTH), sentences
    return json.dumps(top, indent=2, ensure_ascii=False) + "\n", sentences


def write_entry(host: HostName, name: str, entry: Mapping[str, Any]) -> HostEntry:
    """Return a host's entry for an entry of ``servers.json``, without the settings that the host does not support."""
    return _write_entry(HOSTS[host], name, dict(entry), Losses())


def _write_entry(host: Host, name: str, entry: HostEntry, losses: Losses) -> HostEntry:
    """Return the host's entry for an entry of ``servers.json``; `losses` gets a sentence for each setting left out."""
    if "enabled" in host.keys and "disabled" in entry:
        entry["enabled"] = not entry.pop("disabled")
    if "disabled" in host.keys and entry.pop("enabled", True) is False:
        entry["disabled"] = True
    if "timeout" in host.keys and "timeout" not in host.names and "timeout" not in entry and "toolTimeout" in entry:
        entry["timeout"] = round(entry.pop("toolTimeout") * 1000)
    if host.name in _WRITERS:
        entry = _WRITERS[host.name](name, entry)
    names = {key: own_name for own_name, key in host.names.items()}
    entry = {names.get(key, key): value for key, value in entry.items() if value is not None}
    for key in [key for key in entry if key not in host.keys]:
        del entry[key]
        if key != "type":  # the command or the URL says it
            losses.add(f"{key}: the host has no such setting")
    if host.reference:
        entry = Node(entry).with_strings(lambda leaf: _VARIABLE.sub(host.reference, str(leaf.value))).value
    elif any("${" in text for text in collect_strings(entry)):
        losses.add("the host does not expand variables: replace ${…} by values")
    if host.reference == _ENV_REFERENCE and any(":-" in text for text in collect_strings(entry)):
        losses.add("the host does not support defaults of variables: write ${env:NAME} instead of ${NAME:-…}")
    return entry


def _write_gemini(name: str, entry: HostEntry) -> HostEntry:  # noqa: ARG001 - a writer
    names = {"enabledTools": "includeTools", "disabledTools": "excludeTools"}
    if entry.get("type") != "sse":
        names["url"] = "httpUrl"
    return {names.get(key, key): value for key, value in entry.items()}


def _write_codex(name: str, entry: HostEntry) -> HostEntry:  # noqa: ARG001 - a writer
    forwarded, entry["env"] = _split_env(entry)
    headers = dict(entry.pop("headers", {}))
    token = re.fullmatch(r"Bearer " + _VARIABLE.pattern, str(headers.get("Authorization", "")))
    if token:
        del headers["Authorization"]
    from_env = {key: variable for key, value in headers.items() if (variable := _find_variable(value))}
    return entry | {
        "env_vars": forwarded or None,
        "bearer_token_env_var": token[1] if token else None,
        "env_http_headers": from_env or None,
        "http_headers": {key: str(value) for key, value in headers.items() if key not in from_env} or None,
    }


def _write_goose(name: str, entry: HostEntry) -> HostEntry:
    keys, env = _split_env(entry)
    remote = "sse" if entry.pop("type", None) == "sse" else "streamable_http"
    kind = remote if "url" in entry else "stdio"
    return {"type": kind, "name": name, "enabled": True, **entry, "env": env, "env_keys": keys or None}


def _write_opencode(name: str, entry: HostEntry) -> HostEntry:  # noqa: ARG001 - a writer
    if "url" in entry:
        return {**entry, "type": "remote"}
    return {**entry, "type": "local", "command": [entry.get("command"), *entry.pop("args", ())]}


def _write_crush(name: str, entry: HostEntry) -> HostEntry:  # noqa: ARG001 - a writer
    remote = "sse" if entry.get("type") == "sse" else "http"
    return {"type": remote if "url" in entry else "stdio"} | {key: entry[key] for key in entry if key != "type"}


def _write_continue(name: str, entry: HostEntry) -> HostEntry:
    headers = entry.pop("headers", None)
    return {"name": name, **entry, "requestOptions": {"headers": headers} if headers else None}


def _split_env(entry: HostEntry) -> tuple[list[str], dict[str, str] | None]:
    """Return the names of the variables that keep their names, and all others with their values, None for none."""
    env = {key: value for key, value in entry.get("env", {}).items() if value is not None}
    forwarded = [key for key, value in env.items() if _find_variable(value) == key]
    return forwarded, {key: str(value) for key, value in env.items() if key not in forwarded} or None


def _find_variable(value: Any) -> str | None:
    """Return the name of the variable if a value consists of one ``${NAME}``; otherwise None."""
    found = _VARIABLE.fullmatch(str(value))
    return found[1] if found else None


def format_toml_table(keys: Sequence[str | int], entry: HostEntry) -> str:
    """Return a table of TOML with its header."""
    names = [str(key) for key in keys]
    path = ".".join(name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names)
    lines = "\n".join(f"{field} = {_format_toml_value(value)}" for field, value in entry.items() if value is not None)
    return f"[{path}]\n{lines}\n"


def _format_toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        members = (
            f"{json.dumps(key, ensure_ascii=False)} = {_format_toml_value(child)}" for key, child in value.items()
        )
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# Functions that return the host's form of a server's entry, whose keys still have our names.
_WRITERS: Mapping[HostName, Callable[[str, HostEntry], HostEntry]] = {
    HostName.GEMINI_CLI: _write_gemini,
    HostName.CODEX: _write_codex,
    HostName.GOOSE: _write_goose,
    HostName.OPENCODE: _write_opencode,
    HostName.CRUSH: _write_crush,
    HostName.CONTINUE: _write_continue,
}

"""The entry of the gateway in the configuration of another MCP host: ``dial-chat gateway`` as that host's server."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote, urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import suggest_name
from dial_client.settings.mcp_hosts import HOSTS, HostEntry, HostName, list_user_paths, write_host_text

# The name of the gateway in the other host. Claude Code calls a tool mcp__dial__NAME, which may have 64 characters.
NAME = "dial"
# Names of hosts that are shorter than those of `HostName`.
_SHORT_NAMES = {"gemini": HostName.GEMINI_CLI, "claude": HostName.CLAUDE_CODE, "code": HostName.VS_CODE}
_PROGRAMS = frozenset(("dial-chat", "dial-client"))
_LOOPBACK = frozenset(("localhost", "::1"))
_MODULES = frozenset(("dial_client", "dial_client.cli"))
# Hosts that a desktop starts, with the PATH of the desktop: on macOS /usr/bin:/bin:/usr/sbin:/sbin.
_DESKTOP_HOSTS = frozenset(
    (HostName.CLAUDE_DESKTOP, HostName.CURSOR, HostName.VS_CODE, HostName.WINDSURF, HostName.ZED, HostName.GOOSE)
)
# Hosts that pass only some variables of their environment to a server, so that keys must be named.
_FILTERING_HOSTS = frozenset((HostName.CODEX, HostName.GEMINI_CLI))
# Hosts that give up a call after a minute or five, unless the entry says more. An approval waits for a person.
_HASTY_HOSTS = frozenset((HostName.CODEX, HostName.GOOSE))
_CALL_SECONDS = 600
# Codex gives up a server that has not answered for ten seconds, which a busy machine needs to start a program.
_START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class GatewayText:
    """What a user pastes into another host."""

    text: str
    """The configuration of the host with the gateway as its only server: JSON, TOML or YAML."""
    files: tuple[str, ...]
    """The places of the host's file, with the operating systems in parentheses."""
    key: str
    """The key of that file that has the servers."""
    command: str
    """A command, or a link, that adds the entry instead; empty if the host has none."""


def find_host_by_name(name: str) -> HostName:
    """Return the host of a name, such as ``gemini-cli`` or ``gemini``.

    Raises:
        ConfigError: There is no such host.
    """
    if name in _SHORT_NAMES:
        return _SHORT_NAMES[name]
    if name not in {*HostName}:
        raise ConfigError(f"{name!r} is not a host", suggest_name(name, HostName))
    return HostName(name)


def find_own_program(argv: Sequence[str] | None = None) -> list[str]:
    """Return the command that starts this program from another host.

    It is an absolute path, because a host that the desktop starts does not have the PATH of a terminal: the name alone
    is an error there (``spawn dial-chat ENOENT``). A symbolic link is not followed: pipx and uv keep their link at
    ~/.local/bin, while its target moves with the next version of Python or of this package.

    Args:
        argv: The arguments of this process; None for `sys.argv`.
    """
    started = Path(os.path.abspath((argv or sys.argv)[0]))  # noqa: PTH100 - `resolve` follows links
    beside = Path(sys.executable).parent
    suffix = ".exe" if sys.platform == "win32" else ""
    for path in (started.with_suffix(suffix), beside / f"dial-chat{suffix}"):
        if path.stem in _PROGRAMS and path.is_file():
            # The folder of `uvx` is a cache, which `uv cache clean` removes.
            uvx = shutil.which("uvx") if "archive-v0" in path.parts or "environments-v2" in path.parts else None
            return [uvx, "dial-client"] if uvx else [str(path)]
    return [sys.executable, "-m", "dial_client"]


def build_gateway_entry(
    host: HostName,
    program: Sequence[str],
    arguments: Sequence[str] = (),
    variables: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
) -> HostEntry:
    """Return the entry of the gateway, with the keys of ``servers.json``.

    Args:
        host: The host that starts the gateway.
        program: The command of this program, see `find_own_program`.
        arguments: The options of ``dial-chat gateway``.
        variables: The environment variables that the gateway's own servers need.
        environ: The environment of the user's terminal.
        platform: A value of `sys.platform`.
    """
    entry: HostEntry = {"type": "stdio", "command": program[0], "args": [*program[1:], "gateway", *arguments]}
    env: dict[str, str] = {}
    if host in _DESKTOP_HOSTS and platform != "win32" and environ.get("PATH"):
        # The gateway starts servers such as npx and uvx by their names, and they start node and python: an absolute
        # path of the gateway does not help there. On Windows the desktop has the PATH of the user.
        env["PATH"] = environ["PATH"]
    if host in _FILTERING_HOSTS:
        # Gemini CLI passes the text of a reference on if the variable is not set.
        env |= {name: f"${{{name}}}" for name in variables if name in environ or host is HostName.CODEX}
    if env:
        entry["env"] = env
    if host in _HASTY_HOSTS:
        entry["toolTimeout"] = _CALL_SECONDS
    if host is HostName.CODEX:
        entry["startupTimeout"] = _START_SECONDS
    return entry


def write_gateway_text(host: HostName, entry: HostEntry, platform: str = sys.platform) -> GatewayText:
    """Return what a user pastes into a host, for an entry of `build_gateway_entry`."""
    text, _ = write_host_text(host, {NAME: entry})
    return GatewayText(text, _list_files(host), HOSTS[host].servers_key, _format_command(host, entry, platform))


def is_gateway(entry: Mapping[str, Any]) -> bool:
    """Return True if an entry of ``servers.json`` starts this program's gateway.

    A gateway that has itself among its servers would start itself without end.
    """
    command, args = entry.get("command"), entry.get("args", ())
    if not isinstance(command, str) or not isinstance(args, list | tuple):
        return False
    words = [word for word in (command, *args) if isinstance(word, str)]
    names = [PurePath(word.replace("\\", "/")).name.lower().removesuffix(".exe") for word in words]
    starts = [index for index, name in enumerate(names) if name in _PROGRAMS or name in _MODULES]
    return bool(starts) and "gateway" in words[starts[0] + 1 :]


def is_gateway_of_service(url: str | None, host: str, port: int) -> bool:
    """Return True if a URL is ``/mcp`` of the service of this machine that listens on a host and port.

    A service that has itself among its servers would list its own tools again, under ever longer names.
    """
    if url is None:
        return False
    parts = urlsplit(url)
    with suppress(ValueError):  # the port of the URL is no number
        named = (parts.hostname or "").lower()
        is_here = named == host or named in _LOOPBACK or named.startswith("127.")
        return is_here and parts.port == port and parts.path.rstrip("/").endswith("/mcp")
    return False


def _list_files(host: HostName) -> tuple[str, ...]:
    homes = {"HOME": "~", "USERPROFILE": "%USERPROFILE%", "APPDATA": "%APPDATA%"}
    systems: dict[str, list[str]] = {}
    for platform, title in (("linux", "Linux"), ("darwin", "macOS"), ("win32", "Windows")):
        path = next((path.as_posix() for path in list_user_paths(HOSTS[host], homes, platform)), "")
        path = path or HOSTS[host].folder_files[0]
        systems.setdefault(path.replace("/", "\\") if platform == "win32" else path, []).append(title)
    return tuple(f"{path} ({', '.join(titles)})" for path, titles in systems.items())


def _format_command(host: HostName, entry: HostEntry, platform: str) -> str:
    """Return what adds the same entry; ``codex mcp add`` knows no time limits and no names of variables."""
    command, args = entry["command"], list(entry["args"])
    match host:
        case HostName.CLAUDE_CODE:
            words = ["claude", "mcp", "add", "--scope", "user", NAME, "--", command, *args]
        case HostName.GEMINI_CLI:
            # Its parser takes options for its own, wherever they are, up to "--".
            first = next((index for index, word in enumerate(args) if word.startswith("-")), len(args))
            options = ["--", *args[first:]] if first < len(args) else []
            env = [word for name, value in entry.get("env", {}).items() for word in ("-e", f"{name}={value}")]
            words = ["gemini", "mcp", "add", "--scope", "user", *env, NAME, command, *args[:first], *options]
        case HostName.VS_CODE:
            words = ["code", "--add-mcp", json.dumps({"name": NAME, **entry}, ensure_ascii=False)]
        case HostName.CURSOR:
            config = base64.b64encode(json.dumps(entry, ensure_ascii=False).encode()).decode()
            return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={quote(config, safe='')}"
        case _:
            return ""
    return subprocess.list2cmdline(words) if platform == "win32" else shlex.join(words)

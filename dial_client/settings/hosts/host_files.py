"""Other MCP hosts, and the documented locations of their configuration files on Linux, macOS and Windows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


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

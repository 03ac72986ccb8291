"""The servers that a first configuration may have: servers that need no account, and servers of other MCP hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError, ServerStartError
from dial_client.servers.transports.server_process import find_program


@dataclass(frozen=True, slots=True)
class ServerProposal:
    """A server that can be chosen."""

    name: str
    about: str
    entry: Mapping[str, Any] = field(repr=False)
    """The entry of the server in ``servers.json``."""
    is_default: bool = True
    """Whether the server is chosen by default."""
    needs_folder: bool = False
    """Whether the server serves a single folder; it is left out of a configuration for every folder."""

    @property
    def command(self) -> str:
        """The command, without arguments that may hold a secret; for a server with a URL, the host."""
        if "command" in self.entry:
            runner = self.entry["command"]
            package = next((arg for arg in self.entry.get("args", ()) if not str(arg).startswith("-")), "")
            return f"{runner} {package}" if runner in ("uvx", "npx") else str(runner)
        from urllib.parse import urlsplit

        return urlsplit(str(self.entry.get("url") or self.entry.get("httpUrl"))).hostname or "a URL"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A server that needs no account; its own program, if it is installed, is ``mcp-server-NAME``."""

    name: str
    about: str
    runner: tuple[str, ...]
    """The command that downloads and runs the server, if it is not installed."""
    args: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()
    needs_folder: bool = False
    is_default: bool = True


_READING_GIT = ("git_status", "git_log", "git_diff*", "git_show", "git_branch")
_READING_FILES = ("read_*", "list_*", "search_files", "get_file_info", "directory_tree")
_NPX = ("npx", "-y")
_FOLDER = "${workspaceFolder}"
_KINDS = (
    _Kind("time", "The current time, and times in other zones.", ("uvx", "mcp-server-time"), auto_approve=("*",)),
    _Kind(
        "git",
        "The git repository of this folder; calls that change it need approval.",
        ("uvx", "mcp-server-git"),
        ("--repository", _FOLDER),
        _READING_GIT,
        needs_folder=True,
    ),
    _Kind(
        "filesystem",
        "The files of this folder; calls that write need approval.",
        (*_NPX, "@modelcontextprotocol/server-filesystem"),
        (_FOLDER,),
        _READING_FILES,
        needs_folder=True,
        is_default=False,
    ),
    _Kind("fetch", "Web pages as text; each call needs approval.", ("uvx", "mcp-server-fetch")),
    _Kind(
        "memory",
        "Notes that outlast a conversation; each call needs approval.",
        (*_NPX, "@modelcontextprotocol/server-memory"),
        is_default=False,
    ),
)
# The names of the servers that need no account.
NAMES = tuple(kind.name for kind in _KINDS)


def find_proposals(folder: Path, *, in_user_folder: bool) -> list[ServerProposal]:
    """Return the servers that need no account and can start on this machine.

    Args:
        folder: The working folder.
        in_user_folder: Leave out servers that serve a single folder, for a configuration of every folder.
    """
    found = list[ServerProposal]()
    for kind in _KINDS:
        if kind.needs_folder and (in_user_folder or (kind.name == "git" and not (folder / ".git").exists())):
            continue
        for program, *runner_arguments in ((f"mcp-server-{kind.name}",), kind.runner):
            if is_installed(program):
                entry: dict[str, Any] = {"command": program}
                if args := [*runner_arguments, *kind.args]:
                    entry["args"] = args
                if kind.auto_approve:
                    entry["autoApprove"] = [*kind.auto_approve]
                found.append(ServerProposal(kind.name, kind.about, entry, kind.is_default, kind.needs_folder))
                break
    return found


def find_host_proposals() -> list[ServerProposal]:
    """Return the servers of the user's other MCP hosts, each name once; files of the working folder are ignored."""
    from dial_client.settings.host_documents import read_host_file
    from dial_client.settings.mcp_hosts import find_host_files

    found: dict[str, ServerProposal] = {}
    for file in find_host_files(Path.cwd()):
        if file.is_of_folder:
            continue
        try:
            servers = read_host_file(file.path, file.host.name, Path.cwd())
        except ConfigError:  # `dial-chat servers import` reports the error
            continue
        for server in servers:
            if server.entry is not None and server.name not in NAMES:
                about = f"From {file.host.title}."
                found.setdefault(server.name, ServerProposal(server.name, about, server.entry, is_default=False))
    return list(found.values())


def choose_by_name(names: Sequence[str], proposals: Sequence[ServerProposal]) -> list[ServerProposal]:
    """Return the proposals of these names; none for the single name ``none``.

    Raises:
        ConfigError: A name has no proposal.
    """
    from dial_client.runtime.text import suggest_name

    known = {proposal.name: proposal for proposal in proposals}
    if [*names] == ["none"]:  # as where init asks
        return []
    for name in names:
        if name not in known:
            missing = "neither the server nor a program that can download it is installed" if name in NAMES else ""
            hint = missing or suggest_name(name, known)
            raise ConfigError(f"there is no server {name!r} to choose", hint)
    return [known[name] for name in dict.fromkeys(names)]


def is_installed(program: str) -> bool:
    """Return True if a program is found in PATH, or in the folder of the running Python."""
    try:
        find_program("init", program, os.environ.get("PATH"), None)
    except ServerStartError:
        return False
    return True

"""The work of ``dial-chat init``: choose servers that can start on this machine, write the file, trust it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dial_client.cli.config_summary import escaped
from dial_client.cli.options import ExitCode
from dial_client.cli.trust_prompt import trust_now
from dial_client.errors import ConfigError, ServerStartError
from dial_client.servers.transports.environment import find_program
from dial_client.settings.config_locations import FILE_NAME, user_config_path
from dial_client.settings.config_trust import EnvFiles, read_found

_HEADER = "  // Written by dial-chat init. docs/configuration.md of dial-client lists every key."


@dataclass(frozen=True, slots=True)
class Proposal:
    """A server that needs no account."""

    name: str
    about: str
    program: str
    """Its command, and its package for ``uvx``."""
    args: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()


PROPOSALS = (
    Proposal("time", "The current time, and times in other zones.", "mcp-server-time", auto_approve=("*",)),
    Proposal(
        "git",
        "The git repository of this folder; calls that change it need approval.",
        "mcp-server-git",
        ("--repository", "${workspaceFolder}"),
        ("git_status", "git_log", "git_diff*", "git_show", "git_branch"),
    ),
    Proposal("fetch", "Web pages as text; each call needs approval.", "mcp-server-fetch"),
)


async def write_first_configuration(*, in_user_folder: bool) -> int:
    """Write a servers.json with the servers that can start here, trust it, and return the exit code.

    Raises:
        ConfigError: there is such a file already, it cannot be written, or no server can start on this machine.
    """
    path = user_config_path() if in_user_folder else Path(FILE_NAME)
    chosen = list(find_servers())
    if in_user_folder:
        chosen = [(proposal, command) for proposal, command in chosen if proposal.name != "git"]
    if not chosen:
        raise ConfigError(
            "no MCP server is installed here, and there is no uvx to fetch one",
            hint="pip install 'dial-client[demo]', then dial-chat init",
        )
    _write(path, format_configuration(chosen))
    if not in_user_folder:
        trust_now(read_found(path), EnvFiles())
    print(f"{escaped(str(path))} has {len(chosen)} server{'s' * (len(chosen) > 1)}:")
    for proposal, command in chosen:
        print(f"  {proposal.name:<6} {proposal.about} ({' '.join(command)})")
    print('Try: dial-chat "What time is it in Tokyo?"')
    return ExitCode.ANSWERED


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError("there is a configuration already", path=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", path=str(path)) from None


def find_servers() -> Iterator[tuple[Proposal, tuple[str, ...]]]:
    """Return the servers that can start here, each with its command: the program, else ``uvx PACKAGE``."""
    for proposal in PROPOSALS:
        if proposal.name == "git" and not Path(".git").exists():
            continue
        for command in ((proposal.program,), ("uvx", proposal.program)):
            if _is_installed(command[0]):
                yield proposal, command
                break


def format_configuration(chosen: list[tuple[Proposal, tuple[str, ...]]]) -> str:
    """Return the text of the file, with a comment for each server."""
    entries = []
    for proposal, (program, *first) in chosen:
        entry: dict[str, object] = {"command": program}
        if args := [*first, *proposal.args]:
            entry["args"] = args
        if proposal.auto_approve:
            entry["autoApprove"] = [*proposal.auto_approve]
        entries.append(f"    // {proposal.about}\n    {json.dumps(proposal.name)}: {json.dumps(entry)}")
    servers = ",\n".join(entries)
    return f'{{\n{_HEADER}\n  "mcpServers": {{\n{servers}\n  }}\n}}\n'


def _is_installed(program: str) -> bool:
    try:
        find_program("init", program, os.environ.get("PATH"), None)
    except ServerStartError:
        return False
    return True

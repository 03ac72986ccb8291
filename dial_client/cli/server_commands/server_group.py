"""The group ``servers``, and the options that its commands share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import open_group_app, run_command

servers = open_group_app("servers")

Name = Annotated[str, typer.Argument(help="The name of a server.")]
User = Annotated[bool, typer.Option("--user", help="Change servers.json in your configuration folder.")]
Folder = Annotated[bool, typer.Option("--folder", help="Change ./servers.json, the configuration of this folder.")]
File = Annotated[Path | None, typer.Option("-c", "--config", "--file", metavar="FILE", help="Change this file.")]


@dataclass(frozen=True, slots=True)
class ConfigChoice:
    """The file that a command changes, as its options name it."""

    user: bool = False
    folder: bool = False
    file: Path | None = None


def run_work(work: Callable[[], Callable[[], Awaitable[int]]]) -> None:
    """Run the coroutine that `work` returns, which imports what it needs, and exit with its code."""
    run_command(work, o.Options())

"""The command ``init``: a first configuration, with MCP servers that need no account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import SETTINGS, more, run_command


@more.command(context_settings=SETTINGS)
def init(
    user: Annotated[
        bool, typer.Option("--user", help="Write the file into your configuration folder, for every folder.")
    ] = False,
) -> None:
    """Write a first servers.json into this folder: MCP servers that are installed, or that uvx can fetch."""

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.first_configuration import write_first_configuration

        return lambda: write_first_configuration(in_user_folder=user)

    run_command(choose, o.Options())

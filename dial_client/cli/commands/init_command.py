"""The command ``init``: writes a first configuration, with MCP servers that need no account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.commands.typer_apps import SETTINGS, command_app, run_command


@command_app.command(context_settings=SETTINGS)
def init(
    model: Annotated[str | None, typer.Option("-m", "--model", metavar="NAME", help="The model that answers.")] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="NAME",
            help="A server: time, git, filesystem, fetch, memory, or a server of another MCP host on this machine. "
            "Repeatable.",
        ),
    ] = None,
    folder: Annotated[bool, typer.Option("--folder", help="Write ./servers.json, for this folder.")] = False,
    user: Annotated[
        bool, typer.Option("--user", help="Write the file into your configuration folder, for every folder.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Ask no questions: use the defaults.")] = False,
) -> None:
    """Write a first servers.json: ask for the model, the servers and the folder, and try the file.

    Without a terminal no questions are asked: the file names the best model that is found, and the servers that are
    installed or that uvx can download.
    """

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.configuration.first_configuration import InitChoice, write_first_configuration
        from dial_client.messages.errors import ConfigError

        if user and folder:
            raise ConfigError("--user and --folder name different files", "give one of them")
        place = None if not user and not folder else user
        choice = InitChoice(place, model, tuple(server or ()), is_agreed=yes)
        return lambda: write_first_configuration(choice)

    run_command(choose, o.Options())

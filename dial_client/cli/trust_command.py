"""The command ``trust``: trusts a configuration, lists trusted configurations, revokes trust."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import SETTINGS, command_app, run_command


@command_app.command(context_settings=SETTINGS)
def trust(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A servers.json, or its folder: trusted without a question."),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the files that are trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the trust in FILE, or in ./servers.json.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Trust a servers.json, so that dial-chat uses it in its folder; without FILE, show ./servers.json and ask."""

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.trusted_files import manage

        return lambda: manage(file, list_all=list_all, revoke=revoke, as_json=as_json)

    run_command(choose, o.Options())

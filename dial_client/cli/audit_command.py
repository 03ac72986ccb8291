"""The command ``audit``: shows and verifies the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import SETTINGS, command_app, run_command


@command_app.command(context_settings=SETTINGS)
def audit(
    action: Annotated[str, typer.Argument(help="show, tail or verify.")] = "show",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="tail: print new entries until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, metavar="N", help="tail: the number of last entries to print.")
    ] = 10,
    server: Annotated[str, typer.Option("--server", metavar="PATTERN", help="Only entries of these servers.")] = "",
    tool: Annotated[str, typer.Option("--tool", metavar="PATTERN", help="Only entries of these tools.")] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only entries since this date, time or age: 2026-11-22, 2026-11-22T17:00, 90m, 3h, 2d.",
        ),
    ] = "",
    conversation: Annotated[
        str, typer.Option("--conversation", metavar="ID", help="Only entries of this conversation.")
    ] = "",
    head: Annotated[
        str, typer.Option("--head", metavar="DIGEST", help="verify: a digest that the log must contain.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help="The folder of the log, if not the default.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Show decisions about tool calls and their results, or verify that the log was not changed.

    verify exits with 1 if the log was changed, or does not contain the digest of --head.
    """

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli import audit_report

        filters = audit_report.Filters(server, tool, since, conversation)
        match action:
            case "show":
                return lambda: audit_report.show(folder, filters, as_json=as_json)
            case "tail":
                return lambda: audit_report.tail(folder, filters, lines, follow=follow, as_json=as_json)
            case "verify":
                return lambda: audit_report.check(folder, head, as_json=as_json)
            case _:
                from dial_client.messages.errors import ConfigError

                raise ConfigError(f"unknown action {action!r}", hint="one of show, tail, verify")

    run_command(choose, o.Options())

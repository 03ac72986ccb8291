"""The commands that exchange servers with other hosts and the MCP registry: import, export, search."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.server_commands.server_group import ConfigChoice, File, Folder, User, run_work, servers
from dial_client.cli.typer_apps import SETTINGS, run_command


@servers.command(name="import", context_settings=SETTINGS)
def import_(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST|FILE]",
            help="claude-desktop, claude-code, cursor, vscode, windsurf, gemini-cli, codex, goose or zed; or a file. "
            "Without it, all hosts that are found.",
        ),
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option("--server", metavar="NAME", help="Import this server only. Repeatable.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace servers of the same names.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Import the servers without a question.")] = False,
    user: User = False,
    folder: Folder = False,
    file: File = None,
) -> None:
    """Import servers of other MCP hosts, and name the settings that cannot be imported."""

    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.server_commands.host_import import import_servers

        choice = ConfigChoice(user, folder, file)
        return lambda: import_servers(source, tuple(server or ()), choice, replace=replace, is_agreed=yes)

    run_work(work)


@servers.command(context_settings=SETTINGS)
def export(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="The servers; all without a name.")
    ] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="HOST", help="The host to export for: claude-desktop, vscode, codex, …")
    ] = "claude-desktop",
    config: o.Config = None,
    trust: o.Trust = False,
    verbose: o.Verbose = False,
) -> None:
    """Print servers in the form of another MCP host; standard error names settings that the host does not support."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.server_commands.host_output import export_servers

        return lambda: export_servers(options, tuple(names or ()), to)

    run_command(choose, options)


@servers.command(context_settings=SETTINGS)
def search(
    words: Annotated[str, typer.Argument(metavar="WORD", help="A part of a server's name.")],
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="URL", help="The URL of another registry. DIAL_REGISTRY_URL does the same."),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Search the MCP registry for servers."""

    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.server_commands.registry_client import search_registry

        return lambda: search_registry(words, registry, as_json=as_json)

    run_work(work)

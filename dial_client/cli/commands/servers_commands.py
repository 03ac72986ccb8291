"""The group ``servers`` of commands: list, test, log in, add, change, import, export and search."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.commands.typer_apps import SETTINGS, open_group_app, run_command
from dial_client.cli.options import ConfigChoice

servers = open_group_app("servers")

Name = Annotated[str, typer.Argument(help="The name of a server.")]
User = Annotated[bool, typer.Option("--user", help="Change servers.json in your configuration folder.")]
Folder = Annotated[bool, typer.Option("--folder", help="Change ./servers.json, the configuration of this folder.")]
File = Annotated[Path | None, typer.Option("-c", "--config", "--file", metavar="FILE", help="Change this file.")]


def run_work(work: Callable[[], Callable[[], Awaitable[int]]]) -> None:
    """Run the coroutine that `work` returns, which imports what it needs, and exit with its code."""
    run_command(work, o.Options())


@servers.command(name="list", context_settings=SETTINGS)
def list_all(
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the servers with their state and tools, and why a server is missing."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.servers.server_features import list_servers

        return lambda: list_servers(options, as_json=as_json)

    run_command(choose, options)


@servers.command(context_settings=SETTINGS)
def login(
    name: Name,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the login URL, but open no browser.")] = False,
    verbose: o.Verbose = False,
) -> None:
    """Log in to a server that requires OAuth."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.servers.oauth_login import log_in

        return lambda: log_in(options, name, browser=not no_browser)

    run_command(choose, options)


@servers.command(context_settings=SETTINGS)
def logout(
    name: Name,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    verbose: o.Verbose = False,
) -> None:
    """Log out of a server: its tokens are deleted from this machine."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.servers.oauth_login import log_out

        return lambda: log_out(options, name)

    run_command(choose, options)


@servers.command(context_settings=SETTINGS)
def test(
    name: Name,
    no_call: Annotated[bool, typer.Option("--no-call", help="Call no tool.")] = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """Start a server; print its tools, resources, prompts, times and standard error. Exit code 1: it does not work.

    A tool that is declared read-only and needs no arguments is called once.
    """
    options = o.Options.of_command(locals(), command="dial-chat servers test")

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.servers.server_check import check_server

        return lambda: check_server(options, name, with_call=not no_call, as_json=as_json)

    run_command(choose, options)


Replace = Annotated[bool, typer.Option("--replace", help="Replace a server of the same name.")]


NewName = Annotated[str, typer.Argument(help="A name for the server; or a SOURCE alone, if it names its server.")]
Target = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[URL | SOURCE | -- COMMAND [ARG]…]",
        help="The server's URL; or its program with arguments, after --; or a SOURCE: a link of Cursor or VS Code, an "
        ".mcpb bundle, a server.json, or a name of the MCP registry.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="KEY=VALUE", help="A variable for the program; VALUE may be ${VAR}. Repeatable."),
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="LINE", help="A header, like 'Authorization: Bearer ${TOKEN}'. Repeatable."),
]
Cwd = Annotated[str | None, typer.Option("--cwd", metavar="FOLDER", help="The program's working folder.")]
Transport = Annotated[
    str | None, typer.Option("--transport", metavar="TYPE", help="stdio, http or sse; usually detected.")
]
AutoApprove = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="TOOL", help="A tool of the server that runs without approval. Repeatable."),
]
BundleValues = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of a bundle. Repeatable.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Add the server of a SOURCE without a question.")]


@servers.command(context_settings=SETTINGS)
def add(
    name: NewName,
    target: Target = None,
    env: Env = None,
    header: Header = None,
    cwd: Cwd = None,
    transport: Transport = None,
    allow: AutoApprove = None,
    bundle_values: BundleValues = None,
    replace: Replace = False,
    yes: Yes = False,
    user: User = False,
    folder: Folder = False,
    file: File = None,
) -> None:
    """Add a server to your configuration: a program, a URL, or a server of a link, a bundle or the MCP registry."""
    choice, words = ConfigChoice(user, folder, file), tuple(target or ())
    source = (words or (name,))[0]

    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.servers.server_addition import NewServer, add_server, add_source, is_source

        if len(words) < 2 and is_source(source):
            own_name = name if words else None
            values = tuple(bundle_values or ())
            return lambda: add_source(source, own_name, choice, values=values, replace=replace, is_agreed=yes)
        variables, headers, approved = (tuple(option or ()) for option in (env, header, allow))
        new = NewServer(name, words, variables, headers, cwd=cwd, transport=transport, auto_approve=approved)
        return lambda: add_server(new, choice, replace=replace)

    run_work(work)


@servers.command(name="add-json", context_settings=SETTINGS)
def add_json(
    name: Annotated[str, typer.Argument(help="A name for the server.")],
    entry: Annotated[str, typer.Argument(metavar="JSON", help="The server's entry, as in servers.json.")],
    replace: Replace = False,
    user: User = False,
    folder: Folder = False,
    file: File = None,
) -> None:
    """Add a server to your configuration, with its entry as JSON."""

    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.servers.server_addition import add_json_entry

        return lambda: add_json_entry(name, entry, ConfigChoice(user, folder, file), replace=replace)

    run_work(work)


@servers.command(context_settings=SETTINGS)
def remove(name: Name, user: User = False, folder: Folder = False, file: File = None) -> None:
    """Remove a server from your configuration."""

    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.changed_config import remove_server

        return lambda: remove_server(name, ConfigChoice(user, folder, file))

    run_work(work)


@servers.command(context_settings=SETTINGS)
def enable(name: Name, user: User = False, folder: Folder = False, file: File = None) -> None:
    """Enable a disabled server."""
    _set_enabled(name, ConfigChoice(user, folder, file), is_enabled=True)


@servers.command(context_settings=SETTINGS)
def disable(name: Name, user: User = False, folder: Folder = False, file: File = None) -> None:
    """Disable a server, but keep its entry."""
    _set_enabled(name, ConfigChoice(user, folder, file), is_enabled=False)


def _set_enabled(name: str, choice: ConfigChoice, *, is_enabled: bool) -> None:
    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.changed_config import switch_server

        return lambda: switch_server(name, choice, is_enabled=is_enabled)

    run_work(work)


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
        from dial_client.cli.servers.host_exchange import import_servers

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
        from dial_client.cli.servers.host_exchange import export_servers

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
        from dial_client.cli.servers.registry_client import search_registry

        return lambda: search_registry(words, registry, as_json=as_json)

    run_work(work)

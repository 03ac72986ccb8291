"""The commands that change the servers of a configuration: add, add-json, remove, enable, disable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli.server_commands.server_group import ConfigChoice, File, Folder, Name, User, run_work, servers
from dial_client.cli.typer_apps import SETTINGS

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
        from dial_client.cli.server_commands.server_addition import NewServer, add_server
        from dial_client.cli.server_commands.source_addition import add_source, is_source

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
        from dial_client.cli.server_commands.server_addition import add_json_entry

        return lambda: add_json_entry(name, entry, ConfigChoice(user, folder, file), replace=replace)

    run_work(work)


@servers.command(context_settings=SETTINGS)
def remove(name: Name, user: User = False, folder: Folder = False, file: File = None) -> None:
    """Remove a server from your configuration."""

    def work() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.server_commands.changed_config import remove_server

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
        from dial_client.cli.server_commands.changed_config import switch_server

        return lambda: switch_server(name, choice, is_enabled=is_enabled)

    run_work(work)

"""The group ``servers`` of commands: list, test, log in, add, change, import, export and search."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from dial_client.cli.commands.typer_commands import CommandRun, command
from dial_client.cli.options import AsJson, ConfigChoice, NewServerOptions, Options

Name = Annotated[str, Argument(help="The name of a server.")]
Replace = Annotated[bool, Option("--replace", help="Replace a server of the same name.")]
_CONFIGURATION = ("config", "trust", "strict", "profile", "verbose")


@command("servers list", *_CONFIGURATION)
def list_all(*, options: Options, as_json: AsJson = False) -> CommandRun:
    """List the servers with their state and tools, and why a server is missing."""
    from dial_client.cli.servers.server_features import list_servers

    return list_servers(options, as_json=as_json)


@command("servers login", *_CONFIGURATION)
def login(
    *,
    name: Name,
    options: Options,
    no_browser: Annotated[bool, Option("--no-browser", help="Print the login URL, but open no browser.")] = False,
) -> CommandRun:
    """Log in to a server that requires OAuth."""
    from dial_client.cli.servers.oauth_login import log_in

    return log_in(options, name, browser=not no_browser)


@command("servers logout", *_CONFIGURATION)
def logout(*, name: Name, options: Options) -> CommandRun:
    """Log out of a server: its tokens are deleted from this machine, and revoked."""
    from dial_client.cli.servers.oauth_login import log_out

    return log_out(options, name)


@command("servers test", *_CONFIGURATION)
def test(
    *,
    name: Name,
    no_call: Annotated[bool, Option("--no-call", help="Call no tool.")] = False,
    options: Options,
    as_json: AsJson = False,
) -> CommandRun:
    """Start a server; print its tools, resources, prompts, times and standard error. Exit code 1: it does not work.

    A tool that is declared read-only and needs no arguments is called once.
    """
    from dial_client.cli.servers.server_features import check_server

    return check_server(options, name, with_call=not no_call, as_json=as_json)


@command("servers add")
def add(
    *,
    name: Annotated[str, Argument(help="A name for the server; or a SOURCE alone, if it names its server.")],
    target: Annotated[
        list[str] | None,
        Argument(
            metavar="[URL | SOURCE | -- COMMAND [ARG]…]",
            help="The server's URL; or its program with arguments, after --; or a SOURCE: a link of Cursor or VS Code, "
            "an .mcpb bundle, a server.json, or a name of the MCP registry.",
        ),
    ] = None,
    new: NewServerOptions,
    bundle_values: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="An option of a bundle. Repeatable.")
    ] = None,
    replace: Replace = False,
    yes: Annotated[bool, Option("--yes", help="Add the server of a SOURCE without a question.")] = False,
    choice: ConfigChoice,
) -> CommandRun:
    """Add a server to your configuration: a program, a URL, or a server of a link, a bundle or the MCP registry."""
    from dial_client.cli.servers.server_addition import add_server, add_source, is_source

    words = tuple(target or ())
    source = (words or (name,))[0]
    if len(words) < 2 and is_source(source):
        own_name = name if words else None
        values = tuple(bundle_values or ())
        return add_source(source, own_name, new, choice, values=values, replace=replace, is_agreed=yes)
    if bundle_values or yes:
        from dial_client.messages.errors import ConfigError

        option = "--set" if bundle_values else "--yes"
        raise ConfigError(f"{option} has no effect with a program or a URL", "it belongs to a SOURCE")
    return add_server(name, words, new, choice, replace=replace)


@command("servers add-json")
def add_json(
    *,
    name: Annotated[str, Argument(help="A name for the server.")],
    entry: Annotated[str, Argument(metavar="JSON", help="The server's entry, as in servers.json.")],
    replace: Replace = False,
    choice: ConfigChoice,
) -> CommandRun:
    """Add a server to your configuration, with its entry as JSON."""
    from dial_client.cli.servers.server_addition import add_json_entry

    return add_json_entry(name, entry, choice, replace=replace)


@command("servers remove")
def remove(*, name: Name, choice: ConfigChoice) -> CommandRun:
    """Remove a server from your configuration."""
    from dial_client.cli.trust.changed_config import remove_server

    return remove_server(name, choice)


@command("servers enable")
def enable(*, name: Name, choice: ConfigChoice) -> CommandRun:
    """Enable a disabled server."""
    from dial_client.cli.trust.changed_config import switch_server

    return switch_server(name, choice, is_enabled=True)


@command("servers disable")
def disable(*, name: Name, choice: ConfigChoice) -> CommandRun:
    """Disable a server, but keep its entry."""
    from dial_client.cli.trust.changed_config import switch_server

    return switch_server(name, choice, is_enabled=False)


@command("servers import")
def import_(
    *,
    source: Annotated[
        str | None,
        Argument(
            metavar="[HOST|FILE]",
            help="claude-desktop, claude-code, cursor, vscode, windsurf, gemini-cli, codex, goose, zed, opencode, "
            "crush, amp, librechat or continue; or a file. Without it, all hosts that are found.",
        ),
    ] = None,
    server: Annotated[list[str] | None, Option(metavar="NAME", help="Import this server only. Repeatable.")] = None,
    replace: Annotated[bool, Option("--replace", help="Replace servers of the same names.")] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="Import the servers without a question.")] = False,
    behind_gateway: Annotated[
        bool,
        Option(
            "--behind-gateway",
            help="Replace the servers in the host's file by `dial-chat gateway`, which offers them to the host. The "
            "old file is kept.",
        ),
    ] = False,
    undo: Annotated[
        bool, Option("--undo", help="Put the servers that are behind the gateway back into the host's file.")
    ] = False,
    choice: ConfigChoice,
) -> CommandRun:
    """Import servers of other MCP hosts, and name the settings that cannot be imported."""
    if undo:
        from dial_client.cli.servers.gateway_move import return_servers

        return return_servers(source, is_agreed=yes)
    if behind_gateway:
        from dial_client.cli.servers.gateway_move import move_servers

        return move_servers(source, tuple(server or ()), choice, replace=replace, is_agreed=yes)
    from dial_client.cli.servers.host_exchange import import_servers

    return import_servers(source, tuple(server or ()), choice, replace=replace, is_agreed=yes)


@command("servers export", "config", "trust", "strict", "verbose")
def export(
    *,
    names: Annotated[list[str] | None, Argument(metavar="[NAME]…", help="The servers; all without a name.")] = None,
    to: Annotated[
        str, Option(metavar="HOST", help="The host to export for: claude-desktop, vscode, codex, …")
    ] = "claude-desktop",
    options: Options,
) -> CommandRun:
    """Print servers in the form of another MCP host; standard error names settings that the host does not support."""
    from dial_client.cli.servers.host_exchange import export_servers

    return export_servers(options, tuple(names or ()), to)


@command("servers search")
def search(
    *,
    words: Annotated[str, Argument(metavar="WORD", help="A part of a server's name.")],
    registry: Annotated[
        str | None, Option(metavar="URL", help="The URL of another registry. DIAL_REGISTRY_URL does the same.")
    ] = None,
    as_json: AsJson = False,
) -> CommandRun:
    """Search the MCP registry for servers."""
    from dial_client.cli.servers.server_addition import search_registry

    return search_registry(words, registry, as_json=as_json)

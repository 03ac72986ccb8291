"""The commands ``servers list``, ``servers login``, ``servers logout`` and ``servers test``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.server_commands.server_group import Name, servers
from dial_client.cli.typer_apps import SETTINGS, run_command


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
        from dial_client.cli.tool_commands import list_servers

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
        from dial_client.cli.oauth_login import log_in

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
        from dial_client.cli.oauth_login import log_out

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
        from dial_client.cli.server_commands.server_check import check_server

        return lambda: check_server(options, name, with_call=not no_call, as_json=as_json)

    run_command(choose, options)

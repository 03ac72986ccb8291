"""The commands ``policy`` and ``grants``: which calls run without approval, and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import SETTINGS, command_app, run_command


@command_app.command(context_settings=SETTINGS)
def policy(
    action: Annotated[str, typer.Argument(help="list or test.")] = "list",
    name: Annotated[str | None, typer.Argument(help="For test: SERVER/TOOL, or the name that the model uses.")] = None,
    arguments: Annotated[str, typer.Argument(help="For test: a JSON object.")] = "{}",
    tainted: Annotated[
        bool, typer.Option("--tainted", help="Test the call in a conversation with untrusted content.")
    ] = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    rules: o.Policy = None,
    allow: o.Allow = None,
    deny: o.Deny = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the rules in effect, or test a call against them: exit code 0 runs, 5 is denied, 6 needs approval.

    No server is started: the tools are those that the servers had at the last run.
    """
    options = o.Options.of_command(locals(), policy=rules)

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli import policy_listing
        from dial_client.messages.errors import ConfigError

        if action not in ("list", "test"):
            raise ConfigError(f"unknown action {action!r}", hint="one of list, test")
        if action == "list" and name is None:
            return lambda: policy_listing.list_rules(options, as_json=as_json)
        if action != "test" or name is None:
            raise ConfigError("which call?", hint="""dial-chat policy [list | test NAME '{"a": 1}']""")
        return lambda: policy_listing.test_call(options, name, arguments, is_tainted=tainted, as_json=as_json)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def grants(
    revoke: Annotated[
        str | None,
        typer.Option(
            "--revoke",
            metavar="ID",
            help="Revoke a grant by its id or by a pattern SERVER/TOOL; --revoke --all revokes every grant.",
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """List the tools that you always allow, or revoke such a grant."""

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli import policy_listing

        return lambda: policy_listing.manage_grants(revoke, as_json=as_json)

    run_command(choose, o.Options())

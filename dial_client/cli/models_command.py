"""The command ``models``: lists the usable models, and tests what a model can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import SETTINGS, command_app, run_command


@command_app.command(context_settings=SETTINGS)
def models(
    action: Annotated[
        str, typer.Argument(help="list or test. test asks a model short questions, to show what it can do.")
    ] = "list",
    name: Annotated[
        str | None, typer.Argument(help="For test: the name of the model, as for -m. For list: a part of names.")
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Request the lists of models again, not from the cache.")
    ] = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    base_url: o.BaseUrl = None,
    tool_format: o.ToolFormat = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the models of your endpoints and of this machine; or test what a model can do."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.messages.errors import ConfigError

        if action not in ("list", "test"):
            raise ConfigError(f"unknown action {action!r}", hint="one of list, test")
        if action == "test" and name is not None:
            from dial_client.cli.model_trials import test_model

            return lambda: test_model(options, name, as_json=as_json)
        if action == "test":
            raise ConfigError("which model?", hint="dial-chat models [list [WORD] | test NAME]")
        from dial_client.cli.model_table import list_models

        return lambda: list_models(options, name or "", is_refreshed=refresh, as_json=as_json)

    run_command(choose, options)

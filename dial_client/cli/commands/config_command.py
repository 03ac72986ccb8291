"""The command ``config``: lists the configuration files, and shows or changes their values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.commands.typer_apps import SETTINGS, command_app, run_command

ACTIONS = ("path", "show", "get", "set", "unset", "edit", "schema")


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The arguments and options of a ``config`` command."""

    action: str
    key: str | None = None
    value: str | None = None
    has_origins: bool = False
    in_user_file: bool = False
    as_json: bool = False


@command_app.command(context_settings=SETTINGS)
def config(
    action: Annotated[str, typer.Argument(help=f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}.")] = "path",
    key: Annotated[
        str | None, typer.Argument(help="For show, get, set and unset: a path such as mcpServers.time.args.")
    ] = None,
    value: Annotated[str | None, typer.Argument(help="For set: the value, as JSON or as plain text.")] = None,
    origin: Annotated[bool, typer.Option("--origin", help="With show: the file and line of each value.")] = False,
    user: Annotated[bool, typer.Option("--user", help="Change the file of your configuration folder.")] = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    as_json: o.AsJson = False,
) -> None:
    """Print the configuration files and folders, show or change values, or print the JSON Schema of servers.json."""
    options = o.Options(config=config, trust=trust, profile=profile, model=model)
    request = ConfigRequest(action, key, value, origin, user, as_json)
    run_command(lambda: _choose(request, options), options)


def _choose(request: ConfigRequest, options: o.Options) -> Callable[[], Awaitable[int]]:
    from dial_client.cli.configuration import configuration_report as listing

    shape = {"as_json": request.as_json}
    match request.action:
        case "path":
            return _make_async(lambda: listing.print_paths(options, **shape))
        case "show" if request.has_origins:
            return _make_async(lambda: listing.print_origins(options, request.key, **shape))
        case "show" if request.key is None:
            return _make_async(lambda: listing.print_values(options, **shape))
        case "get" | "show":
            return _make_async(lambda: listing.print_value(options, request.key))
        case "schema":
            return _make_async(listing.print_schema)
        case _:
            return _choose_edit(request, options)


def _choose_edit(request: ConfigRequest, options: o.Options) -> Callable[[], Awaitable[int]]:
    from dial_client.cli.configuration import configuration_edits as edits
    from dial_client.messages.errors import ConfigError
    from dial_client.runtime.text import did_you_mean

    match request.action:
        case "set":
            return _make_async(
                lambda: edits.set_key(options, request.key, request.value, in_user_file=request.in_user_file)
            )
        case "unset":
            return _make_async(lambda: edits.unset_key(options, request.key, in_user_file=request.in_user_file))
        case "edit":
            return lambda: edits.edit_file(options, in_user_file=request.in_user_file)
    hint = did_you_mean(request.action, ACTIONS) or f"one of {', '.join(ACTIONS)}"
    raise ConfigError(f"unknown command: config {request.action}", hint=hint)


def _make_async(work: Callable[[], int]) -> Callable[[], Awaitable[int]]:
    async def run() -> int:
        return work()

    return run

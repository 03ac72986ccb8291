"""Applies a changed configuration to a running program; servers that did not change keep running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio

from dial_client.cli.load_settings import find_model_name, open_model
from dial_client.cli.open_client import build_profiles, choose_tool_format, combine_rules, set_profiles
from dial_client.cli.options import Options
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import DialError
from dial_client.servers.status import ServerStatus
from dial_client.settings.config_types import ModelProfile, Settings


async def apply_configuration(
    dial: DialClient,
    options: Options,
    before: Settings,
    after: Settings,
    report: Callable[[str, ServerStatus | DialError], None],
) -> str:
    """Apply a configuration, and return the changes in one line. Running turns keep their model.

    Args:
        dial: The client, which was opened with `before`.
        options: The options of the command line, which override the file.
        before: The configuration in effect.
        after: The configuration to apply.
        report: Gets the name of each added or changed server with its status, or with the error if it cannot be added.

    Raises:
        ConfigError: The model cannot be opened, or a file of rules is wrong; nothing was changed.
    """
    if not find_model_name(options, after):  # the model that was found at the start stays
        kept = {name: profile for name, profile in before.models.items() if name == before.default_model}
        after = replace(after, default_model=before.default_model, models={**kept, **after.models})
    old, new = before.servers, after.servers
    added = [name for name in new if name not in old]
    changed = [name for name in new if name in old and old[name] != new[name]]
    removed = [name for name in old if name not in new]
    is_model_changed = list_models(options, before) != list_models(options, after)
    policy = combine_rules(options, after)
    if is_model_changed:
        await switch_model(dial, options, after)
    elif before.models != after.models:
        dial.model.set_profiles(build_profiles(options, after))
    dial.approvals.set_policy(policy)  # before servers start: their tools can be called at once
    for name in removed:
        if name in dial.servers:
            await dial.remove_server(name)

    async def connect(name: str) -> None:
        change = dial.replace_server if name in dial.servers else dial.add_server
        try:
            report(name, await change(name, after.servers[name]))
        except DialError as error:
            report(name, error)

    async with anyio.create_task_group() as group:
        for name in (*changed, *added):
            group.start_soon(connect, name)
    if options.system is None and before.system != after.system:
        dial.system = after.system
    model = "another model answers" if is_model_changed else "the model is the same"
    same = f"{len(new) - len(added) - len(changed)} unchanged and still running"
    counts = f"{len(added)} added, {len(changed)} changed, {len(removed)} removed"
    return f"Servers: {counts}, {same}; {model}; rules are those of the file now."


async def switch_model(dial: DialClient, options: Options, settings: Settings) -> None:
    """Switch to the model that the options or a configuration name.

    Raises:
        ConfigError: The model cannot be opened.
    """
    provider = open_model(options, settings)
    try:
        dial.model.switch(provider, tool_format=choose_tool_format(options, settings))
    except BaseException:
        with anyio.CancelScope(shield=True):
            await provider.aclose()
        raise
    set_profiles(dial, options, settings)


def list_models(options: Options, settings: Settings) -> list[tuple[str, ModelProfile | None]]:
    """Return the names of the model and of its fallback models, each with its entry in ``models``."""
    name = find_model_name(options, settings)
    fallbacks = options.fallback_model or settings.find_fallback_models(name)
    return [(name, settings.models.get(name)) for name in (name, *fallbacks)]

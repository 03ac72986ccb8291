"""The configuration of a client: what its arguments override, and what changes while the client runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio import to_thread

from dial_client.client.client_options import ApprovalPolicy, ClientOptions
from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.limits import Limits
from dial_client.messages.model import Provider
from dial_client.servers.status import ServerStatus
from dial_client.settings.config_types import ServerSettings, Settings
from dial_client.settings.policy_config import Policy, load_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanges:
    """What `DialClient.reload` has changed."""

    added: tuple[str, ...] = ()
    """The servers that are new."""
    changed: tuple[str, ...] = ()
    """The servers whose entries have changed: they were restarted."""
    removed: tuple[str, ...] = ()
    """The servers that are gone: they were stopped."""
    unchanged: tuple[str, ...] = ()
    """The servers that keep running."""
    failed: Mapping[str, DialError] = field(default_factory=dict)
    """The error of each server that could not be added or replaced. A server that does not start is none of them: see
    `DialClient.servers`."""
    is_model_changed: bool = False
    """Whether another model answers the next turns."""


@dataclass(frozen=True, eq=False, slots=True)
class ConfigInUse:
    """The configuration of a client of `DialClient.from_config`, and what its arguments override."""

    settings: Settings
    profile: str | None
    has_model: bool
    """Whether an argument names the model, which then stays."""
    has_system: bool
    """Whether an argument has the instructions, which then stay."""
    has_limits: bool
    """Whether an argument has the limits, which then stay."""
    has_skills: bool
    """Whether an argument has the folders of skills, which then stay."""
    has_agents: bool
    """Whether an argument has the agents, which then stay."""
    rules: Policy
    """The rules of the arguments, which precede those of the file."""

    def use_folders(
        self,
        settings: Settings,
        use_skills: Callable[[Sequence[Path]], object],
        use_agents: Callable[[Sequence[Path]], object],
    ) -> None:
        """Use the skills and the agents of a changed configuration, unless arguments have them.

        Raises:
            ConfigError: One of them is wrong.
        """
        if not self.has_skills:
            use_skills(settings.skills)
        if not self.has_agents:
            use_agents(settings.agents)

    async def read_again(self, source: str | os.PathLike[str] | Settings | None) -> Settings:
        """Return the configuration of a file, which is read with the same profile.

        Args:
            source: The file, or a configuration that was read; None to read the file of this configuration again.

        Raises:
            ConfigError: The file is missing or wrong, or this configuration was read from none.
        """
        found = self.settings.path if source is None else source
        if found is None:
            raise ConfigError("the configuration was read from no file", hint="pass the new Settings")
        if isinstance(found, Settings):
            return found
        from dial_client.settings import configuration  # loaded only by clients that read a file

        read = partial(configuration.load_config, found, profile=self.profile)
        return await to_thread.run_sync(read, abandon_on_cancel=True)

    @property
    def models(self) -> list[tuple[str | None, Any]]:
        """The names of the model and of its fallback models, each with its entry."""
        names = (self.settings.default_model, *self.settings.find_fallback_models(None))
        return [(name, self.settings.models.get(name or "")) for name in names]


def use_config(
    settings: Settings, profile: str | None, model: str | Provider | None, options: ClientOptions
) -> ConfigInUse:
    """Add to the arguments of a client what they leave to its configuration, and return the configuration in use.

    Args:
        settings: The configuration.
        profile: The name of the profile with which it was read.
        model: The model that the arguments name; None for that of the configuration.
        options: The other arguments, which this changes.

    Raises:
        ConfigError: A rule of the arguments is wrong.
    """
    approval = options.get("approval") or ApprovalPolicy()
    config = ConfigInUse(
        settings,
        profile,
        has_model=model is not None,
        has_system="system" in options,
        has_limits="limits" in options,
        has_skills="skills" in options,
        has_agents="agents" in options,
        rules=load_policy(approval.rules),
    )
    options["approval"] = replace(approval, rules=(*config.rules, *settings.policy))
    options.setdefault("models", settings.models)
    if settings.limits:
        options.setdefault("limits", replace(Limits(), **settings.limits))
    if settings.startup_patience is not None:
        options.setdefault("startup_patience", settings.startup_patience)
    options.setdefault("system", settings.system)
    options.setdefault("skills", settings.skills)
    options.setdefault("agents", settings.agents)
    name = model if model is not None else settings.default_model
    if isinstance(name, str):
        options.setdefault("fallback_models", settings.find_fallback_models(name))
    return config


class ServerHost(Protocol):
    """The methods of a client that change its servers."""

    @property
    def servers(self) -> Mapping[str, ServerStatus]:
        """The status of each server."""
        ...

    async def add_server(self, name: str, entry: Any) -> ServerStatus:
        """Connect another server."""
        ...

    async def replace_server(self, name: str, entry: Any) -> ServerStatus:
        """Connect another entry under the name of a server."""
        ...

    async def remove_server(self, name: str) -> None:
        """Stop a server and remove it."""
        ...


async def change_servers(
    host: ServerHost,
    before: Mapping[str, ServerSettings],
    after: Mapping[str, ServerSettings],
    report: Callable[[str, ServerStatus | DialError], None],
) -> ConfigChanges:
    """Stop the servers that are gone, start those that are new, and restart those that have changed, concurrently.

    Args:
        host: The client of the servers.
        before: The servers in effect.
        after: The servers of the new configuration.
        report: Gets the name of each added or changed server with its status, or with the error if it cannot be added.
    """
    changes = ConfigChanges(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in after if name in before and before[name] != after[name]),
        removed=tuple(name for name in before if name not in after),
        unchanged=tuple(name for name in after if before.get(name) == after[name]),
    )
    for name in changes.removed:
        if name in host.servers:
            await host.remove_server(name)

    async def connect(name: str) -> None:
        change = host.replace_server if name in host.servers else host.add_server
        try:
            report(name, await change(name, after[name]))
        except DialError as error:
            report(name, error)

    async with anyio.create_task_group() as group:
        for name in (*changes.changed, *changes.added):
            group.start_soon(connect, name)
    return changes

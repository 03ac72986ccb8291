"""Changes of a configuration while its client runs: which servers are started, restarted and stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import anyio

from dial_client.messages.errors import DialError
from dial_client.servers.status import ServerStatus
from dial_client.settings.config_types import ServerSettings, Settings
from dial_client.settings.policy_config import Policy


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

    @property
    def models(self) -> list[tuple[str | None, Any]]:
        """The names of the model and of its fallback models, each with its entry."""
        names = (self.settings.default_model, *self.settings.find_fallback_models(None))
        return [(name, self.settings.models.get(name or "")) for name in names]


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

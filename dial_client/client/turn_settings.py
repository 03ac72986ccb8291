"""The settings of one turn, in place of those of its client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dial_client.messages.message import ToolSpec
from dial_client.tools.tool_selection import ToolSnapshot
from dial_client.turn_data.limits import Limits


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """The settings of one turn. None stands for the setting of the client."""

    model: str | None = None
    """The name of a profile of ``models``."""
    tool_format: str | None = None
    """``native``, ``react``, ``xml`` or ``auto``."""
    temperature: float | None = None
    """Sent where the endpoint takes one; for models that are profiles."""
    limits: Limits | None = None
    system: str | None = None
    """Instructions, for conversations that do not begin with their own."""
    disabled_servers: frozenset[str] = frozenset()
    """Servers whose tools the model cannot call."""
    disabled_tools: frozenset[str] = frozenset()
    """Offered names of tools that the model cannot call."""

    @property
    def changes_model(self) -> bool:
        """True if the turn does not ask the client's model as it is."""
        return any(value is not None for value in (self.model, self.tool_format, self.temperature))

    def override(self, limits: Limits | None, system: str | None) -> TurnSettings:
        """Return the settings with these limits and instructions, where they are given."""
        return replace(self, limits=limits or self.limits, system=self.system if system is None else system)

    def is_disabled(self, tool: ToolSpec) -> bool:
        """Return True for a tool that the model cannot call."""
        return tool.server in self.disabled_servers or tool.name in self.disabled_tools


def select_tools(snapshot: Callable[[], ToolSnapshot], settings: TurnSettings) -> Callable[[], ToolSnapshot]:
    """Return a function that returns the tools of the moment without those that the settings disable."""
    if not settings.disabled_servers and not settings.disabled_tools:
        return snapshot
    latest: tuple[ToolSnapshot, ToolSnapshot] | None = None

    def select() -> ToolSnapshot:
        nonlocal latest
        current = snapshot()
        if latest is None or latest[0] is not current:
            latest = (current, _without_disabled(current, settings))
        return latest[1]

    return select


def _without_disabled(snapshot: ToolSnapshot, settings: TurnSettings) -> ToolSnapshot:
    catalog = snapshot.catalog
    tools = tuple(tool for tool in catalog.tools if not settings.is_disabled(tool))
    routes = {name: route for name, route in catalog.routes.items() if not settings.is_disabled(route.spec)}
    own = tuple(route for route in snapshot.own if not settings.is_disabled(route.spec))
    return replace(snapshot, catalog=replace(catalog, tools=tools, routes=routes), own=own)

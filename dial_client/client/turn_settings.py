"""The settings of one turn, which override the client's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolSpec
from dial_client.tools.tool_selection import ToolSnapshot


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """The settings of one turn. A setting that is None is the client's."""

    model: str | None = None
    """The name of a model profile in ``models``."""
    tool_format: str | None = None
    """``native``, ``react``, ``xml`` or ``auto``."""
    temperature: float | None = None
    """The sampling temperature, which is sent if the endpoint accepts it; only for models with a profile."""
    limits: Limits | None = None
    system: str | None = None
    """Instructions for conversations that do not begin with a system message."""
    disabled_servers: frozenset[str] = frozenset()
    """Servers whose tools the model cannot call."""
    disabled_tools: frozenset[str] = frozenset()
    """Offered names of tools that the model cannot call."""

    @property
    def changes_model(self) -> bool:
        """True if the turn uses another model, tool format or temperature than the client."""
        return any(value is not None for value in (self.model, self.tool_format, self.temperature))

    def override(self, limits: Limits | None, system: str | None) -> TurnSettings:
        """Return the settings with these limits and instructions; an argument that is None changes nothing."""
        return replace(self, limits=limits or self.limits, system=self.system if system is None else system)

    def is_disabled(self, tool: ToolSpec) -> bool:
        """Return True if the settings disable the tool."""
        return tool.server in self.disabled_servers or tool.name in self.disabled_tools


def select_tools(snapshot: Callable[[], ToolSnapshot], settings: TurnSettings) -> Callable[[], ToolSnapshot]:
    """Return a function that returns the current tools without the tools that the settings disable."""
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
    own_routes = tuple(route for route in snapshot.own if not settings.is_disabled(route.spec))
    return replace(snapshot, catalog=replace(catalog, tools=tools, routes=routes), own=own_routes)

"""The tools of all servers as the gateway lists them: the servers' own definitions, of which only the name is another.

A name is ``server__tool`` in every case. With the tool's own name where that is unique, a name would depend on which
other servers are ready, and hosts keep permissions by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_types import Tool

from dial_client.gateway.addresses import rewrite_meta
from dial_client.messages.mcp_apps import is_for_model
from dial_client.servers.connection import Connection
from dial_client.servers.server_cache import ToolPins
from dial_client.servers.server_manager import OwnerViews, ServerManager
from dial_client.servers.status import ServerState
from dial_client.settings.policy_config import matches
from dial_client.tools.catalog import Catalog, Key, Route, assign_names, build_exact_spec, clean_name, is_enabled

# Maximum characters of a name. Hosts add a prefix (Claude Code: ``mcp__NAME__``), and model APIs accept 64 characters.
MAX_NAME = 45
# Kinds of persons, by what they may use, whose lists are kept.
_MAX_LIMITED = 16
# Characters of a name that a hash leaves: a longer one is cut there.
_UNCUT = 34


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool: the server that has it, and its definition as that server lists it."""

    connection: Connection
    tool: Tool


class ToolRoutes(Mapping[str, Route]):
    """The routes of all tools by their names in the gateway. Each is built when its tool is first called.

    A route has the tool's schema in the form for model APIs, because that is part of the definition that pins and
    grants of `dial-chat` are for. To adapt a thousand schemas for a list that nobody calls would take seconds.
    """

    def __init__(self, tools: Mapping[str, ListedTool], before: ToolRoutes | None = None) -> None:
        self.tools = tools
        """The definitions by their names."""
        self.built: dict[str, Route] = {}
        """The routes that were built."""
        if before is not None:
            # A tool that is the same keeps its route, with the validators that were compiled for it.
            self.built = {name: route for name, route in before.built.items() if before.tools[name] == tools.get(name)}

    def __getitem__(self, name: str) -> Route:
        route = self.built.get(name)
        if route is None:
            listed = self.tools[name]
            spec = build_exact_spec(name, listed.connection.name, listed.tool)
            route = self.built[name] = Route(listed.connection, spec)
        return route

    def __iter__(self) -> Iterator[str]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)


@dataclass(frozen=True, slots=True, eq=False)
class Definitions:
    """The tools of all servers at one moment."""

    tools: tuple[Tool, ...] = ()
    """The tools as they are listed, sorted by name."""
    model_tools: tuple[Tool, ...] = ()
    """The tools that a model may call: for a client without MCP Apps, those for apps alone are of no use."""
    listed: Mapping[str, ListedTool] = field(default_factory=dict)
    """The servers' own definitions, by the names in the gateway."""
    catalog: Catalog = field(default_factory=Catalog)
    """The routes, for the executor of calls."""
    withheld: frozenset[str] = frozenset()
    """The names of the tools whose definitions are not those that the user approved. They are listed without what the
    server says now: a model reads a description before any call, and may follow it."""


class ToolDefinitions:
    """The current definitions; they are made anew when a server's tools have changed.

    Args:
        servers: The servers.
        pins: The definitions that the user approved; None if there are none.
    """

    def __init__(self, servers: ServerManager, pins: ToolPins | None) -> None:
        self._servers, self._pins = servers, pins
        self._views: OwnerViews[Definitions] = OwnerViews(servers)
        # Grows when the user may have approved a definition.
        self._reviews = 0
        # What persons with limits see of all definitions, by their patterns and those definitions.
        self._limited: OrderedDict[tuple[tuple[str, ...], int], tuple[Definitions, Definitions]] = OrderedDict()

    @property
    def current(self) -> Definitions:
        """The definitions of the servers that are ready, or whose tools are known from their last run.

        Those alone that the person may use for whom the program acts: what is not listed is not found by a search, not
        described, and no call of it begins.
        """
        whole = self._views.get(self._build, self._reviews)
        patterns = self._servers.tool_patterns
        return whole if patterns is None else self._limit(whole, patterns)

    def _limit(self, whole: Definitions, patterns: tuple[str, ...]) -> Definitions:
        key = patterns, id(whole)
        if (known := self._limited.get(key)) is not None:  # it holds `whole`, so that no other object has this id
            return known[1]
        listed = {
            name: tool
            for name, tool in whole.listed.items()
            if any(matches(pattern, tool.connection.name, tool.tool.name) for pattern in patterns)
        }
        routes = whole.catalog.routes
        limited = Definitions(
            tuple(tool for tool in whole.tools if tool.name in listed),
            tuple(tool for tool in whole.model_tools if tool.name in listed),
            listed,
            Catalog(routes=ToolRoutes(listed, routes if isinstance(routes, ToolRoutes) else None)),
            whole.withheld & listed.keys(),
        )
        self._limited[key] = whole, limited
        if len(self._limited) > _MAX_LIMITED:
            self._limited.popitem(last=False)
        return limited

    async def wait_for(self, name: str) -> None:
        """Wait until there is a tool of this name, or until no server that may have the tool is starting any more.

        A host may remember names from an earlier run, or call while a server is replaced. The time that servers have
        for their start bounds the wait.
        """
        await self._servers.prepare_owner()
        function = name.replace("-", "_")  # a program calls the tool by a name of Python
        starting = [
            connection
            for connection in self._servers.values()
            if is_unknown(connection)
            and function.startswith(clean_name(f"{connection.name}__")[:_UNCUT].replace("-", "_"))
        ]
        if starting:
            await self._servers.announcements.wait_until(
                lambda _: name in self.current.listed or not any(map(is_unknown, starting)),
                max(connection.startup_timeout for connection in starting),
            )

    def get_catalog(self) -> Catalog:
        """Return the current routes."""
        return self.current.catalog

    def find_input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool as it is listed; None if there is no such tool."""
        current = self.current
        known = None if name in current.withheld else current.listed.get(name)
        return None if known is None else known.tool.input_schema

    def review_withheld(self) -> Definitions:
        """Return the current definitions, with those that the user has approved meanwhile, perhaps in another program.

        To be called before they are listed, and after the call of a withheld tool.
        """
        current = self.current
        if any(not self._describe_change(current, name) for name in current.withheld):
            self._reviews += 1
        return self.current

    def describe_change(self, name: str) -> str:
        """Return the difference between the approved definition of a tool and the one of its server; empty if equal."""
        current = self.current
        return self._describe_change(current, name) if name in current.withheld else ""

    def _describe_change(self, current: Definitions, name: str) -> str:
        return self._pins.describe_change(current.catalog.routes[name].spec) if self._pins is not None else ""

    def _build(self) -> Definitions:
        by_key: dict[Key, ListedTool] = {}
        for connection in self._servers.values():
            for tool in connection.tools:
                if is_enabled(tool.name, connection):
                    by_key.setdefault((connection.name, tool.name), ListedTool(connection, tool))
        names = assign_names(by_key, MAX_NAME, with_server=True)
        listed = {name: by_key[key] for key, name in sorted(names.items(), key=lambda item: item[1])}
        before = self._views.find()
        known = before.catalog.routes if before is not None else None
        routes = ToolRoutes(listed, known if isinstance(known, ToolRoutes) else None)
        withheld = self._find_withheld(listed, routes)
        tools = tuple(_withhold(name) if name in withheld else _publish(name, known) for name, known in listed.items())
        model_tools = tuple(tool for tool in tools if is_for_model(tool.meta))
        return Definitions(tools, model_tools, listed, Catalog(routes=routes), withheld)

    def _find_withheld(self, listed: Mapping[str, ListedTool], routes: ToolRoutes) -> frozenset[str]:
        if (pins := self._pins) is None:
            return frozenset()
        pinned = {server: pins.list_pinned(server) for server in {known.connection.name for known in listed.values()}}
        return frozenset(
            name
            for name, known in listed.items()
            if known.tool.name in pinned[known.connection.name] and pins.describe_change(routes[name].spec)
        )


def is_unknown(connection: Connection) -> bool:
    """Return whether a server is starting, and nothing is known of its tools."""
    return connection.state is ServerState.STARTING and not connection.tools


def _withhold(name: str) -> Tool:
    """Return what is listed of a tool that was changed."""
    return Tool(
        name=name,
        description="The definition of this tool is not the one that the user approved, and is withheld. A call shows "
        "what has changed, and how the user approves it.",
        input_schema={"type": "object"},
    )


def _publish(name: str, listed: ListedTool) -> Tool:
    """Return a tool as its server lists it, with its name in the gateway, and with the address of its app."""
    meta = rewrite_meta(listed.connection.name, listed.tool.meta)
    return listed.tool.model_copy(update={"name": name, "meta": meta})

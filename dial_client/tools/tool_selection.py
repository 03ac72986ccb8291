"""The tools a turn offers the model: the servers' tools, all or those that were found, and the host's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dial_client.messages.message import Content, Message, Role, ToolSpec, text_of
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.session_calls import OnProgress
from dial_client.tools import result_content
from dial_client.tools.catalog import READ_RESULT, SEARCH_TOOLS, Catalog, Key, Route, build_catalog
from dial_client.tools.function_tools import FunctionTools
from dial_client.tools.resource_tools import ResourceTools
from dial_client.tools.result_store import ResultStore
from dial_client.tools.search_index import SearchIndex
from dial_client.turn_data.limits import Limits

if TYPE_CHECKING:
    from mcp_types import CallToolResult

Keep = Callable[[str], str | None]
"""Stores a text that is too long for the model, and returns its id."""

MAX_OFFERED = 128
"""Tools in one request: the limit of OpenAI's chat completions."""
MAX_DEFERRED = 1_000
"""Tools that are left to an endpoint's own search; above that the host searches."""
FOUND_AT_ONCE = 5
_HEAD_CHARS = 300
"""Characters of a page that are kept free for the line with its place."""
_WINDOW_SHARE = 4
"""Tools may take a quarter of the context window; if they take more, the model searches for them."""
_BYTES_PER_TOKEN = 3

_KEPT = re.compile(r'read_result\(id="([0-9a-f]{12})"')
_PAGE = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "As the shortened result gives it."},
        "offset": {"type": "integer", "description": "Characters to skip; a negative number counts from the end."},
        "search": {"type": "string", "description": "Words to find, in place of an offset; no pattern."},
    },
    "required": ["id"],
}
_QUERY = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "The action, the thing and the service: create github issue."}
    },
    "required": ["query"],
}


def _own_tool(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(name, description, schema, tool=name, original_schema=schema, read_only=True)


_READ = _own_tool(
    READ_RESULT,
    "Reads on in a tool result that was too long to be shown whole: a page, or the places of some words.",
    _PAGE,
)


@dataclass(frozen=True, eq=False)
class ToolSnapshot:
    """The servers' tools at one moment, with an index to search; made once for each `Catalog`."""

    catalog: Catalog = Catalog()  # noqa: RUF009 - frozen
    pinned: frozenset[str] = frozenset()
    """Servers whose tools are always on offer."""
    own: tuple[Route, ...] = ()
    """Tools of the host's own that are always on offer, besides those of the turn itself."""

    def is_long(self, limits: Limits, window: int | None) -> bool:
        """True for too many tools to offer all, or too large ones: for the limits, or a context window in tokens."""
        if len(self.catalog.tools) > limits.max_tools:
            return True
        size = sum(self.sizes.values())
        is_large = window is not None and size > window * _BYTES_PER_TOKEN // _WINDOW_SHARE
        return is_large or size > limits.max_tool_bytes

    @cached_property
    def index(self) -> SearchIndex:
        """The index for searches."""
        return SearchIndex(self.catalog.tools)

    @cached_property
    def always(self) -> tuple[ToolSpec, ...]:
        """The tools of the servers that are pinned."""
        return tuple(tool for tool in self.catalog.tools if tool.server in self.pinned)

    def deferred(self, shown: frozenset[str]) -> tuple[ToolSpec, ...]:
        """Return all tools for an endpoint that searches among them itself.

        Args:
            shown: names of tools, besides those of pinned servers, that the model is to see at once.
        """
        return tuple(
            tool if tool.server in self.pinned or tool.name in shown else replace(tool, deferred=True)
            for tool in self.catalog.tools
        )

    @cached_property
    def search(self) -> ToolSpec:
        """The tool that searches for tools."""
        counts: dict[str, int] = {}
        for tool in self.catalog.tools:
            counts[tool.server] = counts.get(tool.server, 0) + 1
        servers = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        description = f"Finds tools by what they do; what it finds can be called from then on. There are: {servers}."
        return _own_tool(SEARCH_TOOLS, description, _QUERY)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of each tool in a request, by its name."""
        return {tool.name: _size_of(tool) for tool in self.catalog.tools}


def _size_of(tool: ToolSpec) -> int:
    texts = (tool.name, tool.description, json.dumps(tool.input_schema, ensure_ascii=False))
    return sum(len(text.encode(errors="replace")) for text in texts)


class ToolSnapshots:
    """Makes a new `ToolSnapshot` whenever the tools of a server have changed.

    Args:
        servers: the servers.
        resource_tools: the host's own tools that are always on offer.
        functions: the program's own.
        has_apps: the client shows MCP Apps.
    """

    def __init__(
        self,
        servers: ServerManager,
        resource_tools: ResourceTools,
        functions: FunctionTools | None = None,
        *,
        has_apps: bool = False,
    ) -> None:
        self._servers = servers
        self._has_apps = has_apps
        self.functions = functions or FunctionTools()
        """The program's own functions."""
        self._resource_tools = resource_tools
        self._current = ToolSnapshot()
        self._revision: tuple[int, ...] | None = None

    def current(self) -> ToolSnapshot:
        """Return the servers' tools of this moment."""
        revision = (self.functions.revision, *self._servers.revision)
        if revision != self._revision:
            pinned = (name for name, server in self._servers.items() if server.settings and server.settings.pinned)
            catalog = build_catalog((*self._servers.values(), self.functions), has_apps=self._has_apps)
            self._current = ToolSnapshot(catalog, frozenset(pinned), self._resource_tools.routes())
            self._revision = revision
        return self._current

    def catalog(self) -> Catalog:
        """Return the catalog of this moment."""
        return self.current().catalog


class TurnTools:
    """The tools on offer in one turn. It also answers the host's own tools, as a connection answers a server's.

    Args:
        snapshot: returns the servers' tools of the moment: a tool that a server adds is on offer in the next round.
        results: stores results that were too long.
        limits: of the turn.
        history: the conversation before it; tools it has called stay on offer.
        window: the model's context window in tokens; None if unknown.
        is_searched: returns True if the endpoint searches among tools itself: then all tools are offered to it.
    """

    name = ""
    settings = None

    def __init__(
        self,
        snapshot: Callable[[], ToolSnapshot],
        results: ResultStore,
        limits: Limits,
        history: Sequence[Message] = (),
        window: int | None = None,
        is_searched: Callable[[], bool] = lambda: False,
    ) -> None:
        self._snapshot = snapshot
        self._results = results
        self._limits = limits
        self._window = window
        self._is_searched = is_searched
        # An endpoint that searches remembers its findings in its echoes; another model's findings are lost to it.
        self._shown = frozenset(_called_names(message for message in history if message.echo is None))
        self._found = dict.fromkeys(_called_names(history))
        self._can_read_results = any(key in results for key in _result_ids(history))
        self._current = _Offer()
        self._last_tools: tuple[ToolSpec, ...] = ()
        """The tools the model was told of last."""
        self._meanings: dict[str, Key] = {}
        """The tools that the names meant when the model was told of them: servers that come and go may change names."""

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools on offer: the same tuple for as long as nothing changes, in a stable order."""
        offer = self._offer()
        if offer.tools is not self._last_tools:
            self._last_tools = offer.tools
            self._meanings.update({tool.name: (tool.server, tool.tool) for tool in offer.tools if tool.server})
            self._current = replace(offer, catalog=self._catalog_for(self._snapshot(), offer.tools))
        return self._last_tools

    def catalog(self) -> Catalog:
        """Return the routes of all names: tools on offer, tools that have to be searched for, the host's own."""
        return self._offer().catalog

    def keep(self, text: str) -> str | None:
        """Store a result that is too long, and return its id; None if it cannot be stored."""
        key = self._results.keep(text)
        self._can_read_results = self._can_read_results or key is not None
        return key

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:  # noqa: ARG002
        """Answer a call of one of the host's own tools, as `Connection.call` does for a server's."""
        from mcp_types import CallToolResult, TextContent

        text = self._search(arguments["query"]) if tool == SEARCH_TOOLS else self._read_result(arguments)
        is_error = text is None
        if text is None:
            text = f"There is no result {arguments['id'][:40]!r} any more: call the tool again."
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)

    def _offer(self) -> _Offer:
        """Return the offer of the moment, made anew if something has changed."""
        snapshot = self._snapshot()
        state = (snapshot, tuple(self._found), self._can_read_results, self._is_searched())
        if self._current.state != state:
            tools = self._select(snapshot)
            self._current = _Offer(state, tools, self._catalog_for(snapshot, tools))
        return self._current

    def _select(self, snapshot: ToolSnapshot) -> tuple[ToolSpec, ...]:
        """Return the tools to offer: all, all to an endpoint that searches, or those that were found."""
        own = (*(route.spec for route in snapshot.own), *((_READ,) if self._can_read_results else ()))
        tools = snapshot.catalog.tools
        if not snapshot.is_long(self._limits, self._window):
            return (*tools, *own) if own else tools
        if self._is_searched() and len(tools) <= MAX_DEFERRED:
            return (*snapshot.deferred(self._shown), *own)
        fixed = (snapshot.search, *own, *snapshot.always)[:MAX_OFFERED]
        routes = snapshot.catalog.routes
        found = [routes[name].spec for name in self._found if name in routes]
        found = [tool for tool in found if tool not in snapshot.always]
        return (*fixed, *self._newest(found, snapshot, self._limits.max_tools - len(fixed)))[:MAX_OFFERED]

    def _newest(self, found: Sequence[ToolSpec], snapshot: ToolSnapshot, most: int) -> Sequence[ToolSpec]:
        """Return the tools that were found last: as many as fit, and at least those of one search."""
        room = self._limits.max_tool_bytes - sum(snapshot.sizes[tool.name] for tool in snapshot.always)
        count = 0
        for tool in reversed(found[-max(FOUND_AT_ONCE, most) :]):
            room -= snapshot.sizes[tool.name]
            if room < 0 and count >= FOUND_AT_ONCE:
                break
            count += 1
        return found[len(found) - count :]

    def _catalog_for(self, snapshot: ToolSnapshot, tools: tuple[ToolSpec, ...]) -> Catalog:
        """Return the catalog with the host's own tools.

        A name leads to the tool the model was told of, or nowhere; never to another tool.
        """
        routes = dict(snapshot.catalog.routes)
        by_key = {(route.spec.server, route.spec.tool): route for route in snapshot.catalog.routes.values()}
        for name, key in self._meanings.items():
            if key in by_key:
                routes[name] = by_key[key]
            else:
                routes.pop(name, None)
        own = {route.spec.name: route for route in snapshot.own}
        own |= {spec.name: Route(self, spec) for spec in tools if spec is _READ or spec is snapshot.search}
        return replace(snapshot.catalog, routes={**routes, **own})

    def _search(self, query: str) -> str:
        """Put the tools that fit on offer, and return a list of them."""
        snapshot = self._snapshot()
        tools = snapshot.index.search(query, FOUND_AT_ONCE)
        if not tools:
            servers = ", ".join(sorted({tool.server for tool in snapshot.catalog.tools}))
            return f"No tool was found for {query[:100]!r}. Use other words for what it should do. Servers: {servers}."
        for tool in tools:
            self._found.pop(tool.name, None)
            self._found[tool.name] = None
        lines = (f"- {tool.name}: {' '.join(tool.description.split())[:200]}" for tool in tools)
        return "\n".join(["These tools can be called now:", *lines])

    def _read_result(self, arguments: Mapping[str, Any]) -> str | None:
        """Return a page or matches of a stored result; None if it is not stored any more."""
        key, length = arguments["id"], max(_HEAD_CHARS, self._limits.max_result_chars - _HEAD_CHARS)
        if words := arguments.get("search"):
            return self._results.matches(key, words, length)
        return self._results.page(key, arguments.get("offset") or 0, length)


@dataclass(frozen=True, slots=True)
class _Offer:
    """The tools on offer in one state of the turn."""

    state: object = None
    """Everything the offer depends on; equal states have equal offers."""
    tools: tuple[ToolSpec, ...] = ()
    catalog: Catalog = Catalog()  # noqa: RUF009 - frozen


def _called_names(messages: Iterable[Message]) -> Iterable[str]:
    return (call.name for message in messages for call in message.tool_calls)


def shorten(content: Content, max_chars: int, keep: Keep | None) -> Content:
    """Return content that is cut to a head and a tail if it is too long, with a hint how to read on.

    Args:
        content: for the model.
        max_chars: characters of its text that are kept.
        keep: stores the whole text; None if nobody could read it.
    """
    text = text_of(content)
    key = keep(text) if len(text) > max_chars and keep is not None else None
    more = f'; {READ_RESULT}(id="{key}", offset={max_chars * 3 // 4}) reads on, with search="…" it finds' if key else ""
    return result_content.cut(content, max_chars, more)


def _result_ids(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        if message.role in (Role.TOOL, Role.USER):  # what a person attaches may be too long as well
            yield from _KEPT.findall(message.text)

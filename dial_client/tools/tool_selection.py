"""What one turn offers the model: the servers' tools, all or those that were searched for, and the host's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dial_client.limits import Limits
from dial_client.messages import Content, Message, Role, ToolSpec, text_of
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.session_calls import OnProgress
from dial_client.tools import result_content
from dial_client.tools.catalog import READ_RESULT, SEARCH_TOOLS, Catalog, Key, Route, catalog_of
from dial_client.tools.resource_tools import ResourceTools
from dial_client.tools.result_store import ResultStore
from dial_client.tools.search_index import SearchIndex

if TYPE_CHECKING:
    from mcp_types import CallToolResult

Keep = Callable[[str], str | None]
"""Puts a text aside that is too long for the model, and gives the id it can be read by."""

MAX_OFFERED = 128
"""Tools in one request: more than that OpenAI's chat completions refuse."""
MAX_DEFERRED = 1_000
"""Tools left to an endpoint's own search; of more than that the host lets the model search."""
FOUND_AT_ONCE = 5
_HEAD_CHARS = 300
"""Characters of a page kept free for the line that says which it is."""
_WINDOW_SHARE = 4
"""Tools may take a quarter of the context window; where they take more, they have to be searched for."""
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


def _own(name: str, about: str, schema: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(name, about, schema, tool=name, original_schema=schema, read_only=True)


_READ = _own(
    READ_RESULT,
    "Reads on in a tool result that was too long to be shown whole: a page, or the places of some words.",
    _PAGE,
)


@dataclass(frozen=True, eq=False)
class ToolSnapshot:
    """The servers' tools at one moment, with the way to find one of them; made once for each `Catalog`."""

    catalog: Catalog = Catalog()  # noqa: RUF009 - frozen
    pinned: frozenset[str] = frozenset()
    """Servers whose tools are always on offer."""
    own: tuple[Route, ...] = ()
    """Tools of the host's own that are always on offer, besides those of the turn itself."""

    def is_long(self, most: int, window: int | None) -> bool:
        """Whether it is too long to be offered whole: more than `most` tools, or too much of a window (tokens)."""
        if len(self.catalog.tools) > most:
            return True
        return window is not None and self._bytes > window * _BYTES_PER_TOKEN // _WINDOW_SHARE

    @cached_property
    def index(self) -> SearchIndex:
        """The tools by what they do."""
        return SearchIndex(self.catalog.tools)

    @cached_property
    def always(self) -> tuple[ToolSpec, ...]:
        """The tools of the servers that are pinned."""
        return tuple(tool for tool in self.catalog.tools if tool.server in self.pinned)

    def deferred(self, shown: frozenset[str]) -> tuple[ToolSpec, ...]:
        """Give all tools for an endpoint that searches among them itself.

        Args:
            shown: names of tools, besides those of pinned servers, that the model is to see at once.
        """
        return tuple(
            tool if tool.server in self.pinned or tool.name in shown else replace(tool, deferred=True)
            for tool in self.catalog.tools
        )

    @cached_property
    def search(self) -> ToolSpec:
        """The tool that finds the others."""
        counts: dict[str, int] = {}
        for tool in self.catalog.tools:
            counts[tool.server] = counts.get(tool.server, 0) + 1
        servers = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        about = f"Finds tools by what they do; what it finds can be called from then on. There are: {servers}."
        return _own(SEARCH_TOOLS, about, _QUERY)

    @cached_property
    def _bytes(self) -> int:
        return sum(len(tool.description) + len(json.dumps(tool.input_schema)) for tool in self.catalog.tools)


class ToolSnapshots:
    """Makes a new `ToolSnapshot` whenever the tools of a server have changed.

    Args:
        servers: the servers.
        resource_tools: the host's own tools that are always on offer.
    """

    def __init__(self, servers: ServerManager, resource_tools: ResourceTools) -> None:
        self._servers = servers
        self._resource_tools = resource_tools
        self._current = ToolSnapshot()
        self._revision: tuple[int, ...] | None = None

    def current(self) -> ToolSnapshot:
        """Return the servers' tools of this moment."""
        revision = self._servers.revision
        if revision != self._revision:
            pinned = (name for name, server in self._servers.items() if server.settings and server.settings.pinned)
            catalog = catalog_of(self._servers.values())
            self._current = ToolSnapshot(catalog, frozenset(pinned), self._resource_tools.routes())
            self._revision = revision
        return self._current

    def catalog(self) -> Catalog:
        """Return the catalog of this moment."""
        return self.current().catalog


class TurnTools:
    """What is on offer in one turn. It also answers the host's own tools, as a connection answers a server's.

    Args:
        menu: gives the servers' tools of the moment: what a server adds is on offer in the next round.
        shelf: where results are that were too long.
        limits: of the turn.
        history: the conversation before it; tools it has called stay on offer.
        window: the model's context window in tokens; None where it is not known.
        is_searched: whether the endpoint searches among tools itself: then all are offered, and it shows what it finds.
    """

    name = ""
    settings = None

    def __init__(
        self,
        menu: Callable[[], ToolSnapshot],
        shelf: ResultStore,
        limits: Limits,
        history: Sequence[Message] = (),
        window: int | None = None,
        is_searched: Callable[[], bool] = lambda: False,
    ) -> None:
        self._menu = menu
        self._shelf = shelf
        self._limits = limits
        self._window = window
        self._is_searched = is_searched
        # What it has found before it finds in its own words again; they are lost where another model answered.
        self._shown = frozenset(_called(message for message in history if message.echo is None))
        self._found = dict.fromkeys(_called(history))
        self._can_read_on = len(shelf) > 0 and any(key in shelf for key in _kept_in(history))
        self._offered: tuple[Any, tuple[ToolSpec, ...], Catalog] = (None, (), Catalog())
        self._said: tuple[ToolSpec, ...] = ()
        self._meant: dict[str, Key] = {}
        """What the names meant when the model was last told of them: servers that come and go may change names."""

    def tools(self) -> tuple[ToolSpec, ...]:
        """Give what is on offer: the very same tuple for as long as nothing changes, and in a stable order."""
        key, tools = self._menu_key(), self._now()[0]
        if tools is not self._said:
            self._said = tools
            self._meant.update({tool.name: (tool.server, tool.tool) for tool in tools if tool.server})
            self._offered = (key, tools, self._whole(key[0], tools))
        return tools

    def catalog(self) -> Catalog:
        """Give the way home for every name: those on offer, those that have to be searched for, the host's own."""
        return self._now()[1]

    def _now(self) -> tuple[tuple[ToolSpec, ...], Catalog]:
        key = self._menu_key()
        if self._offered[0] != key:
            tools = self._chosen(key[0])
            self._offered = (key, tools, self._whole(key[0], tools))
        return self._offered[1], self._offered[2]

    def _menu_key(self) -> tuple[ToolSnapshot, tuple[str, ...], bool, bool]:
        return (self._menu(), tuple(self._found), self._can_read_on, self._is_searched())

    def _whole(self, menu: ToolSnapshot, tools: tuple[ToolSpec, ...]) -> Catalog:
        """Give all routes. A name leads where it led when the model was told of it, or nowhere; never elsewhere."""
        routes = dict(menu.catalog.routes)
        here = {(route.spec.server, route.spec.tool): route for route in menu.catalog.routes.values()}
        for name, key in self._meant.items():
            if key in here:
                routes[name] = here[key]
            else:
                routes.pop(name, None)
        own = {route.spec.name: route for route in menu.own}
        own |= {spec.name: Route(self, spec) for spec in tools if spec is _READ or spec is menu.search}
        return Catalog(menu.catalog.tools, {**routes, **own}, menu.catalog.notes)

    def keep(self, text: str) -> str | None:
        """Put a result aside that is too long, and give its id; None where it cannot be kept."""
        key = self._shelf.keep(text)
        self._can_read_on = self._can_read_on or key is not None
        return key

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:  # noqa: ARG002
        """Answer a call of one of the host's own tools, as `Connection.call` does for a server's."""
        from mcp_types import CallToolResult, TextContent

        said = self._search(arguments["query"]) if tool == SEARCH_TOOLS else self._read(arguments)
        text, is_error = said if isinstance(said, tuple) else (said, False)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)

    def _chosen(self, menu: ToolSnapshot) -> tuple[ToolSpec, ...]:
        own = (*(route.spec for route in menu.own), *((_READ,) if self._can_read_on else ()))
        most = self._limits.max_tools
        if not menu.is_long(most, self._window):
            return (*menu.catalog.tools, *own) if own else menu.catalog.tools
        if self._is_searched() and len(menu.catalog.tools) <= MAX_DEFERRED:
            return (*menu.deferred(self._shown), *own)
        fixed = (menu.search, *own, *menu.always)[:MAX_OFFERED]
        routes = menu.catalog.routes
        found = [routes[name].spec for name in self._found if name in routes and routes[name].spec not in menu.always]
        room = max(FOUND_AT_ONCE, most - len(fixed))
        return (*fixed, *found[-room:])[:MAX_OFFERED]

    def _search(self, query: str) -> str:
        found = self._menu().index.search(query, FOUND_AT_ONCE)
        if not found:
            servers = ", ".join(sorted({tool.server for tool in self._menu().catalog.tools}))
            return f"No tool was found for {query[:100]!r}. Use other words for what it should do. Servers: {servers}."
        for tool in found:
            self._found.pop(tool.name, None)
            self._found[tool.name] = None
        lines = (f"- {tool.name}: {' '.join(tool.description.split())[:200]}" for tool in found)
        return "\n".join(["These tools can be called now:", *lines])

    def _read(self, arguments: Mapping[str, Any]) -> str | tuple[str, bool]:
        key, length = arguments["id"], max(_HEAD_CHARS, self._limits.max_result_chars - _HEAD_CHARS)
        if wanted := arguments.get("search"):
            found = self._shelf.matches(key, wanted, length)
        else:
            found = self._shelf.page(key, arguments.get("offset") or 0, length)
        return (f"There is no result {key[:40]!r} any more: call the tool again.", True) if found is None else found


def _called(messages: Iterable[Message]) -> Iterable[str]:
    return (call.name for message in messages for call in message.tool_calls)


def shortened(content: Content, max_chars: int, keep: Keep | None) -> Content:
    """Cut what is too long for the model to a head and a tail, and say how it can read on.

    Args:
        content: what the model is to read.
        max_chars: characters of its text that are kept.
        keep: puts the whole text aside; None where nobody could read it.
    """
    text = text_of(content)
    key = keep(text) if len(text) > max_chars and keep is not None else None
    more = f'; {READ_RESULT}(id="{key}", offset={max_chars * 3 // 4}) reads on, with search="…" it finds' if key else ""
    return result_content.cut(content, max_chars, more)


def _kept_in(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        if message.role in (Role.TOOL, Role.USER):  # what a person attaches may be too long as well
            yield from _KEPT.findall(message.text)

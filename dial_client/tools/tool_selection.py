"""The tools that a turn offers to the model: all servers' tools or only the found tools, and the host's own tools."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any

from dial_client.messages.limits import Limits
from dial_client.messages.message import SEARCH_TOOLS, Failure, Message, Role, ToolCallResult, ToolSpec
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import sanitize
from dial_client.servers.server_manager import OwnerViews, ServerManager
from dial_client.servers.session import OnCallProgress
from dial_client.tools.background_calls import CALL_IN_BACKGROUND, STOP_CALL, WAIT_FOR_CALL, BackgroundCalls
from dial_client.tools.catalog import (
    MAX_DESCRIPTION,
    Catalog,
    Key,
    Route,
    ToolServer,
    build_catalog,
    build_host_tool,
    shorten_description,
)
from dial_client.tools.function_tools import FunctionTools
from dial_client.tools.result_content import READ_RESULT, ResultStore
from dial_client.tools.search_index import MAX_NAMED, SearchIndex, describe_less_likely
from dial_client.tools.tool_uses import ToolUses

# Maximum number of tools in one request: the limit of OpenAI's chat completions.
MAX_OFFERED = 128
# Maximum number of tools for an endpoint's own tool search; above it the host searches.
MAX_DEFERRED = 1_000
# Maximum number of tools that one search finds.
FOUND_AT_ONCE = 5
# Ranks of a search from which it finds tools: below the first five, too, in place of tools that are on offer already.
_MAX_RANK = 8
# Maximum characters of a description in the answer of a search.
_MAX_LINE = 200
_CUT_MARK = f"[Shortened. {SEARCH_TOOLS} with the name of this tool as the query returns the whole description.]"
_NOTHING_NEW = "No other tool is among the best results."
# Tools may fill a quarter of the context window (1 divided by this number); above it, the model searches for tools.
_WINDOW_SHARE = 4
# Maximum number of selections among the same tools that are kept.
_MAX_DERIVED = 16
_BYTES_PER_TOKEN = 3

_KEPT = compile_lazily(r'read_result\(id="([0-9a-f]{12})"')
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
        "query": {"type": "string", "description": "The action and the thing: create an issue. Or a tool's name."},
        "server": {"type": "string", "description": "What kind of server has it, or its name: issue tracker, github."},
    },
    "required": ["query"],
}
READ_RESULT_TOOL = build_host_tool(
    READ_RESULT,
    "Reads on in a tool result that was too long to be shown whole: a page, or the places of some words.",
    _PAGE,
)

_CALL_ID = {"type": "string", "description": "The id of the call, as its first result gives it."}
_WAIT = {
    "type": "object",
    "properties": {"id": _CALL_ID, "seconds": {"type": "number", "description": "The most seconds to wait, up to 50."}},
    "required": ["id"],
}
WAIT_FOR_CALL_TOOL = build_host_tool(
    WAIT_FOR_CALL, "Waits for the result of a call that goes on in the background.", _WAIT
)
STOP_CALL_TOOL = build_host_tool(
    STOP_CALL,
    "Stops a call that goes on in the background.",
    {"type": "object", "properties": {"id": _CALL_ID}, "required": ["id"]},
)
CALL_IN_BACKGROUND_TOOL = build_host_tool(
    CALL_IN_BACKGROUND,
    "Calls a tool in the background, for work that takes long while there is other work. The result arrives later.",
    {
        "type": "object",
        "properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["tool", "arguments"],
    },
)
_OWN_TOOLS = (READ_RESULT_TOOL, WAIT_FOR_CALL_TOOL, STOP_CALL_TOOL, CALL_IN_BACKGROUND_TOOL)


@dataclass(frozen=True, eq=False)
class ToolSnapshot:
    """The servers' tools at one moment, with an index to search; made once for each `Catalog`."""

    catalog: Catalog = Catalog()  # noqa: RUF009 - frozen
    pinned: frozenset[str] = frozenset()
    """Servers whose tools are always offered."""
    own: tuple[Route, ...] = ()
    """The host's own tools that are always offered, besides the tools that each turn adds."""

    build_index: Callable[[Sequence[ToolSpec]], SearchIndex] = SearchIndex
    """Builds the search index of the tools."""
    describe_missing: Callable[[], str] = str
    """Returns a sentence on the servers that are not available now; empty for none."""
    uses: ToolUses = field(default_factory=ToolUses)
    """The calls of each person, which change what a search finds first."""

    def is_long(self, limits: Limits, window: int | None) -> bool:
        """Return whether the tools are too many or too large, by the limits or by the context window in tokens."""
        if len(self.catalog.tools) > limits.max_tools:
            return True
        size = sum(self.find_sizes(limits.max_description_chars).values())
        is_large = window is not None and size > window * _BYTES_PER_TOKEN // _WINDOW_SHARE
        return is_large or size > limits.max_tool_bytes

    @cached_property
    def index(self) -> SearchIndex:
        """The search index of the tools."""
        return self.build_index(self.catalog.tools)

    @cached_property
    def always_offered(self) -> tuple[ToolSpec, ...]:
        """The tools of the pinned servers, which are always offered."""
        return tuple(tool for tool in self.catalog.tools if tool.server in self.pinned)

    def derive(self, key: Hashable, build: Callable[[ToolSnapshot], ToolSnapshot]) -> ToolSnapshot:
        """Return what is built from this snapshot; the same object for the same key, since each turn asks anew.

        Args:
            key: All that `build` depends on besides the snapshot.
            build: Builds another snapshot from this one.
        """
        if (known := self._derived.get(key)) is None:
            if len(self._derived) >= _MAX_DERIVED:
                del self._derived[next(iter(self._derived))]
            known = self._derived[key] = build(self)
        return known

    @cached_property
    def _derived(self) -> dict[Hashable, ToolSnapshot]:
        return {}

    def defer_tools(self, shown: Container[str]) -> tuple[ToolSpec, ...]:
        """Return all tools for an endpoint with its own tool search, most of them marked as deferred.

        Args:
            shown: The names of tools that are not deferred; the tools of pinned servers are never deferred.
        """
        return tuple(
            tool if tool.server in self.pinned or tool.name in shown else replace(tool, deferred=True)
            for tool in self.catalog.tools
        )

    def find_search_tool(self, max_bytes: int) -> ToolSpec:
        """Return the tool that searches for tools; the same object for the same tools.

        Args:
            max_bytes: Maximum bytes of the tools' names in its description; if they have more, it has their numbers.
        """
        if (known := self._search_tools.get(max_bytes)) is None:
            names: dict[str, list[str]] = {}
            for tool in self.catalog.tools:
                names.setdefault(tool.server, []).append(tool.name)
            counted = {f"{server} ({len(names[server])})": names[server] for server in sorted(names)}
            listed = "; ".join(f"{server}: {', '.join(of_server)}" for server, of_server in counted.items())
            if len(listed.encode(errors="replace")) > max_bytes:
                listed = ", ".join(counted)
            description = (
                "Finds tools by what they do; what it finds can be called from then on, as can every tool by its exact "
                f"name. There are: {listed}."
            )
            known = self._search_tools[max_bytes] = build_host_tool(SEARCH_TOOLS, description, _QUERY)
        return known

    @cached_property
    def has_long_calls(self) -> bool:
        """Whether the entry of a server says that calls take so long that they go to the background after a while.

        Only then the model is offered a tool to begin a call there: of other servers nobody expects such calls, and
        each tool has its price in every request.
        """
        settings = {route.spec.server: route.connection.settings for route in self.catalog.routes.values()}
        return any(
            any(0 < seconds < math.inf for seconds in entry.background_after.values())
            for entry in settings.values()
            if entry is not None
        )

    @cached_property
    def _search_tools(self) -> dict[int, ToolSpec]:
        return {}

    def shorten(self, tool: ToolSpec, max_chars: int) -> ToolSpec:
        """Return a tool with at most `max_chars` characters of description; the same object if it is not longer."""
        if len(tool.description) <= max_chars:
            return tool
        if (known := self._shortened.get((tool.name, max_chars))) is None or known[0] is not tool:
            short = replace(tool, description=shorten_description(tool.description, max_chars, _CUT_MARK))
            known = self._shortened[tool.name, max_chars] = tool, short
        return known[1]

    @cached_property
    def _shortened(self) -> dict[tuple[str, int], tuple[ToolSpec, ToolSpec]]:
        return {}

    def find_sizes(self, max_chars: int) -> Mapping[str, int]:
        """Return the size of each tool in a request in bytes, by its name, with descriptions of `max_chars`."""
        max_chars = min(max_chars, MAX_DESCRIPTION)
        if (known := self._sizes.get(max_chars)) is None:
            tools = (self.shorten(tool, max_chars) for tool in self.catalog.tools)
            known = self._sizes[max_chars] = {tool.name: _measure_size(tool) for tool in tools}
        return known

    @cached_property
    def _sizes(self) -> dict[int, Mapping[str, int]]:
        return {}


def _measure_size(tool: ToolSpec) -> int:
    texts = (tool.name, tool.description, json.dumps(tool.input_schema, ensure_ascii=False))
    return sum(len(text.encode(errors="replace")) for text in texts)


@dataclass(eq=False)
class ToolSnapshots:
    """Builds a new `ToolSnapshot` whenever the tools of a server have changed.

    Args:
        servers: The servers.
        own_tools: Returns the routes of the host's own tools, besides those of each turn.
        functions: The program's functions that are tools.
        has_apps: Whether the client shows MCP Apps.
    """

    _servers: ServerManager
    _own_tools: Callable[[], tuple[Route, ...]]
    functions: FunctionTools
    """The program's functions that are tools."""
    _has_apps: bool

    def __post_init__(self) -> None:
        self._views: OwnerViews[ToolSnapshot] = OwnerViews(self._servers)
        self._agents: tuple[ToolServer, ...] = ()
        self._changes = 0
        self._uses = ToolUses()
        self._index: SearchIndex | None = None

    def set_agents(self, agents: ToolServer | None) -> None:
        """Offer agents from the next round on, in place of earlier ones; None for no agents."""
        self._agents, self._changes = (() if agents is None else (agents,)), self._changes + 1

    @property
    def own(self) -> tuple[ToolServer, ...]:
        """What has tools besides the servers: the functions and the agents, if there are any."""
        return tuple(backend for backend in (self.functions, *self._agents) if backend.tools)

    def take_snapshot(self) -> ToolSnapshot:
        """Return the servers' current tools."""
        return self._views.get(self._build, self.functions.revision + self._changes)

    def _build(self) -> ToolSnapshot:
        backends = (*self._servers.values(), *self.own)
        pinned = (backend.name for backend in backends if backend.settings and backend.settings.pinned)
        previous = self._views.find()
        known = Catalog() if previous is None else previous.catalog
        catalog = build_catalog(backends, has_apps=self._has_apps, previous=known)
        return ToolSnapshot(
            catalog, frozenset(pinned), self._own_tools(), self._build_index, self._servers.describe_missing, self._uses
        )

    def _build_index(self, tools: Sequence[ToolSpec]) -> SearchIndex:
        """Return an index; what the last one knows of servers that have not changed is taken over."""
        self._index = SearchIndex(tools, self._index)
        return self._index

    def get_catalog(self) -> Catalog:
        """Return the current catalog."""
        return self.take_snapshot().catalog


def add_own_tools(snapshot: Callable[[], ToolSnapshot], routes: tuple[Route, ...]) -> Callable[[], ToolSnapshot]:
    """Return a function that returns the current tools, with further tools of the host."""

    def add(current: ToolSnapshot) -> ToolSnapshot:
        return replace(current, own=(*current.own, *routes), build_index=lambda _: current.index)

    # The snapshot that is kept has the routes, so that no other route has the identity of one of them.
    key = ("own", *map(id, routes))
    return (lambda: snapshot().derive(key, add)) if routes else snapshot


@dataclass(eq=False)
class TurnTools:
    """The tools that one turn offers, and the backend of the host's own tools.

    Args:
        snapshot: Returns the servers' current tools, so that a tool that a server adds is offered in the next round.
        results: Stores results that are too long.
        limits: The limits of the turn.
        history: The conversation before the turn; tools that were called in it stay offered.
        window: The model's context window in tokens; None if unknown.
        is_searched: Returns whether the endpoint searches tools itself; all tools are then offered to it.
        owner: The person that the turn is for.
        background: The calls in the background, for which two tools are offered.
    """

    name = ""
    settings = None
    _snapshot: Callable[[], ToolSnapshot]
    _results: ResultStore
    _limits: Limits
    history: InitVar[Sequence[Message]] = ()
    _window: int | None = None
    _is_searched: Callable[[], bool] = lambda: False
    _owner: str = ""
    _background: BackgroundCalls = field(default_factory=BackgroundCalls)

    def __post_init__(self, history: Sequence[Message]) -> None:
        # The echoes of an endpoint with its own search contain the tools it found. The tools that another model called
        # are not in them, so they are not deferred.
        self._shown = dict.fromkeys(_list_called_names(message for message in history if message.echo is None))
        self._found = dict.fromkeys(_list_called_names(history))
        # A resource that the user attaches may be too long as well.
        texts = [message.text for message in history if message.role in (Role.TOOL, Role.USER)]
        kept = (key for text in texts for key in _KEPT.findall(text))
        self._can_read_results = any(self._results.has(key, self._owner) for key in kept)
        # All inputs of the current offer: equal ones have equal offers. Its tools; its catalog, once it is asked for.
        self._state: object = None
        self._selected: tuple[ToolSpec, ...] = ()
        self._catalog: Catalog | None = None
        # The tools that were offered last.
        self._last_tools: tuple[ToolSpec, ...] = ()
        self.describe_found: Callable[[Sequence[ToolSpec]], str] = _describe_found
        """Returns what the model reads about tools that it has found."""
        self.list_names: Callable[[Sequence[ToolSpec]], Iterable[str]] = _list_names
        """Returns the names by which the model calls tools."""
        self.describes_again = False
        """Whether a search describes tools on offer again, since no further request has their definitions."""
        # The tool of each name when it was offered: a tool's name may change when servers are added or removed.
        self._meanings: dict[str, Key] = {}

    def offer_tools(self) -> tuple[ToolSpec, ...]:
        """Return the offered tools in a stable order; the same tuple object while nothing changes."""
        self._update_offer()
        if self._selected is not self._last_tools:
            self._last_tools, self._catalog = self._selected, None
            self._meanings.update({tool.name: (tool.server, tool.tool) for tool in self._selected if tool.server})
        return self._last_tools

    def get_catalog(self) -> Catalog:
        """Return the catalog with the routes of offered tools, of tools not found yet, and of the host's own tools."""
        snapshot = self._update_offer()
        if self._catalog is None:
            self._catalog = self._build_catalog(snapshot, self._selected)
        return self._catalog

    @property
    def always_offered(self) -> tuple[ToolSpec, ...]:
        """The tools of the pinned servers, which are offered also where the model searches for the others."""
        return self._snapshot().always_offered

    def store_result(self, text: str) -> str | None:
        """Store the full text of a result that is too long, and return its id; None if it cannot be stored."""
        key = self._results.keep(text, self._owner)
        self._can_read_results = self._can_read_results or key is not None
        return key

    def add_calls(self, calls: Iterable[tuple[str, bool]]) -> None:
        """Offer tools that were called without being on offer, and count the calls that succeeded.

        Args:
            calls: The names of the tools, and whether the calls succeeded.
        """
        snapshot, offered = self._snapshot(), {tool.name for tool in self._last_tools}
        for name, success in calls:
            route = snapshot.catalog.routes.get(name)
            if route is not None and name not in offered:
                self._found[name] = None
            if route is not None and success:
                snapshot.uses.add(self._owner, (route.spec.server, route.spec.tool))

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> ToolCallResult:  # noqa: ARG002
        """Run a call of one of the host's own tools, and return its result without an id."""
        if tool in (WAIT_FOR_CALL, STOP_CALL):
            return await self._background.call(tool, arguments, self._limits.tool_timeout)
        if tool == CALL_IN_BACKGROUND:
            # The executor makes the other call. Only a middleware that has changed the name of a call comes here.
            return ToolCallResult.failed("", Failure.TOOL, "This call cannot be made in the background.")
        if tool == SEARCH_TOOLS:
            text: str | None = self._search(arguments["query"], arguments.get("server", ""))
        else:
            text = self._results.read(arguments, self._limits.max_result_chars, self._owner)
        if text is None:
            problem = f"There is no result {arguments['id'][:40]!r} any more: call the tool again."
            return ToolCallResult.failed("", Failure.TOOL, problem)
        return ToolCallResult("", success=True, content=sanitize(text))

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return an empty text: what was stored has tainted when it arrived, and a late result says its source."""
        return ""

    def _update_offer(self) -> ToolSnapshot:
        """Select the tools anew if something has changed, and return the servers' current tools."""
        snapshot = self._snapshot()
        has_background = bool(self._background.calls)
        state = (snapshot, tuple(self._found), self._can_read_results, self._is_searched(), has_background)
        if self._state != state:
            self._state, self._selected, self._catalog = state, self._select(snapshot), None
        return snapshot

    def _select(self, snapshot: ToolSnapshot) -> tuple[ToolSpec, ...]:
        """Return the tools to offer: all tools, all tools with most of them deferred, or only the found tools."""
        own_tools = (*(route.spec for route in snapshot.own), *((READ_RESULT_TOOL,) if self._can_read_results else ()))
        if self._background.tasks is not None and snapshot.has_long_calls:
            own_tools = (*own_tools, CALL_IN_BACKGROUND_TOOL)
        if self._background.calls:
            own_tools = (*own_tools, WAIT_FOR_CALL_TOOL, STOP_CALL_TOOL)
        tools = snapshot.catalog.tools
        max_chars, search_tool = self._limits.max_description_chars, snapshot.find_search_tool
        if not snapshot.is_long(self._limits, self._window):
            if any(len(tool.description) > max_chars for tool in tools):
                own_tools = (*own_tools, search_tool(self._limits.search_index_bytes))
                tools = tuple(snapshot.shorten(tool, max_chars) for tool in tools)
            return (*tools, *own_tools) if own_tools else tools
        if self._is_searched() and len(tools) <= MAX_DEFERRED:
            return (*snapshot.defer_tools(self._shown), *own_tools)
        fixed = (search_tool(self._limits.search_index_bytes), *own_tools, *snapshot.always_offered)[:MAX_OFFERED]
        routes = snapshot.catalog.routes
        found = [routes[name].spec for name in self._found if name in routes]
        found = [tool for tool in found if tool not in snapshot.always_offered]
        offered = (*fixed, *self._find_newest(found, snapshot, self._limits.max_tools - len(fixed)))[:MAX_OFFERED]
        return tuple(snapshot.shorten(tool, max_chars) if tool.server else tool for tool in offered)

    def _find_newest(self, found: Sequence[ToolSpec], snapshot: ToolSnapshot, limit: int) -> Sequence[ToolSpec]:
        """Return the most recently found tools: as many as fit, and at least as many as one search finds."""
        sizes = snapshot.find_sizes(self._limits.max_description_chars)
        room = self._limits.max_tool_bytes - sum(sizes[tool.name] for tool in snapshot.always_offered)
        count = 0
        for tool in reversed(found[-max(FOUND_AT_ONCE, limit) :]):
            room -= sizes[tool.name]
            if room < 0 and count >= FOUND_AT_ONCE:
                break
            count += 1
        return found[len(found) - count :]

    def _build_catalog(self, snapshot: ToolSnapshot, tools: tuple[ToolSpec, ...]) -> Catalog:
        """Return the catalog with the host's own tools.

        A name that was offered stays the name of the same tool. It has no route if that tool is gone.
        """
        routes = dict(snapshot.catalog.routes)
        by_key = snapshot.catalog.by_key
        for name, key in self._meanings.items():
            if key in by_key:
                routes[name] = by_key[key]
            else:
                routes.pop(name, None)
        routes |= {route.spec.name: route for route in snapshot.own}
        routes |= {
            spec.name: Route(self, spec)
            for spec in tools
            if not spec.server and (spec in _OWN_TOOLS or spec.name == SEARCH_TOOLS)
        }
        return replace(snapshot.catalog, routes=routes)

    def _search(self, query: str, server: str) -> str:
        """Offer the tools that match a query, and return a list of them as text.

        The definitions of tools on offer are in each further request, so that the list only names these tools.
        """
        snapshot = self._update_offer()
        missing = snapshot.describe_missing()
        end = f"\n{missing}" if missing else ""
        uses = snapshot.uses.count(self._owner)
        ranked = snapshot.index.search(query, FOUND_AT_ONCE + MAX_NAMED, server=server, uses=uses)
        if not ranked:
            servers = ", ".join(sorted({tool.server for tool in snapshot.catalog.tools}))
            problem = f"No tool was found for {query[:100]!r}. Use other words for what it should do."
            return f"{problem} Servers: {servers}.{end}"
        offered = set() if self.describes_again else {tool.name for tool in self._selected}
        known = [tool for tool in ranked[:_MAX_RANK] if tool.name in offered]
        new = [tool for tool in ranked[:_MAX_RANK] if tool.name not in offered][:FOUND_AT_ONCE]
        # Without a new tool the order stays as well, and with it what caches of prompts have.
        for tool in (*known[::-1], *new) if new else ():
            self._found.pop(tool.name, None)
            self._found[tool.name] = None
        self._update_offer()
        return "\n".join(self._describe_search(query, ranked, known, new)) + end

    def _describe_search(
        self, query: str, ranked: Sequence[ToolSpec], known: Sequence[ToolSpec], new: Sequence[ToolSpec]
    ) -> Iterable[str]:
        """Yield the parts of the answer of a search.

        Args:
            query: The query.
            ranked: What matches it, the best first.
            known: The best tools that were on offer before the search; new tools may have taken the place of some.
            new: The best tools that were not on offer.
        """
        offered = {tool.name for tool in self._selected}
        names = ", ".join(self.list_names([tool for tool in known if tool.name in offered]))
        on_offer = [f"On offer already: {names}."] if names else []
        described = ["These tools can be called now:", self.describe_found(new)] if new else [_NOTHING_NEW]
        yield from (*on_offer, *described) if ranked[0] in known else (*described, *on_offer)
        named_already = {*offered, *(tool.name for tool in new)}
        less_likely = [tool for tool in ranked if tool.name not in named_already]
        yield from describe_less_likely(self.list_names(less_likely), sum(len(line) + 1 for line in on_offer))
        # Of a tool that is named the whole is wanted, above all if its description on offer is cut.
        if named := next((tool for tool in (*known, *new) if tool.name == query.strip()), None):
            yield f"The whole description of {named.name}:\n{named.description}"


def _describe_found(tools: Sequence[ToolSpec]) -> str:
    return "\n".join(f"- {tool.name}: {' '.join(tool.description.split())[:_MAX_LINE]}" for tool in tools)


def _list_names(tools: Sequence[ToolSpec]) -> Iterable[str]:
    return (tool.name for tool in tools)


def _list_called_names(messages: Iterable[Message]) -> Iterable[str]:
    return (call.name for message in messages for call in message.tool_calls)

"""The tools of all servers, under the names that are offered to the model.

Offered names are never parsed: `Catalog.routes` maps them to servers and tools.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Protocol

from dial_client.messages.mcp_apps import is_for_app, is_for_model, parse_app_uri
from dial_client.messages.message import SEARCH_TOOLS, ToolCallResult, ToolSpec, read_icons
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import clean, to_one_line
from dial_client.schema import provider_schema
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.servers.session import OnCallProgress
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.background_calls import CALL_IN_BACKGROUND, STOP_CALL, WAIT_FOR_CALL
from dial_client.tools.function_definition import FunctionDefinition
from dial_client.tools.result_content import READ_RESULT

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

# Maximum characters of an offered name: the limit of OpenAI's APIs; other APIs accept more.
MAX_NAME = 64
# Maximum characters of a tool's description, so that no server can fill the model's context.
MAX_DESCRIPTION = 8_000
CUT_MARK = "[The rest of this description is left out: it is too long.]"

LIST_RESOURCES, READ_RESOURCE = "list_resources", "read_resource"
READ_SKILL = "read_skill"
RUN_CODE = "run_code"
# Ends the time in which an agent has the conversation.
HAND_BACK = "hand_back"
# The names of the host's own tools. A server's tool with such a name is offered as ``server__tool``.
RESERVED = frozenset(
    {
        *(READ_RESULT, SEARCH_TOOLS, LIST_RESOURCES, READ_RESOURCE, READ_SKILL, RUN_CODE, HAND_BACK),
        *(WAIT_FOR_CALL, STOP_CALL, CALL_IN_BACKGROUND),
    }
)

# Maximum characters of a pattern in a note.
_MAX_PATTERN_CHARS = 100
_SENTENCE_END = compile_lazily(r"[.!?…][\"')\]]*(?=\s)|\u3002|\n")

# A server's name in the configuration, and the tool's own name at this server.
Key = tuple[str, str]


class ToolBackend(Protocol):
    """Runs tool calls: the connection to a server, the program's functions, or the host itself."""

    @property
    def name(self) -> str:
        """The server's name in the configuration; empty for the host."""
        ...

    @property
    def settings(self) -> ServerSettings | None:
        """The server's entry in the configuration; None if it has none."""
        ...

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress
    ) -> CallToolResult | ToolCallResult:
        """Call a tool by its own name, and return its result; a `ToolCallResult` has an empty call id."""
        ...

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the source of strangers' text in the results of a call, ``server/tool``; empty if there is none."""
        ...


class ToolServer(ToolBackend, Protocol):
    """A backend that lists tools: the connection to a server, or the program's functions."""

    @property
    def tools(self) -> Sequence[Tool | FunctionDefinition]:
        """The definitions of the tools."""
        ...


@dataclass(frozen=True)
class Route:
    """The route from an offered name to the backend that has the tool."""

    connection: ToolBackend
    spec: ToolSpec
    definition: Tool | FunctionDefinition | None = field(default=None, repr=False)
    """The definition from which the tool was built; None for the host's own tools."""
    changes: tuple[str, ...] = ()
    """Notes on what the model does not get of the definition, or gets in another form."""

    @property
    def key(self) -> Key:
        """The server, and its own name of the tool."""
        return self.spec.server, self.spec.tool

    def is_of(self, connection: ToolBackend, definition: Tool | FunctionDefinition, name: str) -> bool:
        """Return whether this is the route that such a tool would have under a name."""
        return self.connection is connection and self.definition is definition and self.spec.name == name

    @cached_property
    def check(self) -> ArgumentCheck:
        """The validator of arguments by the original schema, compiled on first use."""
        return ArgumentCheck(self.spec.original_schema)

    @cached_property
    def output_check(self) -> ArgumentCheck:
        """The validator of structured results by the output schema, compiled on first use."""
        return ArgumentCheck(self.spec.output_schema or {})


@dataclass(frozen=True)
class Catalog:
    """The tools of all servers at one moment; each change of a server's tools needs a new catalog."""

    tools: tuple[ToolSpec, ...] = ()
    """The tools sorted by name, so that requests are the same in each run and prompt caches are used."""
    routes: Mapping[str, Route] = field(default_factory=dict)
    """The routes of the names that models may call."""
    app_routes: Mapping[Key, Route] = field(default_factory=dict)
    """The routes of the tools that the MCP Apps of the same server may call."""
    notes: tuple[str, ...] = ()
    """Notes for the user on tools that were left out or changed, with the reasons."""

    @cached_property
    def by_key(self) -> Mapping[Key, Route]:
        """The routes of the tools that models may call, by the servers' and their own names."""
        return {route.key: route for route in self.routes.values()}


def build_catalog(
    connections: Iterable[ToolServer], *, has_apps: bool = False, previous: Catalog = Catalog()
) -> Catalog:
    """Return the catalog of all servers' enabled tools, with unique names and adapted schemas, sorted by name.

    Args:
        connections: The servers.
        previous: An earlier catalog, with the same `has_apps`. The routes of tools that are the same are taken over, so
            that a change of one server costs little.
        has_apps: Whether the client shows MCP Apps. Tools that only apps may call are never offered to models.
    """
    notes: list[str] = []
    tools_by_key: dict[Key, tuple[ToolServer, Tool | FunctionDefinition]] = {}
    for connection in connections:
        for tool in connection.tools:
            if not is_enabled(tool.name, connection):
                continue
            if (connection.name, tool.name) in tools_by_key:
                notes.append(f"{connection.name}: the tool {tool.name!r} is listed twice; the first one is used")
                continue
            tools_by_key[connection.name, tool.name] = (connection, tool)
    routes: dict[str, Route] = {}
    app_routes: dict[Key, Route] = {}
    known = {**previous.app_routes, **previous.by_key}
    for key, name in assign_names(tools_by_key).items():
        connection, tool = tools_by_key[key]
        route = known.get(key)
        if route is None or not route.is_of(connection, tool, name):
            try:
                spec, changes = build_tool_spec(name, connection.name, tool, has_apps=has_apps)
            except provider_schema.Unsupported as reason:
                notes.append(f"{connection.name}: the tool {tool.name!r} is left out: {reason}")
                continue
            route = Route(connection, spec, tool, tuple(changes))
        if has_apps and is_for_app(tool.meta):
            app_routes[key] = route
        if is_for_model(tool.meta):
            routes[name] = route
            notes += (f"{connection.name}: {change}" for change in route.changes)
    ordered = dict(sorted(routes.items()))
    return Catalog(tuple(route.spec for route in ordered.values()), ordered, app_routes, tuple(notes))


def is_enabled(tool: str, connection: ToolBackend) -> bool:
    """Return whether the configuration enables a server's tool."""
    settings = connection.settings
    if settings is None:
        return True
    is_included = settings.enabled_tools is None or any(fnmatchcase(tool, name) for name in settings.enabled_tools)
    return is_included and not any(fnmatchcase(tool, name) for name in settings.disabled_tools)


def build_exact_spec(name: str, server: str, tool: Tool) -> ToolSpec:
    """Return a tool as policy, grants, pins and the audit log know it, also if no model API accepts its schema.

    The client of a gateway may have other means than a model API.
    """
    try:
        return build_tool_spec(name, server, tool)[0]
    except provider_schema.Unsupported:
        spec, _ = build_tool_spec(name, server, tool.model_copy(update={"input_schema": {"type": "object"}}))
        return replace(spec, input_schema=tool.input_schema, original_schema=tool.input_schema)


def build_tool_spec(
    name: str, server: str, tool: Tool | FunctionDefinition, *, has_apps: bool = False
) -> tuple[ToolSpec, list[str]]:
    """Return a server's tool as offered to the model under `name`, and notes on what was changed or left out.

    Raises:
        Unsupported: No provider accepts the tool's schema.
    """
    fit = provider_schema.adapt(tool.input_schema)
    hints = tool.annotations
    text = shorten_description(tool.description or "", MAX_DESCRIPTION, CUT_MARK)
    description = clean("\n\n".join([text, *fit.hints]))
    title = clean(tool.title or (hints.title if hints else None) or "")
    notes = _describe_changes(tool, fit, is_cut=text != (tool.description or ""))
    spec = ToolSpec(
        name=name,
        description=description.text.strip(),
        input_schema=fit.schema,
        server=server,
        tool=tool.name,
        title=title.text or None,
        original_schema=tool.input_schema,
        output_schema=tool.output_schema,
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
        destructive=hints.destructive_hint if hints else None,
        open_world=hints.open_world_hint if hints else None,
        icons=read_icons(tool.icons),
        app_uri=parse_app_uri(tool.meta) if has_apps else "",
        removed_invisible=description.removed + title.removed,
    )
    return spec, notes


def shorten_description(text: str, limit: int, mark: str) -> str:
    """Return a description; if it has more than `limit` characters, cut after a sentence or a word, with a mark."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    ends = [found.end() for found in _SENTENCE_END.finditer(head, limit // 2)]
    end = ends[-1] if ends else head.rfind(" ", limit // 2)
    return f"{head[: end if end > 0 else None].rstrip()}\n{mark}"


def _describe_changes(
    tool: Tool | FunctionDefinition, fit: provider_schema.AdaptedSchema, *, is_cut: bool
) -> list[str]:
    """Return notes on parts of a tool that the model does not get, or gets in another form."""
    notes = []
    if is_cut:
        notes.append(
            f"the description of the tool {tool.name!r} is cut: it has {len(tool.description or ''):,} characters, "
            f"and the model is given at most {MAX_DESCRIPTION:,}"
        )
    if fit.dropped_patterns:
        pattern, count_more = fit.dropped_patterns[0], len(fit.dropped_patterns) - 1
        more = f" and {count_more} more" if count_more else ""
        notes.append(
            f"the tool {tool.name!r} has a pattern that providers do not accept as a regular expression; the model "
            f"reads it in the description: {to_one_line(pattern, _MAX_PATTERN_CHARS)!r}{more}"
        )
    return notes


def build_host_tool(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    """Return one of the host's own tools, all of which only read."""
    return ToolSpec(name, description, schema, tool=name, original_schema=schema, read_only=True, idempotent=True)


def assign_names(keys: Iterable[Key], max_chars: int = MAX_NAME, *, with_server: bool = False) -> dict[Key, str]:
    """Return for each tool a unique name of the characters ``a-zA-Z0-9_-`` that is the same in each run.

    The name is the tool's own name if only one server has it, otherwise ``server__tool``. A name that is too long, or
    not unique, is cut and gets a short hash of server and tool. Names with a hash are assigned first, so that no server
    can take such a name by forging it.

    Args:
        keys: The tools.
        max_chars: Maximum characters of a name.
        with_server: True for ``server__tool`` in every case, so that a name does not depend on other servers.
    """
    keys = sorted(set(keys))
    plain = Counter(clean_name(tool) for _, tool in keys)
    preferred = {
        (server, tool): clean_name(tool)
        if plain[clean_name(tool)] == 1 and clean_name(tool) not in RESERVED and not with_server
        else clean_name(f"{server}__{tool}")
        for server, tool in keys
    }
    uses = Counter(preferred.values())
    is_unique = {key: uses[name] == 1 and len(name) <= max_chars for key, name in preferred.items()}
    names: dict[Key, str] = {}
    taken: set[str] = set()
    for key in sorted(keys, key=lambda key: (is_unique[key], key)):
        hashed = (_add_hash(preferred[key], key, attempt, max_chars) for attempt in count())
        possible = chain((preferred[key],), hashed) if is_unique[key] else hashed
        names[key] = next(name for name in possible if name not in taken)
        taken.add(names[key])
    return names


def clean_name(name: str) -> str:
    """Return a name in the characters ``a-zA-Z0-9_-``."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name) or "tool"


def _add_hash(name: str, key: Key, attempt: int, max_chars: int) -> str:
    source = "\0".join(key) + "\0" * attempt
    digest = hashlib.sha256(source.encode(errors="replace")).hexdigest()[:10]
    return f"{name[: max_chars - len(digest) - 1]}_{digest}"

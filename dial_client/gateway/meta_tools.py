"""A thousand tools for hosts that cannot search: three tools that find, describe and call all others.

A call through `call_tool` is a call of the tool that it names: policy, pins, approval, grants and audit log know
nothing of the tool in between. A tool that is called by its own name runs too, whether or not it is listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from mcp.server.context import HandlerResult, ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from dial_client.gateway.code_calls import CODE_TOOL, CodeCalls
from dial_client.gateway.definitions import Definitions, ListedTool, ToolDefinitions
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.tool_calls import ToolCalls
from dial_client.gateway.tool_listing import ToolListing
from dial_client.messages.message import SEARCH_TOOLS, ToolSpec
from dial_client.runtime.safe_text import sanitize
from dial_client.runtime.text import find_nearest_by_words
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.schema.tool_arguments import parse_arguments
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import ServerState
from dial_client.tools.catalog import RUN_CODE
from dial_client.tools.search_index import MAX_NAMED, SearchIndex, describe_less_likely
from dial_client.tools.snippets.tool_stubs import MAX_DESCRIPTION

DESCRIBE_TOOL, CALL_TOOL = "describe_tool", "call_tool"
_INSTRUCTIONS = (
    f"Most tools are not listed: {SEARCH_TOOLS} finds them, {DESCRIBE_TOOL} has their schemas, {CALL_TOOL} calls them."
)
_CODE_INSTRUCTIONS = (
    f"Most tools are not listed: {SEARCH_TOOLS} finds them, {DESCRIBE_TOOL} declares them as functions, {RUN_CODE} "
    f"runs a Python program that calls these, {CALL_TOOL} calls one."
)
# How many tools a search finds, unless the caller says it, and at most.
FOUND_AT_ONCE = 5
MAX_FOUND = 20
# Maximum characters of a tool's description, and the most parameters, in the answer of a search.
_MAX_LINE = 200
_MAX_PARAMETERS = 12
_MAX_NAME = 40
# Maximum characters of the names of all servers.
_MAX_SERVERS = 2_000
# Maximum characters of a definition. Above it, the schema of results is left out; the rest is cut.
MAX_DEFINITION = 20_000
MAX_DESCRIBED = 5


_ONLY_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_DESCRIBE = Tool(
    name=DESCRIBE_TOOL,
    description=f"Returns the definitions of tools with their schemas, by the names that {SEARCH_TOOLS} returned.",
    annotations=_ONLY_READS,
    input_schema={
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_DESCRIBED}
        },
        "required": ["names"],
    },
)
_CALL = Tool(
    name=CALL_TOOL,
    description=f"Calls a tool by the name that {SEARCH_TOOLS} returned. The user's rules for that tool apply.",
    # What it may do depends on the tool that it calls, so it claims the worst.
    annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "arguments": {"type": "object", "description": f"As the input schema that {DESCRIBE_TOOL} returned."},
        },
        "required": ["name"],
    },
)


class MetaTools:
    """Answers ``tools/list`` and ``tools/call`` where clients do not see all tools as they are.

    Args:
        calls: Lists and calls the tools of the servers.
        definitions: The tools of the servers.
        servers: The servers, some of which may be starting.
        listing: Which tools clients see; not `ToolListing.ALL`.
        max_bytes: The size of all definitions above which `ToolListing.AUTO` is a search.
        code: Runs programs, with `ToolListing.CODE`; None if clients have no ``run_code``.
    """

    def __init__(
        self,
        calls: ToolCalls,
        definitions: ToolDefinitions,
        servers: ServerManager,
        listing: ToolListing,
        max_bytes: int,
        code: CodeCalls | None = None,
    ) -> None:
        self._calls, self._definitions, self._servers = calls, definitions, servers
        self._listing, self._max_bytes, self._code = listing, max_bytes, code
        self._snapshot: _Snapshot | None = None
        own = (self._build_search_tool(), _DESCRIBE, _CALL)
        self._checks = {tool.name: ArgumentCheck(tool.input_schema) for tool in own}

    @property
    def instructions(self) -> str | None:
        """What the model is told at the start; None if it may see all tools."""
        if self._code is not None:
            return _CODE_INSTRUCTIONS
        return _INSTRUCTIONS if self._listing in (ToolListing.SEARCH, ToolListing.CODE) else None

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "tools/list": (PaginatedRequestParams, self.list_tools),
            "tools/call": (CallToolRequestParams, self.call_tool),
        }

    async def list_tools(
        self, context: ServerRequestContext[Any, Any], params: PaginatedRequestParams
    ) -> ListToolsResult:
        """Return the tools that a client sees, on one page: all, or those that find the others and a few more."""
        result = await self._calls.list_tools(context, params)
        return result.model_copy(update={"tools": list(self.select(result.tools, self._definitions.current))})

    def select(self, tools: Sequence[Tool], definitions: Definitions) -> Sequence[Tool]:
        """Return the tools that are listed: all, or those that find the others, and those of pinned servers.

        Args:
            tools: All tools that a client may see.
            definitions: The tools of the servers.
        """
        if not self._is_searched(definitions):
            return tools
        listed = definitions.listed
        kept = [tool for tool in tools if tool.name not in listed or _is_pinned(listed[tool.name])]
        return (*self._list_own_tools(), *kept)

    def _is_searched(self, definitions: Definitions) -> bool:
        if self._listing is ToolListing.AUTO:
            return self._find_snapshot(definitions).size > self._max_bytes
        return True

    def find_input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool as its clients know it; None if there is no such tool."""
        own = next((tool for tool in self._list_own_tools() if tool.name == name), None)
        return self._definitions.find_input_schema(name) if own is None else own.input_schema

    def _list_own_tools(self) -> list[Tool]:
        code = [] if self._code is None else [CODE_TOOL]
        return [self._build_search_tool(), _DESCRIBE, _CALL, *code]

    def _build_search_tool(self) -> Tool:
        names = sorted(name for name, server in self._servers.items() if server.state is not ServerState.DISABLED)
        description = (
            "Finds tools of the connected servers by what they do. With a server and no query it lists the tools of "
            f"that server. Servers: {_join(names, _MAX_SERVERS)}."
        )
        properties = {
            "query": {"type": "string", "description": "The action, the thing and the service: create github issue."},
            "server": {"type": "string", "description": "Only tools of this server; or what kind of server has them."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": FOUND_AT_ONCE},
        }
        schema = {"type": "object", "properties": properties}
        return Tool(name=SEARCH_TOOLS, description=description, input_schema=schema, annotations=_ONLY_READS)

    def _find_snapshot(self, definitions: Definitions) -> _Snapshot:
        if self._snapshot is None or self._snapshot.definitions is not definitions:
            self._snapshot = _Snapshot(definitions)
        return self._snapshot

    async def call_tool(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> HandlerResult:
        """Answer a call of one of the tools here, or call the tool of a server.

        Raises:
            MCPError: There is no such tool, or the server answered with an error.
        """
        check = self._checks.get(params.name)
        if self._code is not None and params.name == RUN_CODE:
            return await self._code.call_tool(context, params)
        if check is None:
            return await self._calls.call_tool(context, params)
        arguments = _read_arguments(params)
        if problems := list(check.find_problems(arguments)):
            return _fail(f"The arguments do not fit: {'; '.join(problems)}.")
        if params.name == SEARCH_TOOLS:
            return _reply(self._search(arguments.get("query", ""), arguments.get("server", ""), arguments.get("limit")))
        if params.name == DESCRIBE_TOOL:
            for name in arguments["names"]:
                await self._definitions.wait_for(name)
            return self._describe(arguments["names"])
        if (name := arguments["name"]) not in self._definitions.current.listed:
            await self._definitions.wait_for(name)
        if name not in self._definitions.current.listed:
            return _fail(self._describe_unknown(name))
        inner = params.model_copy(update={"name": name, "arguments": arguments.get("arguments") or {}})
        return await self._calls.call_tool(context, inner)

    def _search(self, query: str, server: str, limit: int | None) -> str:
        """Return the tools that match a query, as text."""
        snapshot = self._find_snapshot(self._definitions.review_withheld())
        counts = snapshot.count_tools()
        missing = self._calls.describe_missing_servers().strip()
        end = f"\n{missing}" if missing else ""
        if server and server not in counts and (server in self._servers or not query.strip()):
            known = _join((f"{name} ({count})" for name, count in counts.items()), _MAX_SERVERS)
            return f"No tools of a server {server[:60]!r} are known. Servers with tools: {known}.{end}"
        if not query.strip() and not server:
            known = _join((f"{name} ({count})" for name, count in counts.items()), _MAX_SERVERS)
            return f"There are {len(snapshot.specs)} tools. Servers: {known}.{end}"
        found, less_likely = snapshot.search(query, server, limit or FOUND_AT_ONCE)
        if not found:
            return f"No tool was found for {query[:100]!r}. Use other words for what it should do.{end}"
        lines = [f"- {_describe_briefly(tool)}" for tool in found]
        head = f"{len(found)} of {counts.get(server, len(snapshot.specs))} tools; {CALL_TOOL} calls them:"
        return "\n".join([head, *lines, *describe_less_likely(tool.name for tool in less_likely)]) + end

    def _describe(self, names: Sequence[str]) -> CallToolResult:
        tools = {tool.name: tool for tool in self._definitions.review_withheld().tools}
        declared = self._declare(names)
        texts = [
            declared.get(name) or (_to_text(tools[name]) if name in tools else self._describe_unknown(name))
            for name in names
        ]
        return CallToolResult(
            content=[TextContent(text=text) for text in texts], is_error=all(name not in tools for name in names)
        )

    def _declare(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return tools as functions that programs call; no others than those which programs can call."""
        if self._code is None:
            return {}
        current = self._definitions.current
        specs = [spec for spec in self._find_snapshot(current).specs if spec.name in names]
        declared = self._code.declare([spec for spec in specs if spec.name not in current.withheld])
        return {
            spec.name: f"{declared[spec.name]}\n\n{sanitize(spec.description[:MAX_DEFINITION])}".rstrip()
            if len(spec.description) > MAX_DESCRIPTION
            else declared[spec.name]
            for spec in specs
            if spec.name in declared
        }

    def _describe_unknown(self, name: str) -> str:
        nearest = find_nearest_by_words(name, self._definitions.current.listed)
        proposal = f"Did you mean {nearest!r}?" if nearest else f"{SEARCH_TOOLS} finds the tools that there are."
        return f"There is no tool {name[:60]!r}. {proposal}{self._calls.describe_missing_servers()}"


class _Snapshot:
    """The tools at one moment: their size, and an index, which is made for the first search."""

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        # What is listed, not what the server says: a definition that is withheld must not be found by its words.
        self.specs = [
            ToolSpec(
                name=tool.name,
                description=tool.description or "",
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                server=definitions.listed[tool.name].connection.name,
                tool=definitions.listed[tool.name].tool.name,
                title=tool.title,
            )
            for tool in definitions.model_tools
        ]

    @cached_property
    def size(self) -> int:
        """The bytes of all definitions."""
        tools = self.definitions.model_tools
        return sum(len(tool.model_dump_json(by_alias=True, exclude_none=True).encode()) for tool in tools)

    @cached_property
    def _index(self) -> SearchIndex:
        return SearchIndex(self.specs)

    def count_tools(self) -> Mapping[str, int]:
        """Return the number of tools by server."""
        counts: dict[str, int] = {}
        for spec in self.specs:
            counts[spec.server] = counts.get(spec.server, 0) + 1
        return dict(sorted(counts.items()))

    def search(self, query: str, server: str, limit: int) -> tuple[Sequence[ToolSpec], Sequence[ToolSpec]]:
        """Return the tools that match a query, the best first, and those after them to name.

        Without a query, the tools are the first of the server.

        Args:
            query: What the tools should do.
            server: The server that the tools are of; or, if there is none of this name, what kind of server.
            limit: Maximum number of tools.
        """
        if not query.strip():
            of_server = [spec for spec in self.specs if spec.server == server]
            return of_server[:MAX_FOUND], of_server[MAX_FOUND:]
        is_known = any(spec.server == server for spec in self.specs)
        ranked = self._index.search(query, limit + MAX_NAMED, server=server, only=server if is_known else None)
        return ranked[:limit], ranked[limit:]


def _is_pinned(listed: ListedTool) -> bool:
    settings = listed.connection.settings
    return settings is not None and settings.pinned


def _read_arguments(params: CallToolRequestParams) -> dict[str, Any]:
    """Return the arguments of a call of a tool here; models write nested arguments as a text now and then."""
    arguments = dict(params.arguments or {})
    inner = arguments.get("arguments")
    if params.name == CALL_TOOL and isinstance(inner, str) and (parsed := parse_arguments(inner)) is not None:
        arguments["arguments"] = parsed
    return arguments


def _describe_briefly(tool: ToolSpec) -> str:
    """Return a tool with its parameters and the start of its description, in one line."""
    properties, required = tool.input_schema.get("properties"), tool.input_schema.get("required")
    names = [str(name) for name in properties] if isinstance(properties, Mapping) else []
    needed = required if isinstance(required, list) else []
    shown = [f"{name[:_MAX_NAME]}{'' if name in needed else '?'}" for name in names[:_MAX_PARAMETERS]]
    parameters = ", ".join(shown + (["…"] if len(names) > _MAX_PARAMETERS else []))
    description = " ".join(tool.description.split())[:_MAX_LINE]
    return sanitize(f"{tool.name}({parameters}): {description}")


def _to_text(tool: Tool) -> str:
    """Return the definition of a tool for a model, at most about `MAX_DEFINITION` characters."""
    definition = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"icons", "meta"})
    text = json.dumps(definition, ensure_ascii=False)
    if len(text) > MAX_DEFINITION and definition.pop("outputSchema", None) is not None:
        text = json.dumps(definition, ensure_ascii=False)
    if len(text) > MAX_DEFINITION:
        text = f"{text[:MAX_DEFINITION]}\n[… {len(text) - MAX_DEFINITION:,} more characters are left out here …]"
    return sanitize(text)


def _join(names: Iterable[str], max_chars: int) -> str:
    text = ", ".join(names)
    return text if len(text) <= max_chars else f"{text[:max_chars].rpartition(', ')[0]}, …"


def _reply(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])


def _fail(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)

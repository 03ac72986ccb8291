"""Two tools of the host's own, for models that may look for themselves into what servers have to read.

They are on offer where the configuration says so of a server (``"resources": "tools"``): resources are for the user to
choose, unless the user says otherwise. That is permission enough; a deny of one of their names takes it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dial_client.errors import ServerError
from dial_client.messages import ToolSpec
from dial_client.servers.connection import Connection
from dial_client.servers.resources import Resource, Resources, ResourceTemplate
from dial_client.servers.session_calls import OnProgress
from dial_client.servers.status import ServerState
from dial_client.text.safe_text import one_line
from dial_client.tools.catalog import LIST_RESOURCES, READ_RESOURCE, Route

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MAX_ABOUT = 200
"""Characters of what is said about one resource."""


class ResourceTools:
    """Answers `list_resources` and `read_resource`, as a connection answers a server's tools.

    Args:
        resources: of all servers.
        connections: to them; their settings say which of them the model may look into.
        for_all: it may look into all of them.
    """

    name = ""
    settings = None

    def __init__(self, resources: Resources, connections: Mapping[str, Connection], *, for_all: bool = False) -> None:
        self._resources = resources
        self._connections = connections
        self._for_all = for_all

    def routes(self) -> tuple[Route, ...]:
        """Give the tools with the way to them; none where there is no server to look into."""
        servers = sorted(self._servers())
        return tuple(Route(self, spec) for spec in _specs(servers)) if servers else ()

    def _servers(self) -> list[str]:
        """Give the servers the model may look into."""
        asked = (one for one in self._connections.values() if one.status.state is not ServerState.DISABLED)
        return [one.name for one in asked if self._for_all or (one.settings and one.settings.resources == "tools")]

    def untrusted(self, server: object = None) -> list[str]:
        """Return the servers that bring in untrusted content, among all that can be looked into or the one named."""
        found = (name for name in self._servers() if server is None or name == server)
        settings = {name: self._connections[name].settings for name in found}
        return [name for name, entry in settings.items() if entry is not None and entry.untrusted]

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:  # noqa: ARG002
        """Answer a call.

        Raises:
            ServerError: there is no such resource, or its server is not available.
        """
        from mcp_types import CallToolResult

        asked = arguments.get("server")
        if asked is not None and asked not in self._servers():
            raise ServerError(str(asked), "there is no such server")
        blocks = await (self._list(asked) if tool == LIST_RESOURCES else self._read(asked or "", arguments["uri"]))
        return CallToolResult(content=blocks)

    async def _list(self, server: str | None) -> list[ContentBlock]:
        from mcp_types import TextContent

        chosen = {server} if server else set(self._servers())
        # One of them: a server that fails is named. All: it must not spoil the others' lists.
        resources = [one for one in await self._resources.list(server) if one.server in chosen]
        templates = [one for one in await self._resources.templates(server) if one.server in chosen]
        lines = [*map(_line, resources), *map(_line, templates)]
        return [TextContent(type="text", text="\n".join(lines) or "There are no resources.")]

    async def _read(self, server: str, uri: str) -> list[ContentBlock]:
        from mcp_types import BlobResourceContents, EmbeddedResource, TextResourceContents

        blocks: list[ContentBlock] = []
        for one in await self._resources.read(server, uri):
            if one.text is not None:
                resource: Any = TextResourceContents(uri=one.uri, mime_type=one.mime_type, text=one.text)
            else:
                resource = BlobResourceContents(uri=one.uri, mime_type=one.mime_type, blob=one.blob or "")
            blocks.append(EmbeddedResource(type="resource", resource=resource))
        return blocks


def _line(one: Resource | ResourceTemplate) -> str:
    """Say what there is. The URI is whole: the model has to write it."""
    if isinstance(one, ResourceTemplate):
        uri, extra = one.uri_template, f"put in {', '.join(one.variables)}" if one.variables else None
    else:
        uri, extra = one.uri, None if one.size is None else f"{one.size:,} bytes"
    about = ", ".join(part for part in (one.title or one.name, one.mime_type, extra) if part)
    more = f": {one.description}" if one.description else ""
    return f"- {one.server}: {uri} ({one_line(about + more, MAX_ABOUT)})"


def _specs(servers: list[str]) -> tuple[ToolSpec, ToolSpec]:
    server = {"type": "string", "enum": servers}
    of_one = {"type": "object", "properties": {"server": server}}
    uri = {"type": "string", "description": "As list_resources gives it, or a template of it filled in."}
    one = {"type": "object", "properties": {"server": server, "uri": uri}, "required": ["server", "uri"]}
    return (
        _spec(LIST_RESOURCES, "Lists what there is to read at the servers: files, records, documents.", of_one),
        _spec(READ_RESOURCE, "Reads a resource of a server.", one),
    )


def _spec(name: str, about: str, schema: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(name, about, schema, tool=name, original_schema=schema, read_only=True, idempotent=True)

"""Two of the host's own tools, which list and read the resources of servers for the model.

They are offered if the configuration enables them for a server (``"resources": "tools"``), because by default only the
user chooses resources. Their calls need no approval; a deny rule with the name of one of them denies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.messages.errors import ServerError
from dial_client.messages.message import Part, TextPart, ToolCallResult, ToolSpec
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.servers.connection import Connection
from dial_client.servers.resources import Resource, Resources, ResourceTemplate
from dial_client.servers.session import OnCallProgress
from dial_client.servers.status import ServerState
from dial_client.tools.catalog import LIST_RESOURCES, READ_RESOURCE, Route, build_host_tool
from dial_client.tools.result_content import convert_blob, join_parts

# Maximum characters of the description of one resource.
MAX_ABOUT = 200


class ResourceTools:
    """The backend of the tools `list_resources` and `read_resource`.

    Args:
        resources: The resources of all servers.
        connections: The connections to the servers; their settings enable resources for the model.
        for_all: Whether the model may read the resources of all servers, whatever their settings.
    """

    name = ""
    settings = None

    def __init__(self, resources: Resources, connections: Mapping[str, Connection], *, for_all: bool = False) -> None:
        self._resources = resources
        self._connections = connections
        self._for_all = for_all

    def list_routes(self) -> tuple[Route, ...]:
        """Return the routes of both tools; empty if the model may read the resources of no server."""
        servers = sorted(self._list_servers())
        return tuple(Route(self, spec) for spec in _build_specs(servers)) if servers else ()

    def _list_servers(self) -> list[str]:
        """Return the names of the servers whose resources the model may read."""
        return [
            server.name
            for server in self._connections.values()
            if server.summary.state is not ServerState.DISABLED
            and (self._for_all or (server.settings is not None and server.settings.resources == "tools"))
        ]

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return the first server with untrusted content of those that a call reads: the one it names, or all."""
        server = arguments.get("server")
        entries = {name: self._connections[name].settings for name in self._list_servers() if server in (None, name)}
        return next((name for name, entry in entries.items() if entry is not None and entry.untrusted), "")

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> ToolCallResult:  # noqa: ARG002
        """Run a call of one of the tools, and return its result without an id.

        Raises:
            ServerError: There is no such resource, or its server is not available.
        """
        server = arguments.get("server")
        if server is not None and server not in self._list_servers():
            raise ServerError(str(server), "there is no such server")
        parts = await (self._list(server) if tool == LIST_RESOURCES else self._read(server or "", arguments["uri"]))
        return ToolCallResult("", success=True, content=join_parts(parts))

    async def _list(self, server: str | None) -> list[Part]:
        servers = {server} if server else set(self._list_servers())
        # If one server is named, its failure is an error. If all are listed, a failed server is left out.
        resources = [resource for resource in await self._resources.list(server) if resource.server in servers]
        templates = [template for template in await self._resources.templates(server) if template.server in servers]
        lines = [*map(_describe, resources), *map(_describe, templates)]
        return [TextPart(sanitize("\n".join(lines) or "There are no resources."))]

    async def _read(self, server: str, uri: str) -> list[Part]:
        return [
            convert_blob(content.uri, content.mime_type or "", content.blob or "")
            if content.text is None
            else TextPart(sanitize(f"[resource {content.uri}]\n{content.text}"))
            for content in await self._resources.read(server, uri)
        ]


def _describe(resource: Resource | ResourceTemplate) -> str:
    """Return a line about a resource, with its full URI, which the model has to repeat."""
    if isinstance(resource, ResourceTemplate):
        uri = resource.uri_template
        extra = f"put in {', '.join(resource.variables)}" if resource.variables else None
    else:
        uri, extra = resource.uri, None if resource.size is None else f"{resource.size:,} bytes"
    about = ", ".join(part for part in (resource.title or resource.name, resource.mime_type, extra) if part)
    description = f": {resource.description}" if resource.description else ""
    return f"- {resource.server}: {uri} ({to_one_line(about + description, MAX_ABOUT)})"


def _build_specs(servers: list[str]) -> tuple[ToolSpec, ToolSpec]:
    server = {"type": "string", "enum": servers}
    of_server = {"type": "object", "properties": {"server": server}}
    uri = {"type": "string", "description": "As list_resources gives it, or a template of it filled in."}
    of_resource = {"type": "object", "properties": {"server": server, "uri": uri}, "required": ["server", "uri"]}
    about_list = "Lists what there is to read at the servers: files, records, documents."
    return (
        build_host_tool(LIST_RESOURCES, about_list, of_server),
        build_host_tool(READ_RESOURCE, "Reads a resource of a server.", of_resource),
    )

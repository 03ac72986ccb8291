"""Resources of servers. The user chooses among them, not the model (MCP, "Resources")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.messages.icons import Icon, read_icons
from dial_client.runtime.safe_text import sanitize
from dial_client.servers.connection import Connection
from dial_client.servers.list_cache import MAX_DESCRIPTION, ListCache, find_connection, wait_for_connection
from dial_client.servers.notifications import Listing, Subscription
from dial_client.servers.status import AddNote
from dial_client.servers.tool_listing import read_all_pages

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

READ_SECONDS = 60.0
"""Timeout in seconds for reading a resource of a server without ``toolTimeout``."""
COMPLETE_SECONDS = 10.0
"""Timeout in seconds for completions, which are for a user who is typing."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that a server lists."""

    server: str
    """The server's name in the configuration."""
    uri: str
    """The unchanged URI of the server; make it safe before showing it."""
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    """The size in bytes; None if the server does not state it."""
    icons: tuple[Icon, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {
            "server": self.server,
            "uri": self.uri,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mime_type": self.mime_type,
            "size": self.size,
            "icons": [icon.to_dict() for icon in self.icons],
        }


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """A template (RFC 6570) for the URIs of resources of one kind."""

    server: str
    """The server's name in the configuration."""
    uri_template: str
    """The unchanged template of the server."""
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    icons: tuple[Icon, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the template's variables; empty if the template cannot be parsed."""
        template = self._parse()
        return tuple(template.variable_names) if template is not None else ()

    def expand(self, values: Mapping[str, str | Sequence[str]]) -> str:
        """Return the URI for these values; a variable without a value expands to nothing (RFC 6570, 3.2.1).

        Raises:
            ValueError: The template cannot be parsed.
        """
        template = self._parse()
        if template is None:
            raise ValueError(f"not a valid URI template: {self.uri_template!r}")
        return str(template.expand(values))

    def _parse(self) -> Any:
        from mcp.shared.uri_template import UriTemplate

        try:
            return UriTemplate.parse(self.uri_template)
        except ValueError:
            return None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {
            "server": self.server,
            "uri_template": self.uri_template,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mime_type": self.mime_type,
            "variables": list(self.variables),
            "icons": [icon.to_dict() for icon in self.icons],
        }


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """The content of a resource: text or bytes. Reading a resource may return several, for example for a folder."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    """The unchanged text of the server; make it safe before showing it."""
    blob: str | None = None
    """The bytes in base64, for binary content."""


class Resources:
    """The resources of all servers: ``dial.resources``."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._connections = connections
        self._resources = ListCache(connections, Listing.RESOURCES, _read_resources)
        self._templates = ListCache(connections, Listing.RESOURCES, _read_templates)

    async def list(self, server: str | None = None) -> tuple[Resource, ...]:
        """Return the resources of a server, or for None the resources of all servers, leaving out servers that fail.

        A server without resources has an empty list. Lists are cached until the server announces a change, or for a
        minute if the server does not announce changes.

        Raises:
            ServerError: There is no such server, or its list cannot be read.
        """
        return await self._resources.get(server)

    async def templates(self, server: str | None = None) -> tuple[ResourceTemplate, ...]:
        """Return the resource templates of a server, or for None of all servers; cached like `list`."""
        return await self._templates.get(server)

    async def read(self, server: str, uri: str) -> tuple[ResourceContent, ...]:
        """Read a resource, whether or not the server lists it.

        Raises:
            ServerGone: The server is not available.
            ServerError: There is no such server or resource, or the server did not answer in time.
        """

        async def request(client: Client) -> tuple[ResourceContent, ...]:
            read = await client.read_resource(uri)
            return tuple(_to_content(content) for content in read.contents)

        connection = await wait_for_connection(self._connections, server)
        return await connection.ask(request, find_read_timeout(connection))

    def is_untrusted(self, server: str) -> bool:
        """Return True if the configuration marks the content of a server as untrusted."""
        connection = self._connections.get(server)
        settings = connection.settings if connection is not None else None
        return settings is not None and bool(settings.untrusted)

    def subscribe(self, server: str, uri: str) -> Subscription:
        """Return a subscription to a resource: ``async with … as changes``, then ``async for uri in changes``.

        `Subscription` describes the values and errors.

        Raises:
            ServerError: There is no such server.
        """
        connection = find_connection(self._connections, server)
        return Subscription(server, uri, connection.notifications, connection.open_session)

    async def complete(
        self, server: str, template: str, variable: str, typed: str = "", variables: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """Return at most 100 completions of a template's variable; empty if the server offers none.

        Args:
            server: The name of the server that has the template.
            template: The template itself (`ResourceTemplate.uri_template`).
            variable: The name of the variable to complete.
            typed: The beginning of the variable's value.
            variables: The values of other variables.

        Raises:
            ServerError: There is no such server, it refused, or it did not answer in time.
        """
        from mcp_types import ResourceTemplateReference

        reference = ResourceTemplateReference(type="ref/resource", uri=template)
        connection = await wait_for_connection(self._connections, server)
        return await complete_argument(connection, reference, variable, typed, variables)


async def complete_argument(
    connection: Connection,
    reference: mcp_types.ResourceTemplateReference | mcp_types.PromptReference,
    argument: str,
    typed: str,
    context: Mapping[str, str] | None,
) -> tuple[str, ...]:
    """Return completions of an argument; empty if the server offers none.

    Raises:
        ServerError: The server refused, or did not answer in time.
    """

    async def request(client: Client) -> tuple[str, ...]:
        from mcp import MCPError
        from mcp_types import METHOD_NOT_FOUND

        try:
            prefix = {"name": argument, "value": typed}
            found = await client.complete(reference, prefix, dict(context) if context else None)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                return ()
            raise
        return tuple(found.completion.values)

    return await connection.ask(request, COMPLETE_SECONDS)


def find_read_timeout(connection: Connection) -> float:
    """Return the timeout in seconds for reading a resource or a prompt of a server."""
    tool_timeout = connection.settings.tool_timeout if connection.settings is not None else None
    return READ_SECONDS if tool_timeout is None else tool_timeout


def clean_text(text: str | None) -> str:
    """Return a server's text without unsafe characters, cut to `MAX_DESCRIPTION` characters."""
    return sanitize((text or "")[:MAX_DESCRIPTION]).strip()


def _to_content(content: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> ResourceContent:
    from mcp_types import TextResourceContents

    if isinstance(content, TextResourceContents):
        return ResourceContent(content.uri, content.mime_type, text=content.text)
    return ResourceContent(content.uri, content.mime_type, blob=content.blob)


async def _read_resources(server: str, client: Client, note: AddNote) -> tuple[Resource, ...]:
    async def request_page(cursor: str | None) -> tuple[Sequence[Resource], str | None]:
        read = await client.list_resources(cursor=cursor)
        found = [
            Resource(
                server=server,
                uri=resource.uri,
                name=clean_text(resource.name),
                title=clean_text(resource.title) or None,
                description=clean_text(resource.description),
                mime_type=clean_text(resource.mime_type) or None,
                size=resource.size,
                icons=read_icons(resource.icons),
            )
            for resource in read.resources
        ]
        return found, read.next_cursor

    return await read_all_pages("resources", request_page, lambda resource: resource.uri, note)


async def _read_templates(server: str, client: Client, note: AddNote) -> tuple[ResourceTemplate, ...]:
    async def request_page(cursor: str | None) -> tuple[Sequence[ResourceTemplate], str | None]:
        read = await client.list_resource_templates(cursor=cursor)
        found = [
            ResourceTemplate(
                server=server,
                uri_template=template.uri_template,
                name=clean_text(template.name),
                title=clean_text(template.title) or None,
                description=clean_text(template.description),
                mime_type=clean_text(template.mime_type) or None,
                icons=read_icons(template.icons),
            )
            for template in read.resource_templates
        ]
        return found, read.next_cursor

    return await read_all_pages("resource templates", request_page, lambda template: template.uri_template, note)

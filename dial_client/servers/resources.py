"""Resources: what servers have to read. They are for the user to choose from, not for the model (MCP, "Resources")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.icons import Icon, icons_of
from dial_client.servers.connection import Connection
from dial_client.servers.list_cache import MAX_WORDS, ListCache, connection_to, ready
from dial_client.servers.notifications import Listing, Subscription
from dial_client.servers.tool_listing import Note, all_pages
from dial_client.text.safe_text import safe

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

READ_SECONDS = 60.0
"""For a server whose own ``toolTimeout`` is not set."""
COMPLETE_SECONDS = 10.0
"""Completions are for somebody who types: later they are of no use."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that a server lists."""

    server: str
    """The server's name in the configuration."""
    uri: str
    """As the server writes it: what is shown of it has to be made safe."""
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    """Bytes, where the server says."""
    icons: tuple[Icon, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give JSON types only."""
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
    """Resources of a kind, whose URIs are made of a template (RFC 6570)."""

    server: str
    uri_template: str
    """As the server writes it."""
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    icons: tuple[Icon, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """What has to be put in; none where the template cannot be understood."""
        template = self._parsed()
        return tuple(template.variable_names) if template is not None else ()

    def expand(self, values: Mapping[str, str | Sequence[str]]) -> str:
        """Give the URI with these values put in; what is not given is left out (RFC 6570, 3.2.1).

        Raises:
            ValueError: the template cannot be understood.
        """
        template = self._parsed()
        if template is None:
            raise ValueError(f"not a URI template that can be understood: {self.uri_template!r}")
        return str(template.expand(values))

    def _parsed(self) -> Any:
        from mcp.shared.uri_template import UriTemplate

        try:
            return UriTemplate.parse(self.uri_template)
        except ValueError:
            return None

    def to_dict(self) -> dict[str, Any]:
        """Give JSON types only."""
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
    """What was read: text, or bytes. Reading one resource may give several, those in a folder for example."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    """As the server gave it: what is shown of it has to be made safe."""
    blob: str | None = None
    """The bytes in base64, where it is no text."""


class Resources:
    """The resources of all servers: ``dial.resources``."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._connections = connections
        self._listed = ListCache(connections, Listing.RESOURCES, _read_resources)
        self._templates = ListCache(connections, Listing.RESOURCES, _read_templates)

    async def list(self, server: str | None = None) -> tuple[Resource, ...]:
        """Give the resources of a server; without one those of all, of which one that fails is left out.

        A server that has none, or does not know what resources are, has an empty list. A list is read once, and again
        when the server says that it changed; a minute later where it would not say so.

        Raises:
            ServerError: there is no such server, or its list cannot be read.
        """
        return await self._listed.of(server)

    async def templates(self, server: str | None = None) -> tuple[ResourceTemplate, ...]:
        """Give the templates of a server, or of all; as `list`."""
        return await self._templates.of(server)

    async def read(self, server: str, uri: str) -> tuple[ResourceContent, ...]:
        """Read a resource, listed or not.

        Raises:
            ServerGone: the server is not available.
            ServerError: there is no such server or resource, or it was not there in time.
        """

        async def request(client: Client) -> tuple[ResourceContent, ...]:
            read = await client.read_resource(uri)
            return tuple(
                ResourceContent(one.uri, one.mime_type, getattr(one, "text", None), getattr(one, "blob", None))
                for one in read.contents
            )

        connection = await ready(self._connections, server)
        return await connection.ask(request, seconds_for(connection))

    def is_untrusted(self, server: str) -> bool:
        """Return whether what a server has to read is marked as untrusted content."""
        connection = self._connections.get(server)
        settings = connection.settings if connection is not None else None
        return settings is not None and bool(settings.untrusted)

    def subscribe(self, server: str, uri: str) -> Subscription:
        """Hear of changes of a resource: ``async with … as changes``, then ``async for uri in changes``.

        `Subscription` says what it gives and raises.

        Raises:
            ServerError: there is no such server.
        """
        connection = connection_to(self._connections, server)
        return Subscription(server, uri, connection.notifications, connection.open_session)

    async def complete(
        self, server: str, template: str, variable: str, typed: str = "", given: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """Give what a variable of a template may be, at most a hundred values; none where the server offers none.

        Args:
            server: whose template it is.
            template: the template itself (`ResourceTemplate.uri_template`).
            variable: to be completed.
            typed: the beginning of its value.
            given: the values of other variables.

        Raises:
            ServerError: there is no such server, or it refused.
        """
        from mcp_types import ResourceTemplateReference

        reference = ResourceTemplateReference(type="ref/resource", uri=template)
        connection = await ready(self._connections, server)
        return await completions(connection, reference, variable, typed, given)


async def completions(
    connection: Connection,
    reference: mcp_types.ResourceTemplateReference | mcp_types.PromptReference,
    argument: str,
    typed: str,
    given: Mapping[str, str] | None,
) -> tuple[str, ...]:
    """Ask for the values of an argument; none where the server does not complete.

    Raises:
        ServerError: it refused, or gave no answer in time.
    """

    async def request(client: Client) -> tuple[str, ...]:
        from mcp import MCPError
        from mcp_types import METHOD_NOT_FOUND

        try:
            found = await client.complete(reference, {"name": argument, "value": typed}, dict(given) if given else None)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                return ()
            raise
        return tuple(found.completion.values)

    return await connection.ask(request, COMPLETE_SECONDS)


def seconds_for(connection: Connection) -> float:
    """Give the seconds in which a server has to have a resource or a prompt ready."""
    own = connection.settings.tool_timeout if connection.settings is not None else None
    return READ_SECONDS if own is None else own


def words(text: str | None) -> str:
    """Give what a server says about something of its own: safe, and bounded."""
    return safe((text or "")[:MAX_WORDS]).strip()


async def _read_resources(server: str, client: Client, note: Note) -> tuple[Resource, ...]:
    async def page(cursor: str | None) -> tuple[Sequence[Resource], str | None]:
        read = await client.list_resources(cursor=cursor)
        found = [
            Resource(
                server=server,
                uri=one.uri,
                name=words(one.name),
                title=words(one.title) or None,
                description=words(one.description),
                mime_type=words(one.mime_type) or None,
                size=one.size,
                icons=icons_of(one.icons),
            )
            for one in read.resources
        ]
        return found, read.next_cursor

    return await all_pages("resources", page, lambda resource: resource.uri, note)


async def _read_templates(server: str, client: Client, note: Note) -> tuple[ResourceTemplate, ...]:
    async def page(cursor: str | None) -> tuple[Sequence[ResourceTemplate], str | None]:
        read = await client.list_resource_templates(cursor=cursor)
        found = [
            ResourceTemplate(
                server=server,
                uri_template=one.uri_template,
                name=words(one.name),
                title=words(one.title) or None,
                description=words(one.description),
                mime_type=words(one.mime_type) or None,
                icons=icons_of(one.icons),
            )
            for one in read.resource_templates
        ]
        return found, read.next_cursor

    return await all_pages("resource templates", page, lambda template: template.uri_template, note)

"""Resources of servers. The user chooses among them, not the model (MCP, "Resources").

Resources            the resources of all servers: lists, contents, changes, completions
ListCache            cached lists, here and of prompts; read again when a server announces a change
read_app_resource    the HTML of an MCP App, with the origins it may reach
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio

from dial_client.messages.errors import ServerError
from dial_client.messages.mcp_apps import MAX_HTML, MIME_TYPE, AppResource, is_app_uri, parse_resource
from dial_client.messages.message import Icon, read_icons
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import (
    CACHE_SECONDS,
    LIST_SECONDS,
    Listing,
    Subscription,
    find_capabilities,
    read_all_pages,
)
from dial_client.servers.session import Answer

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

    _Contents = mcp_types.TextResourceContents | mcp_types.BlobResourceContents

log = get_logger(__name__)

Item = TypeVar("Item")

# Characters of a description that are kept.
MAX_DESCRIPTION = 8_000
# Timeout in seconds for reading a resource or a prompt of a server without ``toolTimeout``.
READ_SECONDS = 60.0
# Timeout in seconds for completions, which are for a user who is typing.
COMPLETE_SECONDS = 10.0


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
        return asdict(self) | {"icons": [icon.to_dict() for icon in self.icons]}


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
        icons = [icon.to_dict() for icon in self.icons]
        return asdict(self) | {"variables": list(self.variables), "icons": icons}


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
        self._resources = ListCache(connections, Listing.RESOURCES, "resources", "uri", _to_resource)
        self._templates = ListCache(connections, Listing.RESOURCES, "resource_templates", "uri_template", _to_template)

    async def list(self, server: str | None = None) -> tuple[Resource, ...]:
        """Return the resources of a server, or for None the resources of all servers, leaving out servers that fail.

        A server without resources has an empty list. Lists are cached for the time that the server states
        (``ttlMs``), or until it announces a change, or for a minute if it does neither.

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
        read = await ask_server(self._connections, server, lambda client: client.read_resource(uri))
        return tuple(
            ResourceContent(part.uri, part.mime_type, getattr(part, "text", None), getattr(part, "blob", None))
            for part in read.contents
        )

    def is_untrusted(self, server: str) -> bool:
        """Return True if the configuration marks the content of a server as untrusted."""
        connection = self._connections.get(server)
        return bool(connection is not None and connection.settings is not None and connection.settings.untrusted)

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
        return await complete_argument(self._connections, server, reference, variable, typed, variables)


def find_connection(connections: Mapping[str, Connection], server: str) -> Connection:
    """Return the connection to a server.

    Raises:
        ServerError: There is no such server.
    """
    connection = connections.get(server)
    if connection is None:
        raise ServerError(server, "there is no such server")
    return connection


async def wait_for_connection(connections: Mapping[str, Connection], server: str) -> Connection:
    """Return the connection to a server, after its first start has succeeded or failed.

    Raises:
        ServerError: There is no such server.
    """
    connection = find_connection(connections, server)
    await connection.wait_settled()
    return connection


@dataclass(frozen=True, eq=False, slots=True)
class _CachedList(Generic[Item]):
    items: tuple[Item, ...]
    revision: int
    """The number of `Notifications.revisions` when the list was read."""
    until: float
    """The time of `anyio.current_time` when the list becomes stale."""


@dataclass(eq=False)
class ListCache(Generic[Item]):
    """The lists of one kind of all servers. A list is read when first needed, and again when it may have changed."""

    connections: Mapping[str, Connection]
    """The connections by server name."""
    listing: Listing
    items_name: str
    key_name: str
    """The names of `read_all_pages`."""
    convert: Callable[[str, Any], Item]
    """Returns an item of the list; called with the server's name and the SDK's item."""
    # The lists by connection, not by name: after removing a server, another server may have the same name.
    _cached: WeakKeyDictionary[Connection, _CachedList[Item]] = field(default_factory=WeakKeyDictionary)

    async def get(self, server: str | None) -> tuple[Item, ...]:
        """Return the list of one server, or for None the lists of all servers, leaving out servers that fail.

        Raises:
            ServerError: There is no such server, or its list cannot be read.
        """
        if server is not None:
            return await self.read(await wait_for_connection(self.connections, server))
        lists: dict[str, tuple[Item, ...]] = {}

        async def add(connection: Connection) -> None:
            try:
                await connection.wait_settled()
                lists[connection.name] = await self.read(connection)
            except ServerError as error:
                log.debug("not_listed", server=connection.name, what=self.listing.value, error=error.problem)

        async with anyio.create_task_group() as group:
            for connection in tuple(self.connections.values()):
                group.start_soon(add, connection)
        return tuple(item for name in self.connections for item in lists.get(name, ()))

    def find(self, connection: Connection) -> tuple[Item, ...]:
        """Return the list of a server as it was read last; empty if it was never read."""
        cached = self._cached.get(connection)
        return cached.items if cached is not None else ()

    def is_fresh(self, connection: Connection) -> bool:
        """Return True if the list was read, and has not changed since, as far as is known."""
        revision = connection.notifications.revisions[self.listing]
        cached = self._cached.get(connection)
        return cached is not None and cached.revision == revision and anyio.current_time() < cached.until

    async def read(self, connection: Connection) -> tuple[Item, ...]:
        """Return the list of a server, which is read unless it `is_fresh`.

        Raises:
            ServerError: The list cannot be read.
        """
        if self.is_fresh(connection):
            return self.find(connection)
        revision = connection.notifications.revisions[self.listing]
        seconds = CACHE_SECONDS

        async def request(client: Client) -> tuple[Item, ...]:
            nonlocal seconds
            capabilities = find_capabilities(client)
            capability = capabilities.get(self.listing)
            # If no capability is known (with a fixed protocol they are not requested), the server may have the list.
            if capability is None and capabilities:
                return ()
            listed = await read_all_pages(client, self.items_name, self.key_name, connection.add_note)
            is_announced = capability is not None and capability.list_changed and not connection.notifications.is_silent
            seconds = listed.seconds or (math.inf if is_announced else CACHE_SECONDS)
            return tuple(self.convert(connection.name, item) for item in listed.items)

        items = await connection.ask(request, LIST_SECONDS)
        self._cached[connection] = _CachedList(items, revision, anyio.current_time() + seconds)
        return items


async def complete_argument(
    connections: Mapping[str, Connection],
    server: str,
    reference: mcp_types.ResourceTemplateReference | mcp_types.PromptReference,
    argument: str,
    typed: str,
    context: Mapping[str, str] | None,
) -> tuple[str, ...]:
    """Return completions of an argument; empty if the server offers none.

    Raises:
        ServerError: There is no such server, it refused, or it did not answer in time.
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

    connection = await wait_for_connection(connections, server)
    return await connection.ask(request, COMPLETE_SECONDS)


async def ask_server(
    connections: Mapping[str, Connection], server: str, request: Callable[[Client], Awaitable[Answer]]
) -> Answer:
    """Send a request for a resource or a prompt to a server.

    Raises:
        ServerGone: The server is not available.
        ServerError: There is no such server, it refused, or it did not answer in time.
    """
    connection = await wait_for_connection(connections, server)
    timeout = connection.settings.tool_timeout if connection.settings is not None else None
    return await connection.ask(request, READ_SECONDS if timeout is None else timeout)


def clean_text(text: str | None) -> str:
    """Return a server's text without unsafe characters, cut to `MAX_DESCRIPTION` characters."""
    return sanitize((text or "")[:MAX_DESCRIPTION]).strip()


def _to_resource(server: str, item: mcp_types.Resource) -> Resource:
    return Resource(server=server, uri=item.uri, size=item.size, **_clean_fields(item))


def _to_template(server: str, item: mcp_types.ResourceTemplate) -> ResourceTemplate:
    return ResourceTemplate(server=server, uri_template=item.uri_template, **_clean_fields(item))


def _clean_fields(item: mcp_types.Resource | mcp_types.ResourceTemplate) -> dict[str, Any]:
    """Return the fields that resources and templates share, without unsafe characters."""
    return {
        "name": clean_text(item.name),
        "title": clean_text(item.title) or None,
        "description": clean_text(item.description),
        "mime_type": clean_text(item.mime_type) or None,
        "icons": read_icons(item.icons),
    }


async def read_app_resource(connections: Mapping[str, Connection], server: str, uri: str) -> AppResource:
    """Return the resource of an app.

    Its metadata is read from the content, or, if the content has no ``ui`` metadata, from the server's resource list.

    Raises:
        ServerGone: The server is not available.
        ServerError: There is no such server or resource, or the resource is not the HTML of an app.
    """
    if not is_app_uri(uri):
        raise ServerError(server, "the URI of an app must begin with ui://")

    async def request(client: Client) -> tuple[_Contents | None, Mapping[str, Any] | None]:
        contents = (await client.read_resource(uri)).contents
        content = contents[0] if contents else None
        meta: Mapping[str, Any] | None = content.meta if content is not None else None
        if content is not None and not (meta and "ui" in meta):
            meta = await _find_listed_meta(client, uri)
        return content, meta

    content, meta = await ask_server(connections, server, request)
    if content is None:
        raise ServerError(server, f"the resource {uri!r} is empty")
    if "".join((content.mime_type or "").split()).lower() != MIME_TYPE:
        raise ServerError(server, f"the resource {uri!r} has the type {content.mime_type!r}, expected {MIME_TYPE!r}")
    return parse_resource(server, uri, _decode(server, content), meta)


async def _find_listed_meta(client: Client, uri: str) -> Mapping[str, Any] | None:
    """Return a resource's metadata from the server's resource list; None if it is not listed there."""
    from mcp import MCPError
    from pydantic import ValidationError

    try:
        listed = await read_all_pages(client, "resources", "uri", lambda _: None)
    except (MCPError, ValidationError):
        return None
    return next((resource.meta for resource in listed.items if resource.uri == uri), None)


def _decode(server: str, content: _Contents) -> str:
    """Return the HTML of a resource's content.

    Raises:
        ServerError: The HTML is too large, or its bytes are not UTF-8 in base64.
    """
    from mcp_types import TextResourceContents

    text = content.text if isinstance(content, TextResourceContents) else content.blob
    if not isinstance(content, TextResourceContents) and len(text) <= 2 * MAX_HTML:
        try:
            text = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError):
            raise ServerError(server, "the HTML of the app is not UTF-8 in base64") from None
    if len(text) > MAX_HTML:
        raise ServerError(server, f"the HTML of the app is over {MAX_HTML:,} characters")
    return text

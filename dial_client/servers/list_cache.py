"""Cached lists of resources and prompts, read again when a server announces a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from dial_client.messages.errors import ServerError
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import Listing
from dial_client.servers.status import AddNote
from dial_client.servers.tool_listing import LIST_SECONDS

if TYPE_CHECKING:
    from mcp import Client

log = get_logger(__name__)

Item = TypeVar("Item")

CACHE_SECONDS = 60.0
"""Seconds for which a list is valid if its server does not announce changes."""
MAX_DESCRIPTION = 8_000
"""Characters of a description that are kept."""


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


@dataclass(frozen=True, slots=True)
class _CachedList(Generic[Item]):
    connection: Connection
    """The connection the list was read from; after removing a server, another server may have the same name."""
    items: tuple[Item, ...]
    revision: int
    """The number of `Notifications.revisions` when the list was read."""
    until: float
    """The time of `anyio.current_time` when the list becomes stale."""

    def is_valid_for(self, connection: Connection, revision: int) -> bool:
        """Return True if this list is still valid for the server."""
        return self.connection is connection and self.revision == revision and anyio.current_time() < self.until


class ListCache(Generic[Item]):
    """The lists of one kind of all servers. A list is read when first needed, and again when it may have changed.

    Args:
        connections: The connections by server name.
        listing: The kind of list.
        read: Reads a server's whole list; called with the server's name, the SDK's client, and a callback for notes.
    """

    def __init__(
        self,
        connections: Mapping[str, Connection],
        listing: Listing,
        read: Callable[[str, Client, AddNote], Awaitable[tuple[Item, ...]]],
    ) -> None:
        self._connections = connections
        self._listing = listing
        self._read = read
        self._cached: dict[str, _CachedList[Item]] = {}

    async def get(self, server: str | None) -> tuple[Item, ...]:
        """Return the list of one server, or for None the lists of all servers, leaving out servers that fail.

        Raises:
            ServerError: There is no such server, or its list cannot be read.
        """
        if server is not None:
            return await self._get(await wait_for_connection(self._connections, server))
        lists: dict[str, tuple[Item, ...]] = {}

        async def add(connection: Connection) -> None:
            try:
                await connection.wait_settled()
                lists[connection.name] = await self._get(connection)
            except ServerError as error:
                log.debug("not_listed", server=connection.name, what=self._listing.value, error=error.problem)

        async with anyio.create_task_group() as group:
            for connection in tuple(self._connections.values()):
                group.start_soon(add, connection)
        return tuple(item for name in self._connections for item in lists.get(name, ()))

    async def _get(self, connection: Connection) -> tuple[Item, ...]:
        revision = connection.notifications.revisions[self._listing]
        cached = self._cached.get(connection.name)
        if cached is not None and cached.is_valid_for(connection, revision):
            return cached.items
        has_announcements = False

        async def request(client: Client) -> tuple[Item, ...]:
            nonlocal has_announcements
            server_capabilities = client.server_capabilities
            capabilities = {
                Listing.TOOLS: server_capabilities.tools,
                Listing.RESOURCES: server_capabilities.resources,
                Listing.PROMPTS: server_capabilities.prompts,
            }
            capability = capabilities[self._listing]
            # If no capability is known (with a fixed protocol they are not requested), the server may have the list.
            if capability is None and any(known is not None for known in capabilities.values()):
                return ()
            has_announcements = bool(capability is not None and capability.list_changed)
            return await self._read(connection.name, client, connection.add_note)

        items = await connection.ask(request, LIST_SECONDS)
        until = float("inf") if has_announcements else anyio.current_time() + CACHE_SECONDS
        self._cached[connection.name] = _CachedList(connection, items, revision, until)
        return items

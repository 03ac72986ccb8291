"""What servers list beside their tools, kept until they say that it changed; a server that fails costs its own only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from dial_client.errors import ServerError
from dial_client.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import Listing
from dial_client.servers.tool_listing import LIST_SECONDS, Note

if TYPE_CHECKING:
    from mcp import Client

log = get_logger(__name__)

Item = TypeVar("Item")

KEPT_SECONDS = 60.0
"""Seconds for which a list is taken to be still true, where its server does not tell changes."""
MAX_WORDS = 8_000
"""Characters of a description that are kept."""


def connection_to(connections: Mapping[str, Connection], server: str) -> Connection:
    """Give the connection to a server.

    Raises:
        ServerError: there is no such server.
    """
    connection = connections.get(server)
    if connection is None:
        raise ServerError(server, "there is no such server")
    return connection


async def ready(connections: Mapping[str, Connection], server: str) -> Connection:
    """Give the connection to a server, once it is known whether it can be used.

    Raises:
        ServerError: there is no such server.
    """
    connection = connection_to(connections, server)
    await connection.wait_settled()
    return connection


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Item]):
    connection: Connection
    """To a server that was removed another one may have the name of."""
    items: tuple[Item, ...]
    revision: int
    until: float

    def is_of(self, connection: Connection, revision: int) -> bool:
        """Whether it is the list of this server as it is now."""
        return self.connection is connection and self.revision == revision and anyio.current_time() < self.until


class ListCache(Generic[Item]):
    """One kind of list of all servers. Each is read when it is first asked for, and again when it may have changed.

    Args:
        connections: to the servers.
        listing: what is listed, as servers announce it.
        read: reads a server's whole list; it is given the server's name, the SDK's client, and what hears of oddities.
    """

    def __init__(
        self,
        connections: Mapping[str, Connection],
        listing: Listing,
        read: Callable[[str, Client, Note], Awaitable[tuple[Item, ...]]],
    ) -> None:
        self._connections = connections
        self._listing = listing
        self._read = read
        self._kept: dict[str, _Kept[Item]] = {}

    async def of(self, server: str | None) -> tuple[Item, ...]:
        """Give the list of one server, or those of all, of which a server that fails is left out.

        Raises:
            ServerError: there is no such server, or its list cannot be read.
        """
        if server is not None:
            return await self._of(await ready(self._connections, server))
        found: dict[str, tuple[Item, ...]] = {}

        async def add(connection: Connection) -> None:
            try:
                await connection.wait_settled()
                found[connection.name] = await self._of(connection)
            except ServerError as error:
                log.debug("not_listed", server=connection.name, what=self._listing.value, error=error.problem)

        async with anyio.create_task_group() as group:
            for connection in tuple(self._connections.values()):
                group.start_soon(add, connection)
        return tuple(item for name in self._connections for item in found.get(name, ()))

    async def _of(self, connection: Connection) -> tuple[Item, ...]:
        revision = connection.notifications.lists[self._listing]
        kept = self._kept.get(connection.name)
        if kept is not None and kept.is_of(connection, revision):
            return kept.items
        is_told = False

        async def request(client: Client) -> tuple[Item, ...]:
            nonlocal is_told
            has = client.server_capabilities
            capability = getattr(has, self._listing.value)
            # A server whose capabilities nobody has asked for (a pinned protocol) may have all of them.
            if capability is None and any(one is not None for one in (has.tools, has.resources, has.prompts)):
                return ()
            is_told = bool(capability is not None and capability.list_changed)
            return await self._read(connection.name, client, connection.add_note)

        items = await connection.ask(request, LIST_SECONDS)
        until = float("inf") if is_told else anyio.current_time() + KEPT_SECONDS
        self._kept[connection.name] = _Kept(connection, items, revision, until)
        return items

"""The resources, resource templates and prompts of all servers, as the servers list them.

A list is read in the background, once for all clients, when a client first asks for its kind and whenever it may have
changed. A server that is slow, fails or starts delays no list for long, and spoils none: what it has follows when it is
read, and is announced as a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio
from mcp_types import Prompt, Resource, ResourceTemplate

from dial_client.gateway.addresses import rewrite_resource, rewrite_template
from dial_client.hooks.owners import act_for
from dial_client.messages.errors import ServerError
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import Listing
from dial_client.servers.resources import ListCache
from dial_client.servers.server_manager import ServerManager, find_absence
from dial_client.servers.status import Observable, ServerState

log = get_logger(__name__)

# Seconds that a client waits for the list of one server, from the start of the reading.
PATIENCE = 2.0
# Seconds after which a list that could not be read is read again, if the server announces no change before.
RETRY_SECONDS = 30.0


class ListKind(StrEnum):
    """The kinds of lists besides tools."""

    RESOURCES = "resources"
    TEMPLATES = "resource templates"
    PROMPTS = "prompts"


@dataclass(frozen=True, slots=True)
class ServerItem:
    """An item of a server's list."""

    server: str
    """The server's name in the configuration."""
    key: str
    """The server's own URI, URI template, or name of the prompt."""
    item: Any
    """The SDK's `Resource` or `ResourceTemplate` with its address, or the `Prompt` as the server sent it."""


class ServerLists:
    """The lists of all servers.

    Args:
        servers: The servers.
    """

    def __init__(self, servers: ServerManager) -> None:
        self._servers = servers
        self._caches = {
            ListKind.RESOURCES: ListCache(servers, Listing.RESOURCES, "resources", "uri", _to_resource),
            ListKind.TEMPLATES: ListCache(
                servers, Listing.RESOURCES, "resource_templates", "uri_template", _to_template
            ),
            ListKind.PROMPTS: ListCache(servers, Listing.PROMPTS, "prompts", "name", _to_prompt),
        }
        # The lists that clients know, of the kinds that any client is interested in; None before they were read first.
        self._known: dict[ListKind, tuple[ServerItem, ...] | None] = {}
        # The time when the reading of a list began, while it is being read.
        self._began: dict[tuple[ListKind, Connection], float] = {}
        # The revision and the time of a list that could not be read.
        self._failed: dict[tuple[ListKind, Connection], tuple[int, float]] = {}
        # Set when a list is of interest, was read, or may have changed.
        self._changes = Observable(None)

    async def get(self, kind: ListKind) -> tuple[ServerItem, ...]:
        """Return the items of all servers that are ready, in the order of the configuration.

        Of a server whose list cannot be read within `PATIENCE` seconds, these are the items that were read last.
        """
        self.watch(kind)
        seconds = self._compute_patience(kind)
        await self._changes.wait_until(lambda _: self._compute_patience(kind) <= 0, seconds)
        items = self.find(kind)
        if self._known[kind] is None:  # some servers are slow: what they have is a change
            with act_for(""):  # what the servers of one person have is known to that person alone
                self._known[kind] = self.find(kind)
        return items

    def watch(self, kind: ListKind) -> None:
        """Read the lists of a kind, and from now on report their changes."""
        self._known.setdefault(kind, None)
        self._settle(kind)
        self._changes.set(None)

    def find(self, kind: ListKind) -> tuple[ServerItem, ...]:
        """Return the items as they were read last, without those of servers that failed or were stopped."""
        gone = (ServerState.FAILED, ServerState.STOPPED, ServerState.DISABLED, ServerState.NEEDS_CREDENTIALS)
        connections = [connection for connection in self._servers.values() if connection.state not in gone]
        return tuple(item for connection in connections for item in self._caches[kind].find(connection))

    def describe_unread(self, *kinds: ListKind) -> str:
        """Return a sentence on the servers whose lists of some kinds are not known, and why; empty if all are known."""

        def find_reason(connection: Connection) -> str:
            if connection.state is ServerState.SLEEPING:
                return "it sleeps until one of its tools is called"
            is_ready = connection.state is ServerState.READY
            unread = [kind for kind in kinds if is_ready and not self._caches[kind].is_fresh(connection)]
            return f"it has not listed its {' and '.join(unread)} yet" if unread else find_absence(connection)

        return self._servers.describe_missing(find_reason)

    def take_changes(self) -> tuple[ListKind, ...]:
        """Return the kinds whose lists are not those that clients know; from now on, clients know them."""
        current = {kind: self.find(kind) for kind, known in self._known.items() if known is not None}
        changed = tuple(kind for kind, items in current.items() if items != self._known[kind])
        self._known |= current
        return changed

    def _settle(self, kind: ListKind) -> None:
        """Regard the lists as known, once the first of them were read: from then on, others are changes."""
        if self._known[kind] is None and self._compute_patience(kind) <= 0:
            self._known[kind] = self.find(kind)

    async def run(self) -> None:
        """Read the lists until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow_servers)
            while True:
                for kind in self._known:
                    for connection in self._find_stale(kind, self._servers.connections):
                        if (kind, connection) not in self._began:
                            self._began[kind, connection] = anyio.current_time()
                            group.start_soon(self._read, kind, connection)
                await self._changes.wait_until(lambda _: self._has_unread())

    async def _follow_servers(self) -> None:
        """Look at the lists again after each change of a server."""
        count = self._servers.announcements.value

        def is_changed(value: int) -> bool:
            return value != count

        while True:
            self._changes.set(None)
            count = await self._servers.announcements.wait_until(is_changed)

    async def _read(self, kind: ListKind, connection: Connection) -> None:
        before = self._caches[kind].find(connection)
        try:
            await self._caches[kind].read(connection)
            self._failed.pop((kind, connection), None)
        except ServerError as error:
            log.debug("not_listed", server=connection.name, what=kind.value, error=error.problem)
            self._failed[kind, connection] = (self._get_revision(connection), anyio.current_time() + RETRY_SECONDS)
        finally:
            del self._began[kind, connection]
        self._settle(kind)
        if self._caches[kind].find(connection) != before:
            # Wakes who announces changes to clients.
            self._servers.announcements.set(self._servers.announcements.value + 1)
        self._changes.set(None)

    def _find_stale(self, kind: ListKind, connections: Iterable[Connection]) -> list[Connection]:
        """Return the servers whose list has to be read."""
        return [
            connection
            for connection in connections
            if connection.state is ServerState.READY
            and not self._caches[kind].is_fresh(connection)
            and not self._is_failed(kind, connection)
        ]

    def _is_failed(self, kind: ListKind, connection: Connection) -> bool:
        revision, until = self._failed.get((kind, connection), (-1, -math.inf))
        return revision == self._get_revision(connection) and anyio.current_time() < until

    def _get_revision(self, connection: Connection) -> int:
        return sum(connection.notifications.revisions.values())

    def _has_unread(self) -> bool:
        return any(
            (kind, connection) not in self._began
            for kind in self._known
            for connection in self._find_stale(kind, self._servers.connections)
        )

    def _compute_patience(self, kind: ListKind) -> float:
        """Return the seconds that a client has to wait for lists; 0 or less for none."""
        now = anyio.current_time()
        stale = self._find_stale(kind, self._servers.values())
        left = [self._began.get((kind, connection), now) + PATIENCE - now for connection in stale]
        return max(left, default=0.0)


def _to_resource(server: str, item: Resource) -> ServerItem:
    return ServerItem(server, item.uri, rewrite_resource(server, item))


def _to_template(server: str, item: ResourceTemplate) -> ServerItem:
    return ServerItem(server, item.uri_template, rewrite_template(server, item))


def _to_prompt(server: str, item: Prompt) -> ServerItem:
    return ServerItem(server, item.name, item)

"""Limits on connections. At a limit, connections that have not sent the token are closed first."""

from __future__ import annotations

import ipaddress
from typing import Protocol

MAX_CONNECTIONS = 1_000
MAX_UNAUTHENTICATED = 100
"""Connections of one client address that have not sent the token."""
_MIN_CONNECTIONS = 16


class ServedConnection(Protocol):
    """The part of a connection that the limits use."""

    @property
    def address(self) -> str:
        """The client's IP address; empty if unknown."""

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress."""

    def drop(self) -> None:
        """Close the connection at once, without sending buffered data."""


class ConnectionLimits:
    """Keeps the number of connections of a server within its limits.

    A new connection beyond a limit replaces another connection. At the limit of a client address, this is the address's
    oldest connection that has not sent the token; at the total limit, the oldest such connection of the address that
    has most of them. If there are none, it is the idle connection whose last request with the token is the oldest.
    Connections that have sent the token and have a request in progress are never dropped.

    Args:
        max_total: Maximum number of connections; None to derive it from the limit on open files, at most 1,000.
        max_unauthenticated: Maximum number of connections of one client address that have not sent the token. An IPv6
            network of 64 bits counts as one address, because one client usually has a whole network.
    """

    def __init__(self, max_total: int | None = None, max_unauthenticated: int = MAX_UNAUTHENTICATED) -> None:
        self.max_total = max_total if max_total is not None else compute_max_connections(get_file_limit())
        """Maximum number of connections at a time."""
        self._max_unauthenticated = max_unauthenticated
        self._all: dict[ServedConnection, None] = {}
        self._unauthenticated: dict[str, dict[ServedConnection, None]] = {}

    def add(self, connection: ServedConnection) -> None:
        """Count a new connection; drop another connection if a limit is exceeded."""
        network = _find_network(connection.address)
        neighbours = self._unauthenticated.get(network, {})
        if len(neighbours) >= self._max_unauthenticated:
            self._drop(next(iter(neighbours)))
        elif len(self._all) >= self.max_total:
            self._make_room()
        self._all[connection] = None
        self._unauthenticated.setdefault(network, {})[connection] = None

    def mark_authenticated(self, connection: ServedConnection) -> None:
        """Record that a connection has sent the token, or that no token is required."""
        if connection in self._all:
            del self._all[connection]
            self._all[connection] = None  # moves it to the end: it is dropped last
        network = _find_network(connection.address)
        neighbours = self._unauthenticated.get(network, {})
        neighbours.pop(connection, None)
        if not neighbours:
            self._unauthenticated.pop(network, None)

    def remove(self, connection: ServedConnection) -> None:
        """Record that a connection is closed. A second call has no effect."""
        self._all.pop(connection, None)
        self.mark_authenticated(connection)  # removes it from the unauthenticated connections too

    def _make_room(self) -> None:
        largest = max(self._unauthenticated.values(), key=len, default={})
        idle = (connection for connection in self._all if connection.is_idle)
        oldest = next(iter(largest), None) or next(idle, None)
        if oldest is not None:  # otherwise all are busy, and uvicorn answers the new connection with 503
            self._drop(oldest)

    def _drop(self, connection: ServedConnection) -> None:
        self.remove(connection)
        connection.drop()


def compute_max_connections(file_limit: int | None) -> int:
    """Return the maximum number of connections for a process that may open `file_limit` files; None for no limit.

    A quarter of the files, at least 64, is left for databases, models and MCP servers.
    """
    if file_limit is None:
        return MAX_CONNECTIONS
    return max(_MIN_CONNECTIONS, min(MAX_CONNECTIONS, file_limit - max(64, file_limit // 4)))


def get_file_limit() -> int | None:
    """Return how many files, including sockets, this process may open; None if the system sets no limit."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _find_network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address) or parsed.ipv4_mapped:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))

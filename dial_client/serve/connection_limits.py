"""Bounds for connections: whoever opens many of them and shows no token makes room for everybody else."""

from __future__ import annotations

import ipaddress
from typing import Protocol

MAX_CONNECTIONS = 1_000
MAX_WITHOUT_TOKEN = 100
"""Connections of one address that have not shown the token."""
_FEWEST = 16


class ServedConnection(Protocol):
    """What the limits have to know of a connection."""

    @property
    def address(self) -> str:
        """The client's IP address; empty where there is none."""

    @property
    def is_idle(self) -> bool:
        """Whether there is no request to answer."""

    def drop(self) -> None:
        """Close the connection at once, whatever has not been sent yet."""


class ConnectionLimits:
    """Keeps the connections of one server within their bounds.

    A connection that goes beyond a bound takes the place of another one. Those that have not shown the token go first,
    the oldest of them first: nobody has to answer them anything that matters. Of the others only
    idle ones go, first those whose latest request is the longest ago.

    Args:
        most: all connections; None for as many as this process may open, 1,000 at most.
        without_token: those of one address that have not shown the token. Of IPv6 a network of 64 bits is one address:
            that is what one client is given.
    """

    def __init__(self, most: int | None = None, without_token: int = MAX_WITHOUT_TOKEN) -> None:
        self.most = most if most is not None else connections_for(open_files())
        """Connections at once."""
        self._without_token = without_token
        self._all: dict[ServedConnection, None] = {}
        self._unauthenticated: dict[str, dict[ServedConnection, None]] = {}

    def add(self, connection: ServedConnection) -> None:
        """Count a connection that was accepted, and drop another one where there are too many."""
        network = _network(connection.address)
        neighbours = self._unauthenticated.get(network, {})
        if len(neighbours) >= self._without_token:
            self._drop(next(iter(neighbours)))
        elif len(self._all) >= self.most:
            self._make_room()
        self._all[connection] = None
        self._unauthenticated.setdefault(network, {})[connection] = None

    def admit(self, connection: ServedConnection) -> None:
        """Record that a request of a connection has shown the token, or needs none."""
        if connection in self._all:
            del self._all[connection]
            self._all[connection] = None  # now the last that is dropped
        network = _network(connection.address)
        neighbours = self._unauthenticated.get(network, {})
        neighbours.pop(connection, None)
        if not neighbours:
            self._unauthenticated.pop(network, None)

    def remove(self, connection: ServedConnection) -> None:
        """Record that a connection is closed; may be called twice."""
        self._all.pop(connection, None)
        self.admit(connection)  # of those that have not shown the token it is none either

    def _make_room(self) -> None:
        largest = max(self._unauthenticated.values(), key=len, default={})
        idle = (connection for connection in self._all if connection.is_idle)
        oldest = next(iter(largest), None) or next(idle, None)
        if oldest is not None:  # else all are at work, and the new one is told so with 503
            self._drop(oldest)

    def _drop(self, connection: ServedConnection) -> None:
        self.remove(connection)
        connection.drop()


def connections_for(files: int | None) -> int:
    """Return the number of connections for a process that may open so many files; None for no bound.

    A part is left to databases, models and MCP servers: a quarter, and 64 at least.
    """
    if files is None:
        return MAX_CONNECTIONS
    return max(_FEWEST, min(MAX_CONNECTIONS, files - max(64, files // 4)))


def open_files() -> int | None:
    """Return how many files, sockets among them, this process may open; None where the system sets no bound."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _network(address: str) -> str:
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address) or known.ipv4_mapped:
        return str(known)
    return str(ipaddress.ip_network((known, 64), strict=False))

"""The HTTP server that runs the application: its socket, the limits of its connections, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from select import select
from typing import Any, Protocol, cast

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.serve.security import ON_AUTHENTICATED
from dial_client.serve.turns.turn_registry import TurnRegistry

MAX_CONNECTIONS = 1_000
# Connections of one client address that have not sent the token.
MAX_UNAUTHENTICATED = 100
# Seconds that a new connection has to send the token before others of its address replace it: a client that opens 200
# connections at once sends its requests only after that.
FIRST_REQUEST_GRACE = 2.0
_MIN_CONNECTIONS = 16
# The network of a proxy's connections until a request names the client; no address is written so.
_PROXY = "proxy"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServedConnection(Protocol):
    """The part of a connection that the limits use."""

    @property
    def address(self) -> str | None:
        """The client's IP address; empty if unknown, None for a proxy, whose request names the client."""

    @property
    def has_unread(self) -> bool:
        """True if the client has sent bytes that this server has not read yet, perhaps the token."""

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress."""

    def drop(self) -> None:
        """Close the connection at once, without sending buffered data."""


class ConnectionLimits:
    """Keeps the number of connections of a server within its limits.

    A new connection beyond a limit replaces another connection. At the limit of a client address, this is the address's
    oldest connection that has not sent the token, once it has had time for that and nothing of it waits to be read; at
    the total limit, the oldest such connection of the address that has most of them. If there are none, it is the idle
    connection whose last request with the token is the oldest.
    Connections that have sent the token and have a request in progress are never dropped.

    Args:
        max_total: Maximum number of connections; None to derive it from the limit on open files, at most 1,000.
        max_unauthenticated: Maximum number of connections of one client address that have not sent the token. An IPv6
            network of 64 bits counts as one address, because one client usually has a whole network.
        grace: Seconds that a connection has to send the token before another one of its address replaces it.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        max_total: int | None = None,
        max_unauthenticated: int = MAX_UNAUTHENTICATED,
        *,
        grace: float = FIRST_REQUEST_GRACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_total = max_total if max_total is not None else compute_max_connections(get_file_limit())
        """Maximum number of connections at a time."""
        self._max_unauthenticated = max_unauthenticated
        # The networks of the connections, the oldest first; None for connections that have sent the token.
        self._networks: dict[ServedConnection, str | None] = {}
        self._grace, self._clock = grace, clock
        # The times when the connections that have not sent the token were added.
        self._added: dict[ServedConnection, float] = {}

    def add(self, connection: ServedConnection) -> None:
        """Count a new connection; drop another connection if a limit is exceeded."""
        network = _PROXY if connection.address is None else _find_network(connection.address)
        self._limit_network(network)
        if len(self._networks) >= self.max_total:
            self._make_room()
        self._networks[connection] = network
        self._added[connection] = self._clock()

    def assign(self, connection: ServedConnection, address: str) -> None:
        """Count the connection of a proxy for the client of its request, until it is authenticated."""
        if self._networks.get(connection) is not None:
            network = self._networks.pop(connection)
            if network != (found := _find_network(address)):
                self._limit_network(found)
            self._networks[connection] = found

    def _limit_network(self, network: str) -> None:
        """Drop connections of a network so that it may have a further one."""
        if network == _PROXY:
            return
        neighbours, now = self._list_connections(network), self._clock()
        for neighbour in neighbours[: max(0, len(neighbours) - self._max_unauthenticated + 1)]:
            # A busy process may not have read yet what has arrived in time.
            if now - self._added[neighbour] >= self._grace and not neighbour.has_unread:
                self._drop(neighbour)

    def mark_authenticated(self, connection: ServedConnection) -> None:
        """Record that a connection has sent the token, or that no token is required."""
        if connection in self._networks:
            del self._networks[connection]
            self._added.pop(connection, None)
            self._networks[connection] = None  # at the end: it is dropped last

    def remove(self, connection: ServedConnection) -> None:
        """Record that a connection is closed. A second call has no effect."""
        self._networks.pop(connection, None)
        self._added.pop(connection, None)

    def _list_connections(self, network: str) -> list[ServedConnection]:
        """Return the connections of a network that have not sent the token, the oldest first."""
        return [connection for connection, own in self._networks.items() if own == network]

    def _make_room(self) -> None:
        unauthenticated = Counter(network for network in self._networks.values() if network is not None)
        if unauthenticated:
            [(largest, _)] = unauthenticated.most_common(1)
            connections = self._list_connections(largest)
            silent = (connection for connection in connections if not connection.has_unread)
            self._drop(next(silent, connections[0]))
            return
        oldest = next((connection for connection in self._networks if connection.is_idle), None)
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


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies in front of a server, and what is believed of their requests alone."""

    networks: tuple[Network, ...] = ()
    """Their addresses. Their ``X-Forwarded-For`` names the client."""
    headers: frozenset[str] = frozenset()
    """Names, in lower case, of headers that only proxies may send, once in a request: those that name a person."""

    def remove_false_headers(self, scope: Scope, *, is_proxy: bool) -> None:
        """Remove from a request the headers that it may not have."""
        if self.headers:
            counts = Counter(name for name, _ in scope["headers"])
            scope["headers"] = [
                (name, value)
                for name, value in scope["headers"]
                # Twice: the proxy has passed on what the client sent, beside its own.
                if name.decode("latin-1") not in self.headers or (is_proxy and counts[name] == 1)
            ]


def parse_proxy(text: str) -> Network:
    """Return the addresses of a proxy: an IP address, or a network such as ``10.0.0.0/8``.

    Raises:
        ConfigError: It is neither.
    """
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        hint = "such as 127.0.0.1, or 10.0.0.0/8 for a network"
        raise ConfigError(f"--proxy: {text!r} is not an IP address", hint=hint) from None


def find_client(peer: str, forwarded: str, proxies: Sequence[Network]) -> str:
    """Return the address of the client that a proxy speaks for; empty if the peer is no proxy, or names no client.

    Args:
        peer: The address of the connection.
        forwarded: ``X-Forwarded-For``: the addresses that each proxy has added, the nearest last. What stands before
            the address that the outermost known proxy has added may be a lie of the client.
        proxies: The addresses of the proxies.
    """
    for hop in (peer, *reversed([part.strip() for part in forwarded.split(",")])):
        try:
            address = ipaddress.ip_address(hop.partition("%")[0])
        except ValueError:
            return ""
        if not any(address in network for network in proxies):
            return "" if hop == peer else str(address)
    return ""


# Seconds that running turns have to finish on shutdown. Service managers commonly kill a process after ten seconds.
SHUTDOWN_GRACE = 8.0
# Seconds in which the head of a connection's next request must arrive.
HEAD_TIMEOUT = 20
# Seconds to send the last responses on shutdown.
_FLUSH_TIMEOUT = 2


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        ConfigError: This machine does not have the address, or the address is in use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # on Windows SO_REUSEADDR would share an address in use
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        problem = f"cannot listen on {host} port {port}: {describe_system_error(error)}"
        raise ConfigError(problem, hint="choose another address with --host and --port") from error
    listener.setblocking(False)  # noqa: FBT003 - the signature of `socket`
    return listener


class HttpServer:
    """Serves an application until `shut_down` is called.

    Args:
        app: The application.
        listener: A socket that listens.
        turns: The turns that the application runs.
        grace: Seconds that running turns have to finish on shutdown.
        head_timeout: Seconds in which the head of a connection's next request must arrive.
        limits: The limits on connections.
        proxies: The proxies in front of this server.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        turns: TurnRegistry,
        *,
        grace: float = SHUTDOWN_GRACE,
        head_timeout: int = HEAD_TIMEOUT,
        limits: ConnectionLimits | None = None,
        proxies: Proxies = Proxies(),
    ) -> None:
        limits = limits or ConnectionLimits()
        config = Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(_LimitedProtocol, limits, proxies)),
            ws="none",
            lifespan="off",
            loop="asyncio",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # lower levels log every request that is not HTTP
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.max_total + 1,
            timeout_keep_alive=head_timeout,
            timeout_graceful_shutdown=_FLUSH_TIMEOUT,
        )
        self._server = _UvicornServer(config)
        self._socket = listener
        self._turns = turns
        self._grace = grace
        self._shutdown = anyio.Event()

    def shut_down(self) -> None:
        """Reject further turns, wait for running turns for the grace period, then cancel them and stop."""
        self._turns.is_closed = True
        self._shutdown.set()

    async def run(self, on_listening: Callable[[], None]) -> None:
        """Serve until `shut_down` is called. Cancelling this coroutine stops at once, without a grace period."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._server.serve, [self._socket])
            on_listening()
            try:
                await self._shutdown.wait()
                await self._turns.end(self._grace)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._turns.end(0.0)
                self._server.should_exit = True


class _UvicornServer(Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the program."""
        yield


class _LimitedProtocol(H11Protocol):
    """A connection within `ConnectionLimits`, with a timeout for the whole head of a request.

    Uvicorn itself limits only the time until the first byte of a request.
    """

    def __init__(self, limits: ConnectionLimits, proxies: Proxies, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._proxies = proxies
        inner: ASGIApp = self.app

        def run_app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            if self.address is None:
                forwarded = ", ".join(Headers(scope=scope).getlist("x-forwarded-for"))
                if address := find_client(self.client[0] if self.client else "", forwarded, proxies.networks):
                    scope["client"] = (address, 0)
                    limits.assign(self, address)
            proxies.remove_false_headers(scope, is_proxy=self.address is None)
            scope["state"][ON_AUTHENTICATED] = lambda: limits.mark_authenticated(self)
            # No coroutine of its own, which a stream would hold as long as it is open.
            return inner(scope, receive, send)

        self.app = run_app

    @property
    def address(self) -> str | None:
        """The client's IP address; None for a proxy."""
        address = self.client[0] if self.client else ""
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return address
        return None if any(parsed in network for network in self._proxies.networks) else address

    @property
    def has_unread(self) -> bool:
        """True if bytes of the client wait in the socket."""
        try:
            return bool(select([self.transport.get_extra_info("socket")], [], [], 0)[0])
        except (OSError, ValueError):  # closed, or a number of a file that `select` does not support
            return False

    def drop(self) -> None:
        """Close the connection at once: an orderly close would wait for clients that read nothing."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        super().connection_lost(exc)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._limits.add(self)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        timeout = self.timeout_keep_alive_task if self.is_idle else None
        if timeout is not None:
            self.timeout_keep_alive_task = None  # hides the timeout from uvicorn, which would cancel it
        super().data_received(data)
        if timeout is None:
            return
        if self.is_idle and not self.transport.is_closing():
            self.timeout_keep_alive_task = timeout
        else:
            timeout.cancel()

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is None or cycle.response_complete

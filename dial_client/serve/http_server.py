"""The server around the application: the socket, the signals, and an end in good order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from dial_client.errors import ConfigError
from dial_client.serve.connection_limits import ConnectionLimits
from dial_client.serve.security import ADMIT
from dial_client.serve.turn_registry import TurnRegistry

GRACE = 8.0
"""Seconds running turns have to come to their end when the server is told to stop: who stops services waits ten."""
HEAD_PATIENCE = 20
"""Seconds in which the head of a connection's next request has to be there."""
_LAST_BYTES = 2
"""Seconds for what was said last to reach the clients."""


def bound(host: str, port: int) -> socket.socket:
    """Give a socket that listens.

    Raises:
        ConfigError: there is no such address here, or it is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows would share an address that is taken
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {host} port {port}: {why}", hint="--host and --port choose") from error
    listener.setblocking(False)  # noqa: FBT003 - as sockets have it
    return listener


class Listener:
    """Serves an application until it is told to leave.

    Args:
        app: what is served.
        listener: a socket that listens.
        turns: those the application carries out.
        grace: seconds they have when it is told to leave.
        patience: seconds it waits for a request that a client has not begun, or not come far with.
        limits: bounds for the connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        turns: TurnRegistry,
        *,
        grace: float = GRACE,
        patience: int = HEAD_PATIENCE,
        limits: ConnectionLimits | None = None,
    ) -> None:
        limits = limits or ConnectionLimits()
        config = Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(_Protocol, limits)),
            ws="none",
            lifespan="off",
            loop="asyncio",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # it would complain of each request that is no HTTP
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.most + 1,
            timeout_keep_alive=patience,
            timeout_graceful_shutdown=_LAST_BYTES,
        )
        self._server = _Server(config)
        self._socket = listener
        self._turns = turns
        self._grace = grace
        self._told = anyio.Event()

    def leave(self) -> None:
        """Come to an end: begin nothing new, give what runs its grace, then cancel it; it is stored."""
        self._turns.leave()
        self._told.set()

    async def run(self, on_listening: Callable[[], None]) -> None:
        """Serve until `leave`, or until cancelled, which gives no grace."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._server.serve, [self._socket])
            on_listening()
            try:
                await self._told.wait()
                await self._turns.end(self._grace)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._turns.end(0.0)
                self._server.should_exit = True


class _Server(Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to the program."""
        yield


class _Protocol(H11Protocol):
    """Waits with a bound for a request whose head is not whole yet; uvicorn does so up to its first byte only.

    It is one of a bounded number, among which it counts for more once the token was shown.
    """

    def __init__(self, limits: ConnectionLimits, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._limits = limits
        inner = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"][ADMIT] = lambda: limits.admit(self)
            await inner(scope, receive, send)

        self.app = app

    @property
    def address(self) -> str:
        """The client's IP address."""
        return self.client[0] if self.client else ""

    def drop(self) -> None:
        """Close the connection at once: in good order it would wait for a client that reads nothing."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        super().connection_lost(exc)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._limits.add(self)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        waiting = self.timeout_keep_alive_task if self.is_idle else None
        if waiting is not None:
            self.timeout_keep_alive_task = None  # or it would be cancelled now
        super().data_received(data)
        if waiting is None:
            return
        if self.is_idle and not self.transport.is_closing():
            self.timeout_keep_alive_task = waiting
        else:
            waiting.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether there is no request to answer; before the first there is no cycle either."""
        return bool(getattr(self.cycle, "response_complete", True))

"""A proxy in front of PostgreSQL that can lose its connections, as if the server were away."""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import urlsplit

Moment = Literal["statement", "commit", "acknowledgement"]
"""What does not arrive: the statement, the COMMIT of its transaction, or the answer to that COMMIT."""


@dataclass(eq=False)
class Trap:
    """A moment at which connections break."""

    content: tuple[bytes, ...]
    """What the statement contains, with its parameters; all of it in one packet."""
    moment: Moment
    refusals: float
    """How many new connections are refused then."""
    holds: bool
    """Whether the connection is only silent from then on."""
    has_sprung: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Connection:
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    has_statement: bool = False
    has_committed: bool = False


class DatabaseProxy:
    """Passes connections on to a database. It has a thread of its own, so that every client may block.

    Args:
        url: The URL of the database.
    """

    def __init__(self, url: str) -> None:
        self.target = url
        """The URL of the database, without the proxy."""
        self._target = urlsplit(url)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._listening, self._port = threading.Event(), 0
        self._connections: set[asyncio.Task[Any]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._refusals: float = 0
        self._trap: Trap | None = None
        self.refused = 0
        """The number of connections that were refused."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(30)

    async def _run(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self._port = server.sockets[0].getsockname()[1]
            self._listening.set()
            await self._stopped.wait()
            self._abort_all()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    @property
    def url(self) -> str:
        """The URL of the database through this proxy."""
        return self._target._replace(netloc=f"{self._target.username}@127.0.0.1:{self._port}").geturl()

    def cut(self, refusals: float = math.inf) -> None:
        """Break all connections, and refuse this number of new ones."""

        async def cut() -> None:
            self._refusals = refusals
            self._abort_all()

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(30)

    def cut_at(self, *content: str, moment: Moment, refusals: float = 0, holds: bool = False) -> Trap:
        """Do as `cut`, or let the one connection fall silent, when a statement with this content comes."""
        self._trap = Trap(tuple(part.encode() for part in content), moment, refusals, holds)
        return self._trap

    def _springs(self, data: bytes, connection: _Connection, *, is_answer: bool) -> bool:
        """Note what passes, and return whether it must not pass, because of the trap."""
        trap = self._trap
        if trap is None or trap.has_sprung.is_set():
            return False
        if is_answer:
            return connection.has_committed
        connection.has_statement = connection.has_statement or all(part in data for part in trap.content)
        if not connection.has_statement or trap.moment == "statement":
            return connection.has_statement
        is_commit = b"COMMIT" in data
        connection.has_committed = is_commit and trap.moment == "acknowledgement"
        return is_commit and trap.moment == "commit"

    def _spring(self, connection: _Connection) -> None:
        assert self._trap is not None
        if self._trap.holds:
            self._silent.update(connection.writers)
        else:
            self._refusals = self._trap.refusals
            self._abort_all()
        self._trap.has_sprung.set()

    def restore(self) -> None:
        """Refuse no further connection."""
        self._refusals = 0

    def silence(self) -> None:
        """Pass nothing on over the open connections, as if the server were off the network; new ones work."""
        self._silent |= self._writers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusals > 0:
            self._refusals -= 1
            self.refused += 1
            writer.transport.abort()
            return
        if (task := asyncio.current_task()) is not None:
            self._connections.add(task)
        try:
            with suppress(OSError):
                remote_reader, remote_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
                self._writers |= {writer, remote_writer}
                connection = _Connection((writer, remote_writer))
                await asyncio.gather(
                    self._pump(reader, remote_writer, connection),
                    self._pump(remote_reader, writer, connection, is_answer=True),
                )
                self._writers -= {writer, remote_writer}
        finally:  # the proxy may end while a connection begins
            writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
        *,
        is_answer: bool = False,
    ) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(65536):
                    if self._springs(data, connection, is_answer=is_answer):
                        self._spring(connection)
                    elif writer not in self._silent:
                        writer.write(data)
                        await writer.drain()
        finally:
            writer.transport.abort()

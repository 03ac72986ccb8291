"""A proxy in front of PostgreSQL that can lose its connections, as if the server were away."""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit


class DatabaseProxy:
    """Passes connections on to a database. It has a thread of its own, so that every client may block.

    Args:
        url: The URL of the database.
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._listening, self._port = threading.Event(), 0
        self._connections: set[asyncio.Task[Any]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._refusals: float = 0
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
        with suppress(OSError):
            remote_reader, remote_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
            self._writers |= {writer, remote_writer}
            await asyncio.gather(self._pump(reader, remote_writer), self._pump(remote_reader, writer))
            self._writers -= {writer, remote_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if writer not in self._silent:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()

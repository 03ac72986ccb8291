"""An HTTP/1.1 client that costs little: it shares the processors with what it measures.

It keeps connections, sends a request in one write, and notes when each part of the response arrived. It knows what the
service sends: bodies with a length, and streams in chunks.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

CONNECT_TIMEOUT = 5.0
"""Seconds for a connection to a process, which may be stopped or killed."""


class ConnectionLost(Exception):
    """The connection broke, or could not be made.

    Args:
        has_sent: Whether the request may have reached the service.
    """

    def __init__(self, *, has_sent: bool) -> None:
        super().__init__("the connection broke" if has_sent else "no connection")
        self.has_sent = has_sent


@dataclass(slots=True)
class Response:
    """A response, as it arrives."""

    times: list[float] = field(default_factory=list)
    """When each part of the body arrived that has events, in seconds of the loop; the first one is that of the head."""
    events: list[int] = field(default_factory=list)
    """How many events each part has."""
    head: bytes = b""
    body: bytearray = field(default_factory=bytearray)

    @property
    def status(self) -> int:
        """The status; 0 if there is no head yet."""
        return int(self.head[9:12] or 0)

    def header(self, name: str) -> str:
        """Return a header, empty if there is none."""
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            found, _, value = line.partition(":")
            if found.lower() == name:
                return value.strip()
        return ""

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


class _Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_closed = False
        self._response: Response | None = None
        self._ended: asyncio.Future[None] | None = None
        self._length = -1
        self._cut_after = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(ConnectionLost(has_sent=True))

    def send(self, request: bytes, response: Response, cut_after: int) -> asyncio.Future[None]:
        """Send a request; the future ends with the response. After `cut_after` events the connection breaks, if > 0."""
        assert self.transport is not None
        self._response, self._length, self._cut_after = response, -1, cut_after
        self._ended = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._ended

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or self._ended is None or self._ended.done():
            return
        now = asyncio.get_running_loop().time()
        if not response.head:
            response.times.append(now)
            response.events.append(0)
            data = self._read_head(bytes(response.body) + data)
        elif events := data.count(b"\n\n"):
            response.times.append(now)
            response.events.append(events)
        response.body += data
        if self._has_ended(response):
            self._ended.set_result(None)
        elif self._cut_after and sum(response.events) >= self._cut_after:
            assert self.transport is not None
            self.transport.abort()

    def _read_head(self, data: bytes) -> bytes:
        """Take the head from the first bytes, and return what follows."""
        assert self._response is not None
        self._response.body.clear()
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            return data
        self._response.head = head
        length = self._response.header("content-length")
        self._length = int(length) if length else 0 if self._response.status == 204 else -1
        return rest

    def _has_ended(self, response: Response) -> bool:
        if not response.head:
            return False
        return len(response.body) >= self._length if self._length >= 0 else response.body.endswith(b"0\r\n\r\n")


class HttpClient:
    """Sends requests to processes on loopback.

    Args:
        token: The token of the service.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._idle: defaultdict[int, list[_Connection]] = defaultdict(list)

    async def request(  # noqa: PLR0913 - the parts of a request, all but four by name
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: str = "",
        response: Response | None = None,
        cut_after: int = 0,
        seconds: float = 60.0,
    ) -> Response:
        """Send a request to the process at `port`, and return the whole response.

        Args:
            port: The port of the process.
            method: The method.
            path: The path.
            body: The body, of JSON types; None for none.
            headers: Further lines of the head, each with its end.
            response: Filled while the response arrives, so that the part of a broken response is known.
            cut_after: Break the connection after so many events; 0 to read all.
            seconds: The most seconds until the end of the response.

        Raises:
            ConnectionLost: There is no process, or the connection broke before the end.
            TimeoutError: The response has not ended in time.
        """
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {self._token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n{headers}\r\n"
        )
        response = Response() if response is None else response
        connection = await self._connect(port)
        try:
            async with asyncio.timeout(seconds):
                await connection.send(head.encode() + data, response, cut_after)
        except BaseException:
            if connection.transport is not None:
                connection.transport.abort()
            raise
        self._idle[port].append(connection)
        return response

    async def _connect(self, port: int) -> _Connection:
        while idle := self._idle[port]:
            if not (connection := idle.pop()).is_closed:
                return connection
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
        except (OSError, TimeoutError):
            raise ConnectionLost(has_sent=False) from None
        return connection

    def close(self) -> None:
        """Close the connections that are kept."""
        for connections in self._idle.values():
            for connection in connections:
                if connection.transport is not None:
                    connection.transport.close()
        self._idle.clear()

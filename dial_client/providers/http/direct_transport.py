"""HTTP/1.1 to an endpoint without a proxy. This module imports httpx2, so it is itself imported for the first request.

`httptools` parses responses, with the parser of Node.js. All chunks that one read brings are handed on together:
handing on each by itself took half of the time of a stream.
"""

from __future__ import annotations

import re
import select
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import anyio
import httptools
import httpx2
from anyio.abc import ByteStream, SocketAttribute

# Seconds for which an idle connection is kept open, because tools run between two requests of a turn.
KEEPALIVE = 30.0
MAX_IDLE = 20
_READ_BYTES = 64 * 1024
# The most bytes that bring nothing of a body: announcements and headers before it, extensions and headers in it.
_MAX_BESIDE_BODY = 100 * 1024
_HEADER = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+: [^\x00\r\n]*")


class DirectTransport(httpx2.AsyncBaseTransport):
    """Connections to one endpoint, each for one request at a time.

    There is no limit of connections: how many turns run at once is decided where turns start, and a request that waits
    for a connection would fail as if the endpoint had not answered in time.

    Args:
        ssl_context: The trust store; None for an endpoint without TLS.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None) -> None:
        self._ssl_context = ssl_context
        if ssl_context is not None:
            ssl_context.set_alpn_protocols(["http/1.1"])
        # The connection that was used last is the last one.
        self._idle: list[_Connection] = []
        self._used: set[_Connection] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response with its body unread."""
        message, timeouts = _encode(request), request.extensions.get("timeout", {})
        connection = await self._take_idle() or await self._connect(request.url, timeouts.get("connect"))
        self._used.add(connection)
        body = _Response(self, connection, timeouts.get("read"))
        try:
            await connection.write(message, timeouts.get("write"))
            await body.read_head()
        except BaseException:
            await body.aclose()
            raise
        return httpx2.Response(body.status, headers=body.headers, stream=body)

    async def release(self, connection: _Connection, *, is_reusable: bool) -> None:
        """Keep a connection for the next request, or close it."""
        self._used.discard(connection)
        if is_reusable and len(self._idle) < MAX_IDLE:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close all connections, also those that requests use."""
        while self._idle or self._used:
            await (self._idle or self._used).pop().aclose()

    async def _take_idle(self) -> _Connection | None:
        """Return a connection that is still open; close those that are not, and those that were not used for long."""
        while self._idle and self._idle[0].idle_since < time.monotonic() - KEEPALIVE:
            await self._idle.pop(0).aclose()
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_ended():
                return connection
            await connection.aclose()
        return None

    async def _connect(self, url: httpx2.URL, timeout: float | None) -> _Connection:
        host, port = url.raw_host.decode("ascii"), url.port or (443 if self._ssl_context else 80)
        try:
            with anyio.move_on_after(timeout):
                if self._ssl_context is None:
                    return _Connection(await anyio.connect_tcp(host, port))
                return _Connection(
                    await anyio.connect_tcp(host, port, ssl_context=self._ssl_context, tls_standard_compatible=False)
                )
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise httpx2.ConnectError(str(error)) from error
        raise httpx2.ConnectTimeout("")


class _Connection:
    """A connection to the endpoint."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        # Asked for once: anyio finds both addresses anew whenever any attribute is asked for.
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no Django
        self.idle_since = 0.0

    async def write(self, data: bytes, timeout: float | None) -> None:
        """Send bytes, or what of them the endpoint takes: it may refuse a request before it has read all of it."""
        try:
            with anyio.move_on_after(timeout):
                return await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return None
        raise httpx2.WriteTimeout("")

    async def read(self, timeout: float | None) -> bytes:
        """Return the next bytes; none at the end."""
        try:
            with anyio.move_on_after(timeout):
                return await self._stream.receive(_READ_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpx2.ReadError(str(error)) from error
        raise httpx2.ReadTimeout("")

    def has_ended(self) -> bool:
        """Whether the endpoint has closed the idle connection: an idle one has nothing to read but its end."""
        number = self._socket.fileno()
        if number < 0:
            return True
        if not hasattr(select, "poll"):  # on Windows, where `select` takes any number
            return bool(select.select([number], [], [], 0)[0])
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))

    async def aclose(self) -> None:
        """Close the connection, also in a cancelled task."""
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()


class _Response(httpx2.AsyncByteStream):
    """A response, whose body is read once. The parser calls the methods `on_…`; what they raise ends the response."""

    def __init__(self, transport: DirectTransport, connection: _Connection, timeout: float | None) -> None:
        self._transport, self._connection, self._timeout = transport, connection, timeout
        self.status = 0
        self.headers = httpx2.Headers()
        self._received: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser: Any = httptools.HttpResponseParser(self)
        # Line ends without a carriage return, spaces after sizes, and a length beside chunks come from old servers.
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._has_ended = self._ends_with_connection = self._is_reusable = self._is_closed = False
        self._beside_body = 0
        self._error: Exception | None = None

    def on_message_begin(self) -> None:
        if self._has_ended:
            raise ValueError("bytes that follow the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # the headers after the last chunk are nobody's
            self._received.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:  # an announcement of the response
            self._received.clear()
            return
        if status < 100:
            raise ValueError("an illegal status")
        self.headers = httpx2.Headers(self._received)
        coding, length = (self.headers.get(name) for name in ("transfer-encoding", "content-length"))
        if coding is not None and coding.lower() != "chunked":
            raise ValueError(f"unknown transfer encoding {coding[:40]!r}")
        self._ends_with_connection = coding is None and length is None
        # Of a response with both, one reader takes the length and another one the chunks: nothing may follow it.
        self._is_reusable = status != 101 and (coding is None or length is None) and self._parser.should_keep_alive()
        self.status = status

    def on_message_complete(self) -> None:
        self._has_ended = self.status > 0

    async def read_head(self) -> None:
        """Read until the headers are complete."""
        while not self.status:
            self._take(await self._read())

    def _read(self) -> Awaitable[bytes]:
        if self._error is not None:
            raise self._error
        return self._connection.read(self._timeout)

    def _take(self, data: bytes) -> None:
        """Parse the next bytes; none are the end of the connection."""
        if not data:
            if not self.status:
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
            if not self._ends_with_connection:
                raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
            self._has_ended = True
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_reusable = False
            # It is raised once what came before it has been handed on.
            self._error = httpx2.RemoteProtocolError(str(error.__context__ or error))
        self._beside_body = 0 if self._pieces else self._beside_body + len(data)
        if self._beside_body > _MAX_BESIDE_BODY:
            raise httpx2.RemoteProtocolError("the headers of the response are too long")

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        while True:
            if self._pieces:
                content = b"".join(self._pieces)
                self._pieces.clear()
                yield content
            if self._has_ended:
                return
            self._take(await self._read())

    async def aclose(self) -> None:
        """Close the connection, or keep it for the next request if the body was read to its end."""
        if not self._is_closed:
            self._is_closed, self._parser = True, None
            await self._transport.release(self._connection, is_reusable=self._has_ended and self._is_reusable)


def _encode(request: httpx2.Request) -> bytes:
    """Return a request in one piece, so that the endpoint wakes once, and not for the headers alone."""
    lines = [b"%b: %b" % header for header in request.headers.raw]
    for line in lines:
        if not _HEADER.fullmatch(line):
            # The value may be a key.
            raise httpx2.LocalProtocolError(f"Illegal header value, or name: {line.partition(b':')[0]!r}")
    start = b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)
    return b"\r\n".join((start, *lines, b"", request.read()))

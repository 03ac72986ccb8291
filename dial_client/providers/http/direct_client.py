"""HTTP/1.1 requests to one endpoint, without a proxy. This module imports httpx2, so it is imported when it is needed.

The framing of messages: https://www.rfc-editor.org/rfc/rfc9112. All chunks that one read brings are handed on together:
a client that hands on each chunk by itself takes more time for a stream than everything else.
"""

from __future__ import annotations

import re
import select
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import httpx2
from anyio.abc import ByteStream, SocketAttribute

from dial_client.providers.http.endpoint import CONNECT_TIMEOUT

# Seconds for which an idle connection is kept open, because tools run between two requests of a turn.
KEEPALIVE = 30.0
MAX_IDLE = 20
_READ_BYTES = 64 * 1024
# The most bytes of the head of a response, of a line that begins a chunk, and of the lines after the last chunk.
_MAX_HEAD = 100 * 1024
_MAX_LINE = 16 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/(\d\.\d) (\d{3})(?: [^\x00\r\n]*)?")
_HEADER = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):([^\x00\r\n]*)")
_FIRST_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_NEXT_CHUNK = re.compile(rb"\r\n" + _FIRST_CHUNK.pattern)


class DirectClient:
    """Connections to the endpoint, each for one request at a time.

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
        self._encoded: tuple[httpx2.Request | None, bytes] = (None, b"")

    async def send(
        self, request: httpx2.Request, body: bytes | None, idle_timeout: float
    ) -> httpx2.Response | DirectResponse:
        """Send a request, and return the response with its body unread.

        Args:
            request: The request without its body; the same object as last time if nothing has changed.
            body: The body; None for a request without one.
            idle_timeout: Seconds to wait for each read and write.

        Raises:
            httpx2.TransportError: There is no response.
        """
        if self._encoded[0] is not request:
            self._encoded = (request, _encode_head(request))
        length = b"" if body is None else b"content-length: %d\r\n" % len(body)
        connection = await self.take_idle() or await self._connect(request.url)
        try:
            # Together, so that the endpoint wakes once, and not for the head alone.
            await connection.write(b"".join((self._encoded[1], length, b"\r\n", body or b"")), idle_timeout)
            reply = await _read_head(connection, idle_timeout)
        except BaseException:
            await connection.close()
            raise
        reply.idle = self._idle
        if "content-encoding" not in reply.headers:
            return reply
        return httpx2.Response(reply.status_code, headers=dict(reply.headers), stream=reply)

    async def aclose(self) -> None:
        """Close all connections that no request uses."""
        while self._idle:
            await self._idle.pop().close()

    async def take_idle(self) -> _Connection | None:
        """Return a connection that is still open; close those that are not, and those that were not used for long."""
        while self._idle and self._idle[0].idle_since < time.monotonic() - KEEPALIVE:
            await self._idle.pop(0).close()
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_ended():
                return connection
            await connection.close()
        return None

    async def _connect(self, url: httpx2.URL) -> _Connection:
        host, port = url.raw_host.decode("ascii"), url.port or (443 if self._ssl_context else 80)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                if self._ssl_context is None:
                    return _Connection(await anyio.connect_tcp(host, port))
                return _Connection(
                    await anyio.connect_tcp(host, port, ssl_context=self._ssl_context, tls_standard_compatible=False)
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise httpx2.ConnectError(str(error)) from error


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection to the endpoint."""

    stream: ByteStream
    idle_since: float = 0.0
    _socket: Any = field(init=False)

    def __post_init__(self) -> None:
        # Asked for once: anyio finds both addresses anew whenever any attribute is asked for.
        self._socket = self.stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no Django

    async def write(self, data: bytes, timeout: float) -> None:
        """Send bytes, or what of them the endpoint takes: it may refuse a request before it has read all of it."""
        try:
            with anyio.fail_after(timeout):
                await self.stream.send(data)
        except TimeoutError as error:
            raise httpx2.WriteTimeout(str(error)) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def read(self, timeout: float) -> bytes:
        """Return the next bytes; none at the end."""
        try:
            with anyio.fail_after(timeout):
                return await self.stream.receive(_READ_BYTES)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpx2.ReadTimeout(str(error)) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpx2.ReadError(str(error)) from error

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

    async def close(self) -> None:
        """Close the connection, also in a cancelled task."""
        with anyio.CancelScope(shield=True):
            await self.stream.aclose()


class _Framing(Protocol):
    """Finds the content of a body, and its end, in the bytes of a connection."""

    ended: bool
    is_reusable: bool
    """Whether the connection has nothing but the body so far."""

    def decode(self, data: bytes) -> bytes:
        """Return the content of the next bytes; empty bytes are the end of the connection."""


class DirectResponse(httpx2.AsyncByteStream):
    """A response, whose body is read once. It has what is used of `httpx2.Response`, which it becomes if it is coded.

    Attributes:
        headers: The headers by their names in lower case.
    """

    idle: list[_Connection]

    def __init__(
        self,
        connection: _Connection,
        status_code: int,
        headers: Mapping[str, str],
        framing: _Framing,
        unread: bytes,
        timeout: float,
    ) -> None:
        self.status_code, self.headers = status_code, headers
        self._connection, self._framing, self._unread, self._timeout = connection, framing, unread, timeout
        self._is_closed = False

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        framing, data = self._framing, self._unread
        content = framing.decode(data) if data else b""
        while True:
            if content:
                yield content
            if framing.ended:
                return
            content = framing.decode(await self._connection.read(self._timeout))

    aiter_bytes = __aiter__

    async def aclose(self) -> None:
        """Close the connection, or keep it for the next request if the body was read to its end."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._framing.ended and self._framing.is_reusable and len(self.idle) < MAX_IDLE:
            self._connection.idle_since = time.monotonic()
            self.idle.append(self._connection)
        else:
            await self._connection.close()


@dataclass(eq=False, slots=True)
class _Length:
    """A body of known length, or, if the length is None, up to the end of the connection."""

    left: int | None
    is_reusable: bool
    ended: bool = field(init=False)

    def __post_init__(self) -> None:
        self.ended = self.left == 0

    def decode(self, data: bytes) -> bytes:
        if self.left is None:
            self.ended = not data
            return data
        if not data:
            raise httpx2.RemoteProtocolError(
                "peer closed connection without sending complete message body (too few bytes of its length)"
            )
        content = data[: self.left]
        self.is_reusable = self.is_reusable and len(data) <= self.left
        self.left -= len(content)
        self.ended = not self.left
        return content


@dataclass(eq=False, slots=True)
class _Chunks:
    """A body in chunks."""

    is_reusable: bool
    ended: bool = False
    _left: int = 0
    """The bytes of the current chunk that are still to come."""
    _rest: bytes = b""
    """Bytes that say too little yet."""
    _begin: re.Pattern[bytes] = _FIRST_CHUNK
    _is_last: bool = False

    def decode(self, data: bytes) -> bytes:
        if not data:
            raise httpx2.RemoteProtocolError(
                "peer closed connection without sending complete message body (incomplete chunked read)"
            )
        data, at, content = self._rest + data, 0, []
        while not self._is_last:
            if self._left:
                content.append(data[at : at + self._left])
                at += len(content[-1])
                self._left -= len(content[-1])
                if self._left:
                    break
            found = self._begin.match(data, at)
            if found is None:
                if data.find(b"\n", at + 2) >= 0:
                    raise httpx2.RemoteProtocolError(f"illegal chunk header: {data[at : at + 40]!r}")
                break
            self._begin, self._left, at = _NEXT_CHUNK, int(found[1], 16), found.end()
            if not self._left:
                self._is_last = True
                at -= 2  # further headers, if there are any, begin after this line end, and end with an empty line
        self._rest = data[at:]
        if self._is_last and (end := self._rest.find(b"\r\n\r\n")) >= 0:
            self.ended = True
            self.is_reusable = self.is_reusable and end + 4 == len(self._rest)
        elif len(self._rest) > _MAX_LINE:
            raise httpx2.RemoteProtocolError("a line between chunks is too long")
        return b"".join(content)


def _encode_head(request: httpx2.Request) -> bytes:
    """Return the request line and the headers of a request, but for the length of its body."""
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    for name, value in request.headers.raw:
        line = b"%b: %b" % (name, value)
        if not _HEADER.fullmatch(line):
            raise httpx2.LocalProtocolError(f"illegal header {name.decode('latin-1')!r}")
        if name.lower() != b"content-length":
            lines.append(line)
    return b"\r\n".join((*lines, b""))


async def _read_head(connection: _Connection, timeout: float) -> DirectResponse:
    """Return the response, of which the head, and perhaps more, has been read."""
    data = b""
    while True:
        found = _HEAD_END.search(data)
        if found is None:
            if len(data) > _MAX_HEAD:
                raise httpx2.RemoteProtocolError("the head of the response is too long")
            received = await connection.read(timeout)
            if not received:
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
            data += received
            continue
        status, headers, framing = _parse_head(data[: found.start()])
        data = data[found.end() :]
        # 100 and 103 announce the response; 101 would be the answer to a question that was not asked.
        if status == 101 or status >= 200:
            return DirectResponse(connection, status, headers, framing, data, timeout)


def _parse_head(head: bytes) -> tuple[int, Mapping[str, str], _Framing]:
    # A line that begins with a space continues the one before it; single line feeds end lines, too.
    first, *lines = re.sub(rb"\r?\n[ \t]+", b" ", head).split(b"\n")
    found = _STATUS_LINE.fullmatch(first.removesuffix(b"\r"))
    if found is None:
        raise httpx2.RemoteProtocolError(f"illegal status line: {first[:100]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line.removesuffix(b"\r"))
        if header is None:
            raise httpx2.RemoteProtocolError(f"illegal header line: {line[:100]!r}")
        name, value = header[1].decode("ascii").lower(), header[2].strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    status = int(found[2])
    stays = found[1] >= b"1.1" and "close" not in headers.get("connection", "").lower()
    return status, headers, _choose_framing(status, headers, stays=stays)


def _choose_framing(status: int, headers: Mapping[str, str], *, stays: bool) -> _Framing:
    if status in (204, 304):
        return _Length(0, stays)
    if (coding := headers.get("transfer-encoding")) is not None:
        if coding.lower() != "chunked":
            raise httpx2.RemoteProtocolError(f"unknown transfer encoding {coding[:40]!r}")
        # Of a message with both, one reader takes the length and another one the chunks: nothing may follow it.
        return _Chunks(stays and "content-length" not in headers)
    if (length := headers.get("content-length")) is None:
        return _Length(None, is_reusable=False)
    [length, *contradicting] = {each.strip() for each in length.split(",")}
    if contradicting or not re.fullmatch("[0-9]{1,20}", length):
        raise httpx2.RemoteProtocolError("the lengths of the response contradict each other, or are no numbers")
    return _Length(int(length), stays)

"""The HTTP client. This module imports httpx2, so it is itself imported only for the first request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
import httpcore2
import httpx2

from dial_client.messages.errors import ProviderError
from dial_client.runtime.network_environment import describe_problem, needs_no_proxy

# Seconds for which an idle connection is kept open, because tools run between two requests of a turn.
_KEEPALIVE = 30.0
_MAX_IDLE = 20
# The errors of httpcore2, each of which httpx2 has under the same name.
_CORE_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)


def make_client(url: str, *, is_local: bool) -> httpx2.AsyncBaseTransport:
    """Return a client without default headers, cookies and redirects.

    Args:
        url: The address of the endpoint. Without TLS the trust store is not read, which saves 0.1 seconds.
        is_local: True if the endpoint is on this machine; no proxy is used then.

    Raises:
        ProviderError: The environment names a proxy or a trust store that cannot be used.
    """
    is_secure = url.startswith("https:")
    try:
        # A proxy cannot reach the loopback of this machine, and would read what stays local.
        if is_local or needs_no_proxy(url):
            return DirectTransport(httpx2.create_ssl_context(trust_env=not is_local) if is_secure else None)
        return ProxiedTransport(is_secure=is_secure)
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        raise ProviderError(describe_problem(error), code="connection") from None


class DirectTransport(httpx2.AsyncBaseTransport):
    """Connections to an endpoint without a proxy: a fifth of the time of a request went into httpx2's own client.

    Args:
        ssl_context: The trust store; None for an endpoint without TLS.
    """

    def __init__(self, ssl_context: Any) -> None:
        # No limit of connections: how many turns run at once is decided where turns start, and a request that waits for
        # a connection would fail as if the endpoint had not answered in time.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=None,
            max_keepalive_connections=_MAX_IDLE,
            keepalive_expiry=_KEEPALIVE,
            network_backend=_JoiningBackend(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response with its body unread."""
        url = request.url
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        core_request = httpcore2.Request(
            request.method, target, headers=request.headers.raw, content=request.content, extensions=request.extensions
        )
        try:
            response = await self._pool.handle_async_request(core_request)
        except _CORE_ERRORS as error:
            raise _translate(error) from error
        return httpx2.Response(response.status, headers=response.headers, stream=_Body(response.stream))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of a response, which closes all generators that it reads from, even if it is not read to its end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        pieces = aiter(self._stream)
        try:
            async for piece in pieces:
                yield piece
        except _CORE_ERRORS as error:
            raise _translate(error) from error
        finally:
            await pieces.aclose()

    async def aclose(self) -> None:
        """Close the connection, or return it to the pool if the body was read to its end."""
        await self._stream.aclose()


def _translate(error: Exception) -> Exception:
    translated: Exception = getattr(httpx2, type(error).__name__)(str(error))
    return translated


class _JoiningBackend(httpcore2.AnyIOBackend):
    """Opens connections that send the head and the body of a request together."""

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return _JoinedWrites(await super().connect_tcp(*args, **options))


class _JoinedWrites(httpcore2.AsyncNetworkStream):
    """A connection that sends a request at its end, so that the endpoint wakes once, and not for its head alone.

    httpcore2 writes the head, the pieces of the body, and nothing as the end of a body of known length.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._unsent: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            await self.write(b"", timeout)
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:
            self._unsent.append(buffer)
        elif self._unsent:
            request = b"".join(self._unsent)
            self._unsent.clear()
            await self._stream.write(request, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return _JoinedWrites(await self._stream.start_tls(*args, **options))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class ProxiedTransport(httpx2.AsyncBaseTransport):
    """Connections through the proxy that the environment names.

    Args:
        is_secure: Whether the endpoint has TLS: the trust store is needed for it only.
    """

    def __init__(self, *, is_secure: bool) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE, keepalive_expiry=_KEEPALIVE)
        # A redirect would carry the key and the conversation to a host that nobody has named.
        self._client = httpx2.AsyncClient(verify=is_secure, follow_redirects=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response with its body unread."""
        # auth=None: otherwise httpx2 would send a password of .netrc for this host.
        response = await self._client.send(request, stream=True, auth=None)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = CleanlyClosedStream(response.stream)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class CleanlyClosedStream(httpx2.AsyncByteStream):
    """A response body that closes all generators it reads from, even if it is not read to its end.

    httpx2 (2.16) does not close one of the generators that read from the connection, and trio warns about that.
    This class closes the connection first, and then reads that generator to its end.
    """

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        pieces = self._stream.__aiter__()
        try:
            async for piece in pieces:
                yield piece
        finally:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
                with suppress(httpx2.HTTPError, httpx2.StreamError):
                    async for _ in pieces:
                        pass

    async def aclose(self) -> None:
        """Close the connection, or return it to the pool if the body was read to its end."""
        await self._stream.aclose()

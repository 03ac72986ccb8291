"""The HTTP client. This module imports httpx2, so it is itself imported only for the first request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

import anyio
import httpx2

from dial_client.messages.errors import ProviderError
from dial_client.providers.http.direct_transport import KEEPALIVE, MAX_IDLE, DirectTransport
from dial_client.runtime.network_environment import describe_problem, needs_no_proxy


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


class ProxiedTransport(httpx2.AsyncBaseTransport):
    """Connections through the proxy that the environment names.

    Args:
        is_secure: Whether the endpoint has TLS: the trust store is needed for it only.
    """

    def __init__(self, *, is_secure: bool) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE)
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

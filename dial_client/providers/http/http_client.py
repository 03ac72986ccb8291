"""The HTTP client. This module imports httpx2, so it is itself imported only for the first request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

import anyio
import httpx2

from dial_client.messages.errors import ProviderError
from dial_client.runtime.network_environment import describe_problem, needs_no_proxy

# Seconds for which an idle connection is kept open, because tools run between two requests of a turn.
_KEEPALIVE = 30.0


def make_client(url: str, *, is_local: bool) -> httpx2.AsyncClient:
    """Return a client without default headers, cookies and redirects.

    Args:
        url: The address of the endpoint. Without TLS the trust store is not read, which saves 0.1 seconds.
        is_local: True if the endpoint is on this machine; no proxy is used then.

    Raises:
        ProviderError: The environment names a proxy or a trust store that cannot be used.
    """
    # No limit of connections: how many turns run at once is decided where turns start, and a request that waits for a
    # connection would fail as if the endpoint had not answered in time.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE)
    is_secure = url.startswith("https:")
    try:
        # A client without a transport of its own fails for a proxy that it cannot use, whatever `NO_PROXY` says.
        direct = (
            httpx2.AsyncHTTPTransport(verify=is_secure, limits=limits) if not is_local and needs_no_proxy(url) else None
        )
        return httpx2.AsyncClient(
            # The trust store is needed for TLS only.
            verify=is_secure,
            # A redirect would carry the key and the conversation to a host that nobody has named.
            follow_redirects=False,
            # A proxy cannot reach the loopback of this machine, and would read what stays local.
            trust_env=not is_local,
            limits=limits,
            transport=direct,
        )
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        raise ProviderError(describe_problem(error), code="connection") from None


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

"""httpx2 as it is used here. Imported with the first request, for it loads httpx2."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

import anyio
import httpx2

from dial_client.errors import ProviderError

_KEPT_OPEN = 30.0
"""Seconds a connection nobody uses is kept: the tools of a round are at work meanwhile."""


def make_client(*, is_local: bool, is_secure: bool) -> httpx2.AsyncClient:
    """Make a client; what it may send is up to the requests it is given.

    Args:
        is_local: a proxy cannot know what runs on this machine.
        is_secure: else the trust store would be read for nothing, which takes a tenth of a second.

    Raises:
        ProviderError: the environment names a proxy or a trust store that cannot be used.
    """
    try:
        return httpx2.AsyncClient(
            verify=is_secure,
            follow_redirects=False,
            trust_env=not is_local,
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEPT_OPEN),
        )
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        problem = "the proxy or the certificates that the environment names cannot be used"
        raise ProviderError(f"{problem}: {error}", code="connection") from None


class ClosedWhole(httpx2.AsyncByteStream):
    """A body that leaves nothing behind when it is not read to its end.

    httpx2 (2.16) drops one of the generators that read from the connection. asyncio forgives it; trio warns of it. Here
    the connection is closed first, and then that generator is driven to its end.
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
        """Close the connection, or give it back if all was read."""
        await self._stream.aclose()

"""The way to one endpoint over HTTP: bytes go out, an answer comes back with its body unread, or a `ProviderError`.

Nothing leaves but the endpoint's own headers and a few that say how to answer: no cookie, no ``.netrc``, no key of the
environment. No redirect is followed.
"""

from __future__ import annotations

import threading
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import anyio
from anyio import to_thread

from dial_client import __version__
from dial_client.logs import get_logger
from dial_client.model import OnWait
from dial_client.providers.http import provider_errors, retry_policy
from dial_client.providers.http.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)

CONNECT_TIMEOUT = 10.0
_MAX_REFUSAL = 1024 * 1024
"""Bytes of a refusal that are read; more is no message."""
_REFUSAL_TIMEOUT = 10.0
"""Seconds for the body of a refusal: its status has said what matters."""
_MAX_JSON = 4 * 1024 * 1024
"""Bytes of an answer to `HttpTransport.get`."""


class HttpTransport:
    """The connections to one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client: httpx2.AsyncClient | None = None
        self._lock = threading.Lock()

    def preload(self) -> httpx2.AsyncClient:
        """Import httpx2 and make its client, which takes a while; safe in any thread, and more than once.

        Raises:
            ProviderError: the environment names a proxy or a trust store that cannot be used.
        """
        with self._lock:
            client = self._client
            if client is None:
                began = time.monotonic()
                from dial_client.providers.http.http_client import make_client

                url = self.endpoint.base_url
                client = make_client(is_local=self.endpoint.is_local, is_secure=url.startswith("https:"))
                self._client = client
                log.debug("http_loaded", seconds=round(time.monotonic() - began, 3))
            return client

    async def post(
        self, path: str, body: bytes, *, idle_timeout: float, notes: list[str], on_wait: OnWait | None = None
    ) -> httpx2.Response:
        """Send a request, and give the answer with its body unread; whoever gets it closes it.

        A busy endpoint is asked again for as long as that makes sense, see `retries`.

        Args:
            path: begins with a slash; is put behind the endpoint's address.
            body: JSON.
            idle_timeout: seconds to wait for each next piece of the answer.
            notes: gets what the user should know of the waits.
            on_wait: hears of the longer ones while they last.

        Raises:
            ProviderError: nobody answered, or the answer is a refusal.
        """
        patience = retry_policy.RetryState(self.endpoint.host, on_wait)
        try:
            while True:
                answer = await self._send("POST", path, body, idle_timeout)
                if not isinstance(answer, retry_policy.Failure):
                    return answer
                await patience.after(answer)
        finally:
            notes.extend(patience.notes())

    async def get(self, path: str, *, timeout: float) -> Any:
        """Ask once for a JSON text of 4 MiB at most, and give its value.

        Args:
            path: begins with a slash; is put behind the endpoint's address.
            timeout: seconds for all of it.

        Raises:
            ProviderError: nobody answered in time, the answer is a refusal, or no JSON, or too long.
        """
        with anyio.move_on_after(timeout):
            answer = await self._send("GET", path, None, timeout)
            if isinstance(answer, retry_policy.Failure):
                raise answer.error
            body = await _beginning(answer, _MAX_JSON + 1, timeout)
            return provider_errors.json_answer(self.endpoint, body, _MAX_JSON)
        raise provider_errors.unreachable(self.endpoint, TimeoutError())

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _send(
        self, method: str, path: str, body: bytes | None, idle_timeout: float
    ) -> httpx2.Response | retry_policy.Failure:
        client = self._client
        if client is None:
            client = await to_thread.run_sync(self.preload, abandon_on_cancel=True)
        import httpx2

        from dial_client.providers.http.http_client import ClosedWhole

        timeout = httpx2.Timeout(idle_timeout, connect=CONNECT_TIMEOUT)
        extensions = {"timeout": timeout.as_dict()}
        try:
            request = httpx2.Request(
                method, self._url(path), headers=self._headers(body), content=body, extensions=extensions
            )
            response = await client.send(request, stream=True, auth=None)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            again = retry_policy.after_break(error, is_local=self.endpoint.is_local)
            return retry_policy.Failure(provider_errors.unreachable(self.endpoint, error), again)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = ClosedWhole(response.stream)
        if response.is_success:
            return response
        said = await _beginning(response, _MAX_REFUSAL, _REFUSAL_TIMEOUT)
        refusal = provider_errors.refused(self.endpoint, response.status_code, response.headers, said)
        return retry_policy.Failure(refusal, retry_policy.after_refusal(refusal, response.headers, said))

    def _url(self, path: str) -> str:
        base = urlsplit(self.endpoint.base_url)
        query = "&".join(part for part in (base.query, urlencode(self.endpoint.query)) if part)
        return urlunsplit((base.scheme, base.netloc, base.path.rstrip("/") + path, query, ""))

    def _headers(self, body: bytes | None) -> dict[str, str]:
        own = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "gzip, deflate",
            "user-agent": f"dial-client/{__version__}",
        }
        if body is not None:
            own["content-type"] = "application/json"
        return own | dict(self.endpoint.headers)


async def _beginning(response: httpx2.Response, most: int, timeout: float) -> bytes:
    """Read `most` bytes of a body, or what can be had of it in `timeout` seconds, and close it."""
    import httpx2

    pieces: list[bytes] = []
    length = 0
    try:
        with anyio.move_on_after(timeout), suppress(httpx2.HTTPError, httpx2.StreamError):
            async with aclosing(response.aiter_bytes()) as body:
                async for piece in body:
                    pieces.append(piece)
                    length += len(piece)
                    if length >= most:
                        break
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
    return b"".join(pieces)[:most]

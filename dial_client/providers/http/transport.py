"""The HTTP transport to one endpoint: sends requests, and returns responses with their bodies unread.

A request has only the endpoint's own headers, the content negotiation headers and a user agent: no cookies, no
credentials of ``.netrc``, no key from the environment. Redirects are not followed.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import anyio
from anyio import to_thread

from dial_client import __version__
from dial_client.messages.model import OnWait
from dial_client.providers.http import provider_errors, retry_policy
from dial_client.providers.http.endpoint import Endpoint
from dial_client.runtime.logs import get_logger

if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)

CONNECT_TIMEOUT = 10.0
# The most bytes of an error response that are read.
_MAX_ERROR_BODY = 1024 * 1024
# Seconds to read the body of an error response. The status alone is enough for an error message.
_ERROR_BODY_TIMEOUT = 10.0
# The most bytes of a response to `HttpTransport.get` and `HttpTransport.fetch`.
_MAX_JSON_BODY = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """A response that was read, with the first 4 MiB of its body, and one byte more if the body is longer."""

    status: int
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes = field(repr=False)


class RequestTransport(ABC):
    """Sends the requests of an `HttpProvider` with the retry policy of this package, through any client.

    Args:
        endpoint: The address, and the headers of every request.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client: Any = None
        self._lock = threading.Lock()

    def preload(self) -> Any:
        """Create the client, if there is none, and return it: slow the first time. May be called in any thread.

        Raises:
            DialError: The client cannot be created with the current settings.
        """
        # Two requests at once must not create two clients.
        with self._lock:
            if self._client is None:
                began = time.monotonic()
                self._client = self._create_client()
                log.debug("client_loaded", host=self.endpoint.host, seconds=round(time.monotonic() - began, 3))
            return self._client

    @abstractmethod
    def _create_client(self) -> Any:
        """Import the client's package, and return a new client."""

    @abstractmethod
    async def _send(self, path: str, body: bytes, idle_timeout: float) -> httpx2.Response | retry_policy.FailedRequest:
        """Send a POST request once, and return the response with its body unread, or a failure."""

    async def _get_client(self) -> Any:
        return self._client or await to_thread.run_sync(self.preload, abandon_on_cancel=True)

    def post(
        self,
        path: str,
        body: bytes,
        *,
        idle_timeout: float,
        notes: list[str],
        on_wait: OnWait | None = None,
        patience: float = 0.0,
    ) -> Awaitable[httpx2.Response]:
        """Send a request, and return the response with its body unread. The caller closes the response.

        A failed request is retried according to `retry_policy`.

        Args:
            path: The path with a leading slash, which is appended to the endpoint's address.
            body: The request body, in JSON.
            idle_timeout: Seconds to wait for each read of the response.
            notes: Receives notes for the user about retries.
            on_wait: Called before and after each wait of a second or more.
            patience: Seconds for which a limited rate is retried (`ModelRequest.patience`).

        Raises:
            ProviderError: There is no response, or its status is not 2xx.
        """
        # This is no coroutine of its own: the caller awaits the retry policy directly.
        send = partial(self._send, path, body, idle_timeout)
        return retry_policy.send_until_accepted(send, self.endpoint, notes, on_wait, patience)

    def read_body(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body of a response as it arrives.

        Raises:
            httpx2.HTTPError: The connection broke before the end of the body.
        """
        stream: Any = response.stream
        return response.aiter_bytes() if "content-encoding" in response.headers else aiter(stream)

    def _build_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> retry_policy.FailedRequest:
        error = provider_errors.build_refusal_error(self.endpoint, status, headers, body)
        return retry_policy.FailedRequest(error, retry_policy.classify_refusal(error, headers, body))

    def _build_connection_failure(self, error: BaseException) -> retry_policy.FailedRequest:
        retry = retry_policy.classify_connection_error(error, is_local=self.endpoint.is_local)
        return retry_policy.FailedRequest(provider_errors.build_connection_error(self.endpoint, error), retry)

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class HttpTransport(RequestTransport):
    """The connections to one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        # What the URL and the headers were built from, and both: reading an address takes longer than sending to it.
        self._head: tuple[tuple[Endpoint, str, str, bool], httpx2.URL, httpx2.Headers] | None = None

    def _create_client(self) -> httpx2.AsyncBaseTransport:
        from dial_client.providers.http.http_client import make_client

        return make_client(self.endpoint.base_url, is_local=self.endpoint.is_local)

    async def get(self, path: str, *, timeout: float) -> Any:
        """Send one GET request for JSON of at most 4 MiB, and return the parsed value.

        Args:
            path: The path with a leading slash, which is appended to the endpoint's address.
            timeout: Seconds for the request and the whole response.

        Raises:
            ProviderError: There is no response in time, its status is not 2xx, it is not JSON, or it is too long.
        """
        response = await self.fetch("GET", path, timeout=timeout)
        if not 200 <= response.status < 300:
            raise provider_errors.build_refusal_error(
                self.endpoint, response.status, response.headers, response.body[:_MAX_ERROR_BODY]
            )
        return provider_errors.parse_json_response(self.endpoint, response.body, _MAX_JSON_BODY)

    async def fetch(self, method: str, path: str, *, timeout: float, body: bytes | None = None) -> FetchedResponse:
        """Send one request without retries, and return the response, whatever its status.

        Args:
            method: ``GET`` or ``POST``.
            path: The path with a leading slash, which is appended to the endpoint's address.
            timeout: Seconds for the request and the whole response.
            body: The request body, in JSON; None for no body.

        Raises:
            ProviderError: There is no response in time.
        """
        await self._get_client()  # the imports of the first client take long on a busy machine: no part of the answer
        with anyio.move_on_after(timeout):
            response = await self._send(path, body, timeout, method, returns_refusals=True)
            if isinstance(response, retry_policy.FailedRequest):
                raise response.error
            content = await _read_start(response, _MAX_JSON_BODY + 1, timeout)
            return FetchedResponse(response.status_code, dict(response.headers), content)
        raise provider_errors.build_connection_error(self.endpoint, TimeoutError())

    async def _send(
        self,
        path: str,
        body: bytes | None,
        idle_timeout: float,
        method: str = "POST",
        *,
        returns_refusals: bool = False,
    ) -> httpx2.Response | retry_policy.FailedRequest:
        """Send one request, and return the response with its body unread, or a failure.

        A response whose status is not 2xx is a failure too, unless `returns_refusals` is set.
        """
        client = await self._get_client()
        import httpx2

        timeout = {"connect": CONNECT_TIMEOUT, "read": idle_timeout, "write": idle_timeout, "pool": idle_timeout}
        try:
            url, headers = self._build_head(method, path, has_body=body is not None)
            if body is not None:
                headers["Content-Length"] = str(len(body))
            stream = httpx2.ByteStream(body or b"")
            request = httpx2.Request(method, url, headers=headers, stream=stream, extensions={"timeout": timeout})
            response: httpx2.Response = await client.handle_async_request(request)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            return self._build_connection_failure(error)
        if response.is_success or returns_refusals:
            return response
        body = await _read_start(response, _MAX_ERROR_BODY, _ERROR_BODY_TIMEOUT)
        return self._build_refusal(response.status_code, response.headers, body)

    def _build_head(self, method: str, path: str, *, has_body: bool) -> tuple[httpx2.URL, httpx2.Headers]:
        """Return the URL and the headers of a request, without the length of its body."""
        import httpx2

        key = (self.endpoint, method, path, has_body)
        if self._head is None or self._head[0] != key:
            # This request is never sent: it has the headers that httpx2 adds to each.
            empty = httpx2.Request(method, self._build_url(path), headers=self._build_headers(has_body=has_body))
            self._head = (key, empty.url, empty.headers)
        return self._head[1], self._head[2].copy()

    def _build_url(self, path: str) -> str:
        base = urlsplit(self.endpoint.base_url)
        # Gateways put a tenant or a version into the query of the address, so it is kept.
        query = "&".join(part for part in (base.query, urlencode(self.endpoint.query)) if part)
        return urlunsplit((base.scheme, base.netloc, base.path.rstrip("/") + path, query, ""))

    def _build_headers(self, *, has_body: bool) -> dict[str, str]:
        headers = {
            "accept": "text/event-stream, application/json",
            # Not brotli or zstd: httpx2 decodes them only with further packages.
            "accept-encoding": "gzip, deflate",
            "user-agent": f"dial-client/{__version__}",
        }
        # A GET request without a body must not announce one: some gateways refuse it.
        if has_body:
            headers["content-type"] = "application/json"
        # Last, so that a profile may replace any header.
        return headers | dict(self.endpoint.headers)


async def _read_start(response: httpx2.Response, max_length: int, timeout: float) -> bytes:
    """Return the first `max_length` bytes of a body, or those that arrive within `timeout` seconds, and close it."""
    import httpx2

    pieces: list[bytes] = []
    length = 0
    try:
        with anyio.move_on_after(timeout), suppress(httpx2.HTTPError, httpx2.StreamError):
            async with aclosing(response.aiter_bytes()) as body:
                async for piece in body:
                    pieces.append(piece)
                    length += len(piece)
                    if length >= max_length:
                        break
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
    return b"".join(pieces)[:max_length]

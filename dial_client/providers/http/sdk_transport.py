"""The transport through a vendor's SDK client, which authenticates requests and routes them to the endpoint.

This package uses the SDK's authentication, its HTTP client with proxies and hooks, and its middleware. It builds the
request bodies itself, and reads responses as bytes, so no SDK types are created. The SDK's retries are off: the retry
policy of this package applies.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import jiter
from anyio import to_thread

from dial_client.messages.errors import DialError
from dial_client.messages.model import OnWait
from dial_client.providers.http import provider_errors, retry_policy
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.transport import CONNECT_TIMEOUT
from dial_client.providers.tool_call_codec import to_json_bytes
from dial_client.runtime.logs import get_logger

CONTENT_TYPE = "application/vnd.amazon.eventstream"


async def convert_to_sse(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream as server-sent events. Exception frames become events of the type ``error``.

    Raises:
        ValueError: A frame is damaged.
    """
    from botocore.eventstream import EventStreamBuffer, ParserError

    buffer = EventStreamBuffer()
    async with aclosing(pieces):
        async for piece in pieces:
            buffer.add_data(piece)
            try:
                events = [_to_sse(event.headers, event.payload) for event in buffer]
            except ParserError as error:
                raise ValueError(f"a frame of the event stream is damaged: {error}") from None
            if data := b"".join(events):
                yield data


def _to_sse(headers: Mapping[str, Any], payload: bytes) -> bytes:
    """Return a frame as a server-sent event; empty bytes for a frame without a chunk."""
    if headers.get(":message-type") != "event":
        kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
        message = headers.get(":error-message") or _read_object(payload).get("message") or ""
        return _write_event(to_json_bytes({"type": "error", "error": {"type": str(kind), "message": str(message)}}))
    chunk = _read_object(payload).get("bytes")
    return _write_event(base64.b64decode(chunk)) if isinstance(chunk, str) else b""


def _read_object(payload: bytes) -> dict[str, Any]:
    try:
        value = jiter.from_json(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _write_event(data: bytes) -> bytes:
    # A line break would end the event's line. In JSON, line breaks are only white space.
    return b"data: %s\n\n" % b" ".join(data.splitlines())


if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sdk:
    """The types that the clients of an SDK return and raise."""

    stream: type
    """The class of an unread streamed response."""
    status_error: type[Exception]
    connection_error: type[Exception]


def load_openai() -> Sdk:
    """Import `openai`, which is slow."""
    import openai

    return Sdk(openai.AsyncStream[object], openai.APIStatusError, openai.APIConnectionError)


def load_anthropic() -> Sdk:
    """Import `anthropic`, which is slow."""
    import anthropic

    return Sdk(anthropic.AsyncStream[object], anthropic.APIStatusError, anthropic.APIConnectionError)


class SdkTransport:
    """A `RequestTransport` that sends requests through a vendor's client, with the retry policy of this package.

    Args:
        load_sdk: The function that imports the SDK of the client.
        make_client: The function that returns the client; called once, in a worker thread, and again after `aclose`.
        endpoint: The address that errors name until the client is created, and additional headers of requests.
        is_owner: True if `aclose` closes the client, because no other code uses it.
    """

    def __init__(
        self, load_sdk: Callable[[], Sdk], make_client: Callable[[], Any], endpoint: Endpoint, *, is_owner: bool
    ) -> None:
        self.endpoint = endpoint
        self._load_sdk = load_sdk
        self._make_client = make_client
        self._is_owner = is_owner
        self._loaded: tuple[Any, Sdk] | None = None
        self._lock = threading.Lock()

    def preload(self) -> tuple[Any, Sdk]:
        """Import the SDK, create the client, and return both. May be called twice, and in any thread.

        Raises:
            DialError: The client cannot be created with the current settings.
        """
        # Two requests at once must not create two clients.
        with self._lock:
            if self._loaded is not None:
                return self._loaded
            try:
                client, sdk = self._make_client(), self._load_sdk()
            except DialError:
                raise
            except Exception as error:
                raise provider_errors.build_client_error(self.endpoint, error) from error
            self.endpoint = read_endpoint(client, self.endpoint)
            self._loaded = client, sdk
            log.debug("client_loaded", host=self.endpoint.host, client=type(client).__name__)
            return client, sdk

    async def post(
        self, path: str, body: bytes, *, idle_timeout: float, notes: list[str], on_wait: OnWait | None = None
    ) -> SdkResponse:
        """Send a request in the same way as `HttpTransport.post`."""
        loaded = self._loaded
        if loaded is None:
            loaded = await to_thread.run_sync(self.preload, abandon_on_cancel=True)
        client, sdk = loaded
        send = partial(self._send, client, sdk, path, body, idle_timeout)
        return await retry_policy.send_until_accepted(send, self.endpoint.host, notes, on_wait)

    async def aclose(self) -> None:
        """Close the client if this transport owns it. The next request creates a new client."""
        loaded = self._loaded
        # A client of the caller stays open: other code may use it.
        if loaded is not None and self._is_owner:
            self._loaded = None
            await loaded[0].close()

    async def _send(
        self, client: Any, sdk: Sdk, path: str, body: bytes, idle_timeout: float
    ) -> SdkResponse | retry_policy.FailedRequest:
        import httpx2

        options = {
            "headers": dict(self.endpoint.headers),
            # Two retry policies would multiply each other.
            "max_retries": 0,
            "timeout": httpx2.Timeout(idle_timeout, connect=CONNECT_TIMEOUT),
            # As for every endpoint: a redirect would carry the key to another host.
            "follow_redirects": False,
        }
        # The body is passed as an object, not as bytes, because clients for clouds move some of its fields to the path.
        fields = jiter.from_json(body)
        try:
            stream = await client.post(
                path, cast_to=object, body=fields, options=options, stream=True, stream_cls=sdk.stream
            )
        except sdk.status_error as error:
            return self._to_failure(error)
        except sdk.connection_error as error:
            cause = error.__cause__ or error
            retry = retry_policy.classify_connection_error(cause, is_local=self.endpoint.is_local)
            return retry_policy.FailedRequest(provider_errors.build_connection_error(self.endpoint, cause), retry)
        except Exception as error:
            raise provider_errors.build_client_error(self.endpoint, error) from error
        return SdkResponse(stream)

    def _to_failure(self, error: Any) -> retry_policy.FailedRequest:
        """Convert the status error of an SDK to a failure."""
        response, headers, body = error.response, error.response.headers, error.response.content
        refusal = provider_errors.build_refusal_error(self.endpoint, response.status_code, headers, body)
        return retry_policy.FailedRequest(refusal, retry_policy.classify_refusal(refusal, headers, body))


class SdkResponse:
    """The response of a vendor's client, read as the bytes of server-sent events or JSON.

    Args:
        stream: The SDK's event stream, which is closed but never iterated.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._response: httpx2.Response = stream.response

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raises:
            httpx2.HTTPError: The connection broke before the end of the body.
        """
        import httpx2

        pieces = self._response.aiter_bytes()
        if self._response.headers.get("content-type", "").startswith(CONTENT_TYPE):
            pieces = convert_to_sse(pieces)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        except (httpx2.HTTPError, httpx2.StreamError):
            raise
        except Exception as error:
            # The SDK client may have been created with another HTTP client, which raises its own errors.
            raise httpx2.ReadError(str(error)) from error

    async def aclose(self) -> None:
        """Close the response, even if it was not read."""
        with anyio.CancelScope(shield=True):
            await self._stream.close()


def read_endpoint(client: Any, endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with the address of a client, and with its key, so that errors mask the key."""
    keys = (getattr(client, name, None) for name in ("api_key", "auth_token", "access_token"))
    key = endpoint.key or next((key for key in keys if isinstance(key, str) and key), "")
    return replace(endpoint, base_url=str(client.base_url).rstrip("/"), key=key)


def read_header(headers: Mapping[str, Any], name: str) -> str:
    """Return the value of a client's header; empty if the client does not send the header."""
    return next((value for key, value in headers.items() if key.lower() == name and isinstance(value, str)), "")

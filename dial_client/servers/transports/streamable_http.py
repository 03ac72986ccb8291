"""Servers behind a URL: streamable HTTP, and the older HTTP+SSE.

The SDK lets a network error escape into the task that entered its client (mcp 2.3), so that the fault of one request
ends the connection and whoever owns it. Here every fault of a request becomes an answer to that request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import METHOD_NOT_FOUND

from dial_client.callbacks.oauth_callbacks import Login
from dial_client.errors import LoginFailed
from dial_client.servers.oauth.server_auth import Send, ServerAuth
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.transports import transport_errors
from dial_client.servers.transports.jsonrpc_lines import answer_in
from dial_client.servers.transports.rate_limit import Bucket
from dial_client.settings.configuration import ServerSettings

if TYPE_CHECKING:
    from mcp.shared._httpx_utils import McpHttpClientFactory

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 10.0
WRITE_SECONDS = 60.0
RETURNS, RETURN_PAUSE = 20, 5.0
"""Streams that are opened at once, and seconds before each further one: a server may ask us back at once, for ever."""
_MAX_REASON = 10_000
"""Bytes of an answer that are searched for words about the session."""
_TIMEOUT = httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, pool=CONNECT_SECONDS, read=None)
"""Reading has no limit of its own: a call is ended by its caller, and a stream of changes is silent for hours."""
_WEB_PAGE = "the URL leads to a web page, not to an MCP server; is it right, or does it want a login?"


class _AdmittedClient(httpx2.AsyncClient):
    """Gets its requests past the server's login: with a badge, else with the user's own headers or `httpx2.Auth`."""

    def __init__(self, settings: ServerSettings, badge: ServerAuth | None) -> None:
        self._own = settings.oauth.auth if settings.oauth is not None else None
        super().__init__(headers=dict(settings.headers), timeout=_TIMEOUT, auth=self._own)
        self._badge = badge

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send as `httpx2.AsyncClient.send` does; also raises `faults.NotAdmitted`."""
        plain: Send = partial(super().send, **options)
        try:
            return await (plain(request) if self._badge is None else self._badge.send(request, plain))
        except LoginFailed as error:
            raise transport_errors.NotAdmitted(str(error), request=request) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            raise
        except Exception as error:
            if self._own is None:
                raise
            # Its text is nobody's to show: it may hold what an authorization server said, or was told.
            raise transport_errors.NotAdmitted(f"its login failed ({type(error).__name__})", request=request) from None


class AnsweringClient(_AdmittedClient):
    """Answers a request itself, with a JSON-RPC error that says why, where the server or the network did not."""

    def __init__(self, settings: ServerSettings, badge: ServerAuth | None) -> None:
        super().__init__(settings, badge)
        self._returns = Bucket(RETURNS, 1 / RETURN_PAUSE)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send as `httpx2.AsyncClient.send` does; a POST raises no network error and gives no answer in HTML."""
        if request.method != "POST":
            if request.method == "GET" and not self._returns.take():
                await anyio.sleep(RETURN_PAUSE)
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
            return await _readable(response)
        except transport_errors.NotAdmitted as error:
            return _fault(request, 401, str(error), {"status": 401})
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return _fault(
                request, 503, transport_errors.of_network(error), {"network": transport_errors.fate_of(error)}
            )


async def _readable(response: httpx2.Response) -> httpx2.Response:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not all(" " <= letter <= "~" for letter in response.headers.get("mcp-session-id", "")):
        await response.aclose()
        return _fault(response.request, 502, "the server gave its session a name that no request may bear")
    if response.status_code < 400 and (kind == "text/event-stream" or response.next_request is not None):
        return response
    try:
        body = await _body(response)
    finally:
        await response.aclose()
    request = response.request
    if body is None:
        return _fault(request, 502, f"the server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
    if response.status_code >= 400:
        status, error = response.status_code, _error_in(body)
        forgotten = "mcp-session-id" in request.headers and _forgets_session(status, error, body)
        if error is None or forgotten:
            data = {"status": status} | ({"session": "forgotten"} if forgotten else {})
            return _fault(request, status, transport_errors.of_status(status), data)
    if kind == "text/html":
        return _fault(
            request, 502, "the URL leads to a web page, not to an MCP server: is it right, or is a login due?"
        )
    headers = {"content-type": "application/json"} if response.status_code >= 400 else {"content-type": kind}
    if "mcp-session-id" in response.headers:
        headers["mcp-session-id"] = response.headers["mcp-session-id"]
    if kind == "application/json" and response.status_code == 200 and (number := _number(request)) is not None:
        body = answer_in(body, number)
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


def _number(request: httpx2.Request) -> Any:
    # A request that follows a redirect has its body as a stream that is not read yet (httpx2 2.16).
    return json.loads(request.read()).get("id")


async def _body(response: httpx2.Response) -> bytes | None:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_MESSAGE_BYTES:
        return None
    pieces, size = [], 0
    async with aclosing(response.aiter_bytes()) as stream:
        async for piece in stream:
            pieces.append(piece)
            size += len(piece)
            if size > MAX_MESSAGE_BYTES:
                return None
    return b"".join(pieces)


def _error_in(body: bytes) -> dict[str, Any] | None:
    """Give the JSON-RPC error in an answer, None where there is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) and "code" in error else None


def _forgets_session(status: int, error: dict[str, Any] | None, body: bytes) -> bool:
    """Whether this answer to a request with a session says that there is no such session: the request was not run.

    404 is the specification's way (MCP, "Session Management"); servers made after older examples answer 400.
    """
    if status == 404:
        return error is None or error["code"] != METHOD_NOT_FOUND
    return status == 400 and transport_errors.says_forgotten(body[:_MAX_REASON].decode("utf-8", "replace"))


def _fault(request: httpx2.Request, status: int, words: str, data: dict[str, Any] | None = None) -> httpx2.Response:
    error = {"code": transport_errors.HTTP_FAULT, "message": words, "data": data or {}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class ReportingClient(_AdmittedClient):
    """For HTTP+SSE, where answers come on another stream: a POST that fails ends the connection, with the reason."""

    def __init__(self, settings: ServerSettings, badge: ServerAuth | None, on_fault: Callable[[str], None]) -> None:
        super().__init__(settings, badge)
        self._on_fault = on_fault

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send as `httpx2.AsyncClient.send` does, and report a POST that came to nothing."""
        try:
            response = await super().send(request, **options)
        except httpx2.HTTPError as error:
            if request.method == "POST":
                self._on_fault(transport_errors.of_network(error))
            raise
        if request.method == "POST" and (response.status_code >= 400 or _leads_away(response)):
            self._on_fault(transport_errors.of_status(response.status_code))
        return response


def _leads_away(response: httpx2.Response) -> bool:
    """Whether a redirect is one the SDK does not follow: to another origin, or by a request without the message."""
    to, sent = response.next_request, response.request
    if to is None:
        return False
    is_upgrade = (sent.url.scheme, to.url.scheme) == ("http", "https") and sent.url.port is to.url.port is None
    is_same = (sent.url.scheme, sent.url.port) == (to.url.scheme, to.url.port)
    return to.method != sent.method or to.url.host != sent.url.host or not (is_same or is_upgrade)


class StreamableHTTPTransport:
    """Streamable HTTP, as `mcp.Client` takes it."""

    def __init__(self, settings: ServerSettings, login: Login | None = None, mask: SecretMask | None = None) -> None:
        self._settings = settings
        self._login = login
        self._mask = mask

    async def __aenter__(self) -> Any:
        url = self._settings.url or ""
        async with AsyncExitStack() as stack:
            badge = await stack.enter_async_context(_badge(self._settings, self._login, self._mask))
            http = await stack.enter_async_context(AnsweringClient(self._settings, badge))
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            streams = await stack.enter_async_context(transport)
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


class SSETransport:
    """HTTP+SSE, as `mcp.Client` takes it; ``on_fault`` hears, in words, of a message that could not be sent."""

    def __init__(
        self,
        settings: ServerSettings,
        on_fault: Callable[[str], None],
        login: Login | None = None,
        mask: SecretMask | None = None,
    ) -> None:
        self._settings = settings
        self._on_fault = on_fault
        self._login = login
        self._mask = mask

    async def __aenter__(self) -> Any:
        async with AsyncExitStack() as stack:
            badge = await stack.enter_async_context(_badge(self._settings, self._login, self._mask))

            def client(**_: Any) -> httpx2.AsyncClient:
                return ReportingClient(self._settings, badge, self._on_fault)

            factory = cast("McpHttpClientFactory", client)
            transport = sse_client(self._settings.url or "", httpx_client_factory=factory)
            streams = await stack.enter_async_context(transport)
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


@asynccontextmanager
async def _badge(
    settings: ServerSettings, login: Login | None, mask: SecretMask | None
) -> AsyncGenerator[ServerAuth | None, None]:
    """Give what logs in to a server, while it lasts; None where the user does so, with a header or an `httpx2.Auth`."""
    has_token = any(name.lower() == "authorization" for name in settings.headers)
    if has_token if settings.oauth is None else settings.oauth.auth is not None:
        yield None
        return
    async with ServerAuth(settings, login, mask=mask) as badge:
        yield badge

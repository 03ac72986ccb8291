"""HTTP transports: streamable HTTP, and the older HTTP+SSE.

The SDK (mcp 2.3) raises a network error in the task that entered its client, so that the failure of one request ends
the connection and that task. Here every failed request of streamable HTTP gets an error response instead.

To read the certificates of authorities takes 40 ms of processor time, which each connection to a server would spend:
they are read once in a process.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import METHOD_NOT_FOUND

from dial_client.hooks.server_callbacks import Login
from dial_client.messages.errors import LoginFailed
from dial_client.runtime.network_environment import describe_problem, needs_no_proxy
from dial_client.runtime.token_bucket import TokenBucket
from dial_client.servers.oauth.login_stores import LoginStore
from dial_client.servers.oauth.oauth_http_client import read_body
from dial_client.servers.oauth.server_auth import Send, ServerAuth
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.transports import transport_errors
from dial_client.servers.transports.response_repair import find_response
from dial_client.settings.config_types import ServerSettings

if TYPE_CHECKING:
    from mcp.shared._httpx_utils import McpHttpClientFactory

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 10.0
WRITE_SECONDS = 60.0
# GET streams opened without a pause, and seconds before each further one: a server may close each stream at once.
RECONNECTS, RECONNECT_PAUSE = 20, 5.0
# Bytes of a response that are searched for an error text about the session.
_MAX_REASON = 10_000
# Timeouts without a read timeout: a call is ended by its caller, and a notification stream may be silent for hours.
_TIMEOUT = httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, pool=CONNECT_SECONDS, read=None)
_WEB_PAGE = "the URL leads to a web page, not to an MCP server; is it the right URL, or does it require a login?"


class _AuthenticatedClient(httpx2.AsyncClient):
    """Authorizes requests: with a `ServerAuth`, otherwise with the configured headers or the user's `httpx2.Auth`."""

    def __init__(self, settings: ServerSettings, server_auth: ServerAuth | None) -> None:
        self._user_auth = settings.oauth.auth if settings.oauth is not None else None
        try:
            # A client without a transport of its own fails for a proxy that it cannot use, whatever `NO_PROXY` says.
            verify = find_tls_context(settings.url or "")
            direct = httpx2.AsyncHTTPTransport(verify=verify) if needs_no_proxy(settings.url or "") else None
            super().__init__(
                headers=dict(settings.headers), timeout=_TIMEOUT, auth=self._user_auth, transport=direct, verify=verify
            )
        except (ImportError, ValueError, OSError) as error:
            raise ValueError(describe_problem(error)) from None
        self._server_auth = server_auth

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request as `httpx2.AsyncClient.send` does.

        Raises:
            transport_errors.AuthenticationFailed: The request could not be authorized.
        """
        plain: Send = partial(super().send, **options)
        try:
            return await (plain(request) if self._server_auth is None else self._server_auth.send(request, plain))
        except LoginFailed as error:
            raise transport_errors.AuthenticationFailed(str(error), request=request) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            raise
        except Exception as error:
            if self._user_auth is None:
                raise
            # The error's text is not shown: it may contain secrets that were sent to an authorization server.
            raise transport_errors.AuthenticationFailed(
                f"its login failed ({type(error).__name__})", request=request
            ) from None


class FailureTolerantClient(_AuthenticatedClient):
    """Turns each failed POST into a response with a JSON-RPC error."""

    def __init__(self, settings: ServerSettings, server_auth: ServerAuth | None) -> None:
        super().__init__(settings, server_auth)
        self._reconnects = TokenBucket(RECONNECTS, 1 / RECONNECT_PAUSE)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a POST raises no network error, and returns JSON-RPC or an event stream, never HTML."""
        if request.method != "POST":
            # The SDK opens a lost GET stream again without a limit: a server that closes each stream at once would keep
            # both sides busy.
            if request.method == "GET" and not self._reconnects.take():
                await anyio.sleep(RECONNECT_PAUSE)
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
            return await _to_valid_response(response)
        except transport_errors.AuthenticationFailed as error:
            return _build_error_response(request, 401, str(error), {"status": 401})
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            is_unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            outcome = transport_errors.UNSENT if is_unsent else transport_errors.BROKEN
            message = transport_errors.describe_network_error(error)
            return _build_error_response(request, 503, message, {"network": outcome})


async def _to_valid_response(response: httpx2.Response) -> httpx2.Response:
    """Return the answer to a POST in a form that the SDK reads, as these cases say; the first that fits counts.

    ==================================================  ======================================================
    session id with characters no header may have       error 502
    an event stream, or a redirect                      unchanged: the SDK reads it
    body of more than `MAX_MESSAGE_BYTES`               error 502
    status >= 400 without a JSON-RPC error, or with a   error with this status; ``data`` has the status, and says
    rejection of the session id                         whether the session was rejected
    status >= 400 with a JSON-RPC error                 this error, as JSON
    a web page                                          error 502
    status 200 with JSON                                the response to this request, repaired
    any other                                           the body, with its type
    ==================================================  ======================================================
    """
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    # The SDK copies the id into the headers of later requests: a line break in it would add headers of the server's
    # choice (header injection), and any other character outside of visible ASCII would make those requests fail.
    if not all(" " <= character <= "~" for character in response.headers.get("mcp-session-id", "")):
        await response.aclose()
        problem = "the server's session id has characters that are not allowed in a header"
        return _build_error_response(response.request, 502, problem)
    if response.status_code < 400 and (kind == "text/event-stream" or response.next_request is not None):
        return response
    try:
        body = await read_body(response, MAX_MESSAGE_BYTES)
    finally:
        await response.aclose()
    if body is None:
        problem = f"the server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes"
        return _build_error_response(response.request, 502, problem)
    if response.status_code >= 400:
        return _to_error(response, body)
    if kind == "text/html":
        return _build_error_response(response.request, 502, _WEB_PAGE)
    if kind == "application/json" and response.status_code == 200:
        # After a redirect, the request's body is a stream that was not read yet (httpx2 2.16).
        request_id = json.loads(response.request.read()).get("id")
        body = body if request_id is None else find_response(body, request_id)
    return _with_body(response, kind, body)


def _to_error(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """Return the JSON-RPC error of a response with an error status, or one made from the status."""
    status, error = response.status_code, _find_error(body)
    is_rejected = "mcp-session-id" in response.request.headers and _rejects_session(status, error, body)
    if error is not None and not is_rejected:
        return _with_body(response, "application/json", body)
    data = {"status": status} | ({"session": "rejected"} if is_rejected else {})
    return _build_error_response(response.request, status, transport_errors.describe_http_status(status), data)


def _with_body(response: httpx2.Response, kind: str, body: bytes) -> httpx2.Response:
    headers = {"content-type": kind}
    if "mcp-session-id" in response.headers:
        headers["mcp-session-id"] = response.headers["mcp-session-id"]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


def _find_error(body: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC error in a response's body; None if there is none."""
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = response.get("error") if isinstance(response, dict) else None
    return error if isinstance(error, dict) and "code" in error else None


def _rejects_session(status: int, error: dict[str, Any] | None, body: bytes) -> bool:
    """Return True if a response rejects the session id of its request, which therefore was not processed.

    The specification requires 404 (MCP, "Session Management"); servers based on older examples answer 400.
    """
    if status == 404:
        return error is None or error["code"] != METHOD_NOT_FOUND
    return status == 400 and transport_errors.says_session_unknown(body[:_MAX_REASON].decode("utf-8", "replace"))


def _build_error_response(
    request: httpx2.Request, status: int, message: str, data: dict[str, Any] | None = None
) -> httpx2.Response:
    error = {"code": transport_errors.HTTP_FAILURE, "message": message, "data": data or {}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class ReportingClient(_AuthenticatedClient):
    """The client for HTTP+SSE, where responses arrive on another stream: a failed POST ends the connection.

    Args:
        settings: The server's settings.
        server_auth: Authorizes requests; None if the configuration supplies the authorization.
        on_failure: Is called with the reason when a POST failed.
    """

    def __init__(
        self, settings: ServerSettings, server_auth: ServerAuth | None, on_failure: Callable[[str], None]
    ) -> None:
        super().__init__(settings, server_auth)
        self._on_failure = on_failure

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request as `httpx2.AsyncClient.send` does, and report a failed POST."""
        try:
            response = await super().send(request, **options)
        except httpx2.HTTPError as error:
            if request.method == "POST":
                self._on_failure(transport_errors.describe_network_error(error))
            raise
        if request.method == "POST" and (response.status_code >= 400 or _leaves_origin(response)):
            self._on_failure(transport_errors.describe_http_status(response.status_code))
        return response


def _leaves_origin(response: httpx2.Response) -> bool:
    """Return True for a redirect the SDK does not follow: to another origin, or with another method."""
    target, sent = response.next_request, response.request
    if target is None:
        return False
    is_upgrade = (sent.url.scheme, target.url.scheme) == ("http", "https") and sent.url.port is target.url.port is None
    is_same = (sent.url.scheme, sent.url.port) == (target.url.scheme, target.url.port)
    return target.method != sent.method or target.url.host != sent.url.host or not (is_same or is_upgrade)


@dataclass
class HTTPTransport:
    """A transport for `mcp.Client` over streamable HTTP or, with `on_failure`, over the older HTTP+SSE."""

    settings: ServerSettings
    login: Login | None
    """The callback for logins of the user; None if nobody can log in."""
    logins: LoginStore
    """The logins of the client."""
    mask: SecretMask
    """Masks tokens in the server's messages."""
    on_failure: Callable[[str], None] | None
    """Is called with the reason when a message cannot be sent; None for streamable HTTP."""

    async def __aenter__(self) -> Any:
        settings, on_failure = self.settings, self.on_failure
        url = settings.url or ""
        streams: Any
        async with AsyncExitStack() as stack:
            server_auth = None
            # A configured `Authorization` header, or the user's own `httpx2.Auth`, takes the place of a login.
            has_token = any(name.lower() == "authorization" for name in settings.headers)
            if not (has_token if settings.oauth is None else settings.oauth.auth is not None):
                server_auth = ServerAuth(settings, self.login, self.logins, self.mask)
                stack.push_async_callback(server_auth.aclose)
            if on_failure is None:
                http = await stack.enter_async_context(FailureTolerantClient(settings, server_auth))
                streams = await stack.enter_async_context(
                    streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
                )
            else:

                def end(reason: str) -> None:
                    # The SDK goes on to wait for an answer to the message, for ten seconds at the start.
                    on_failure(reason)
                    streams[0].close()

                reporting = ReportingClient(settings, server_auth, end)
                # The SDK would pass its own headers, timeout and authorization.
                factory = cast("McpHttpClientFactory", lambda **_: reporting)
                streams = await stack.enter_async_context(sse_client(url, httpx_client_factory=factory))
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


@lru_cache(maxsize=4)
def _read_context(file: str, folder: str) -> ssl.SSLContext:
    """Return the context of these values of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, which httpx2 reads by itself."""
    del file, folder
    return httpx2.create_ssl_context()


def _find_context() -> ssl.SSLContext:
    return _read_context(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


class _ContextForRedirects(ssl.SSLContext):
    """The context of a client for plain HTTP: a redirect to HTTPS is verified like any other connection.

    Both methods are those by which event loops begin TLS.
    """

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return _find_context().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return _find_context().wrap_socket(*arguments, **options)


def find_tls_context(url: str) -> ssl.SSLContext:
    """Return the context for a client of a URL; the certificates are read only when there is TLS.

    Raises:
        OSError: The environment names certificates that cannot be read.
    """
    return _find_context() if url.lower().startswith("https:") else _ContextForRedirects(ssl.PROTOCOL_TLS_CLIENT)

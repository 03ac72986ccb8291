"""Servers behind a URL: streamable HTTP, and the older HTTP+SSE.

The SDK lets a network error escape into the task that entered its client (mcp 2.3), so that the fault of one request
ends the connection and whoever owns it. Here every fault of a request becomes an answer to that request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import httpx2
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import METHOD_NOT_FOUND

from dial_client.config import ServerSettings
from dial_client.transports import faults

if TYPE_CHECKING:
    from mcp.shared._httpx_utils import McpHttpClientFactory

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 10.0
WRITE_SECONDS = 60.0
_MAX_REASON = 10_000
"""Bytes of an answer that are searched for words about the session."""
_TIMEOUT = httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, pool=CONNECT_SECONDS, read=None)
"""Reading has no limit of its own: a call is ended by its caller, and a stream of changes is silent for hours."""
_WEB_PAGE = "the URL leads to a web page, not to an MCP server; is it right, or does it want a login?"


class AnsweringClient(httpx2.AsyncClient):
    """Answers a request itself, with a JSON-RPC error that says why, where the server or the network did not."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(headers=headers, timeout=_TIMEOUT)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send as `httpx2.AsyncClient.send` does; a POST raises no network error and gives no answer in HTML."""
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
            return await _readable(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return _fault(request, 503, faults.of_network(error), {"network": faults.fate_of(error)})


async def _readable(response: httpx2.Response) -> httpx2.Response:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
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
            return _fault(request, status, faults.of_status(status), data)
    if kind == "text/html":
        return _fault(
            request, 502, "the URL leads to a web page, not to an MCP server: is it right, or is a login due?"
        )
    headers = {"content-type": "application/json"} if response.status_code >= 400 else {"content-type": kind}
    if "mcp-session-id" in response.headers:
        headers["mcp-session-id"] = response.headers["mcp-session-id"]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


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
    return status == 400 and faults.says_forgotten(body[:_MAX_REASON].decode("utf-8", "replace"))


def _fault(request: httpx2.Request, status: int, words: str, data: dict[str, Any] | None = None) -> httpx2.Response:
    error = {"code": faults.HTTP_FAULT, "message": words, "data": data or {}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class ReportingClient(httpx2.AsyncClient):
    """For HTTP+SSE, where answers come on another stream: a POST that fails ends the connection, with the reason."""

    def __init__(self, headers: dict[str, str], on_fault: Callable[[str], None]) -> None:
        super().__init__(headers=headers, timeout=_TIMEOUT)
        self._on_fault = on_fault

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send as `httpx2.AsyncClient.send` does, and report a POST that came to nothing."""
        try:
            response = await super().send(request, **options)
        except httpx2.HTTPError as error:
            if request.method == "POST":
                self._on_fault(faults.of_network(error))
            raise
        if request.method == "POST" and response.status_code >= 400:
            self._on_fault(faults.of_status(response.status_code))
        return response


class StreamableHTTPTransport:
    """Streamable HTTP, as `mcp.Client` takes it."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings

    async def __aenter__(self) -> Any:
        url = self._settings.url or ""
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(AnsweringClient(dict(self._settings.headers)))
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            streams = await stack.enter_async_context(transport)
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


def sse_transport(settings: ServerSettings, on_fault: Callable[[str], None]) -> Transport:
    """Give HTTP+SSE as `mcp.Client` takes it; `on_fault` hears, in words, of a message that could not be sent."""

    def client(**_: Any) -> httpx2.AsyncClient:
        return ReportingClient(dict(settings.headers), on_fault)

    return sse_client(settings.url or "", httpx_client_factory=cast("McpHttpClientFactory", client))

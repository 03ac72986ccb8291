"""The id of each request, which is in its response and in every event that is logged for it; and the access log."""

from __future__ import annotations

import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.operations import Operations
from dial_client.serve.security import ERROR_CODE, MESSAGES, PERSON

log = get_logger(__name__)

# The header of the id, in a request of a proxy and in each response.
REQUEST_ID = "x-request-id"
# The same header in the Messages API, which Anthropic's SDKs read.
_MESSAGES_REQUEST_ID = "request-id"
# An id that a proxy may give: what the usual proxies and tracing systems write.
_WELL_FORMED = re.compile(r"[A-Za-z0-9._:+/=-]{8,128}")
# Characters of a path in the access log.
_MAX_PATH = 300


class RequestLog:
    """ASGI middleware that gives each request its id, and logs each response if there is an access log.

    An id in the request counts if it is well-formed: `HttpServer` removes the header from requests that do not come
    from a named proxy.

    Args:
        app: The application.
        operations: Whether each response is logged, in one line, without the query and contents; and the metrics.
    """

    def __init__(self, app: ASGIApp, operations: Operations) -> None:
        import structlog.contextvars  # noqa: F401 - now: this takes 0.1 s, for which no request should wait

        self._app = app
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from structlog.contextvars import bind_contextvars, reset_contextvars

        scope.setdefault("state", {})
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _WELL_FORMED.fullmatch(given) else secrets.token_hex(16)
        began, status, size = time.perf_counter(), 0, 0

        async def send_with_id(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                if scope["path"].startswith(MESSAGES):
                    headers[_MESSAGES_REQUEST_ID] = request_id
            else:
                size += len(message.get("body", b""))
            await send(message)

        tokens = bind_contextvars(request_id=request_id)
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            if (metrics := self._operations.metrics) is not None:
                metrics.record_response(status)
            if self._operations.access_log:
                _log_response(scope, status, size, time.perf_counter() - began)
            reset_contextvars(**tokens)


def _log_response(scope: Scope, status: int, size: int, seconds: float) -> None:
    """Log a response; the status is 0 if the client left, or the service stopped, before there was one."""
    person, code = scope["state"].get(PERSON), scope["state"].get(ERROR_CODE)
    client = scope.get("client")
    log.info(
        "request",
        method=to_one_line(scope["method"], 20),
        path=to_one_line(scope["path"], _MAX_PATH),
        status=status,
        ms=round(seconds * 1000, 1),
        bytes=size,
        owner=person.name if person is not None else "",
        client=client[0] if client else "",
        **({"code": code} if code else {}),
    )

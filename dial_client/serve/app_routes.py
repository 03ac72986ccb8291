"""The HTTP API for MCP Apps: the empty document of an app's frame, the app's HTML, and the requests of an app."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dial_client import __version__
from dial_client.audit.entries import Origin
from dial_client.client.dial_client import DialClient
from dial_client.errors import DialError, ServerError, ServerGone
from dial_client.events import Event
from dial_client.mcp_apps import MAX_SOURCES, parse_policy
from dial_client.serve.http_responses import HttpError, json_response, to_http_error
from dial_client.serve.human_input import HumanInputBroker
from dial_client.serve.request_bodies import read_json
from dial_client.serve.security import APP_FRAME
from dial_client.serve.sse_response import OPENING_COMMENT, SSEResponse, encode_event
from dial_client.sinks.sse_encoder import to_json

MAX_CALLS = 32
"""Calls of apps at a time, those included that wait for approval."""
_MAX_EVENTS = 64
"""Events of one call that are not sent yet."""

_FRAME = b"""<!doctype html>
<meta charset="utf-8">
<title>App</title>
<script>
addEventListener("message", function start({ source, data }) {
  if (source !== parent || data?.method !== "ui/notifications/sandbox-resource-ready") return;
  removeEventListener("message", start);
  document.open();
  document.write(data.params.html);
  document.close();
});
parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, "*");
</script>
"""
"""Becomes the document of an app, once the page has sent the HTML. The document keeps the policy of its response."""


class AppRoutes:
    """The routes under ``/apps``.

    Args:
        dial: the client, entered.
        human_input: asks for approval of the calls of apps.
    """

    def __init__(self, dial: DialClient, human_input: HumanInputBroker) -> None:
        self._dial = dial
        self._human_input = human_input
        self._running = 0

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(APP_FRAME, self._frame),
            Route("/apps/read", self._read, methods=["POST"]),
            Route("/apps/resource", self._read_resource, methods=["POST"]),
            Route("/apps/call", self._call, methods=["POST"]),
        ]

    async def _frame(self, request: Request) -> Response:
        """Return the empty document, with a policy for the origins in the query. It has no content of anybody's."""
        names = ("connect", "resource", "frame", "base_uri")
        lists = {name: request.query_params.getlist(name)[:MAX_SOURCES] for name in names}
        policy = parse_policy(lists)
        headers = {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": policy.header,
            "connection-allowlist": policy.connection_allowlist,
            "x-frame-options": "SAMEORIGIN",
            "x-dns-prefetch-control": "off",
        }
        return Response(_FRAME, headers=headers)

    async def _read(self, request: Request) -> Response:
        body = await read_json(request)
        server, uri, tool = _text(body, "server"), _text(body, "uri"), _text(body, "tool")
        try:
            app = await self._dial.apps.read(server, uri)
        except ServerError as error:
            raise _to_http_error(error) from error
        policy = app.policy
        lists = {"connect": policy.connect, "resource": policy.resource}
        return json_response(
            {
                "html": app.html,
                "policy": {**lists, "frame": policy.frame, "base_uri": policy.base_uri},
                "origins": policy.origins,
                "left_out": app.left_out,
                "prefers_border": app.prefers_border,
                "tool": self._dial.apps.describe_tool(server, tool),
                "host": {"name": "dial-chat", "version": __version__},
            }
        )

    async def _read_resource(self, request: Request) -> Response:
        body = await read_json(request)
        try:
            return json_response(await self._dial.apps.read_resource(_text(body, "server"), _text(body, "uri")))
        except ServerError as error:
            raise _to_http_error(error) from error

    async def _call(self, request: Request) -> Any:
        body = await read_json(request)
        arguments = body.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise HttpError(400, "arguments must be an object", "bad_arguments", param="arguments")
        if self._running >= MAX_CALLS:
            message = f"{MAX_CALLS} calls of apps are running: try again later"
            raise HttpError(429, message, "too_many_calls", kind="rate_limit_error", headers={"retry-after": "2"})
        call = AppCall(_text(body, "conversation"), _text(body, "server"), _text(body, "tool"), arguments)
        return _AppCallResponse(self, call)

    async def run(self, call: AppCall) -> None:
        """Make a call, and send its events; the last is ``result``, or ``error`` where there is none."""
        self._running += 1
        try:
            with call.events, self._human_input.listen(call, call.server):
                origin = Origin(call.conversation_id, call.id)
                try:
                    result = await self._dial.apps.call(call.server, call.tool, call.arguments, origin=origin)
                    await call.events.send(_encode("result", result))
                except DialError as error:
                    await call.events.send(_encode("error", {"message": to_http_error(error).error["message"]}))
        finally:
            self._running -= 1


class AppCall:
    """A call that an app makes, outside of any turn: requests for input are announced in its response."""

    def __init__(self, conversation_id: str, server: str, tool: str, arguments: Mapping[str, Any]) -> None:
        self.id = secrets.token_hex(16)
        self.conversation_id = conversation_id
        self.server = server
        self.tool = tool
        self.arguments = arguments
        self.events: MemoryObjectSendStream[str]
        self.received: MemoryObjectReceiveStream[str]
        self.events, self.received = anyio.create_memory_object_stream[str](_MAX_EVENTS)

    def announce(self, event: Event) -> None:
        """Send an event, unless too many are unsent or the client is gone."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.events.send_nowait(encode_event(event, self.id, {}))


class _AppCallResponse:
    """The events of one call; a client that disconnects ends the call."""

    def __init__(self, routes: AppRoutes, call: AppCall) -> None:
        self._routes = routes
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._routes.run, self._call)
            await SSEResponse(_read_events(self._call))(scope, receive, send)
            group.cancel_scope.cancel()


async def _read_events(call: AppCall) -> AsyncGenerator[str, None]:
    yield OPENING_COMMENT
    with call.received:
        async for event in call.received:
            yield event


def _encode(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {to_json(data)}\n\n"


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise HttpError(400, f"{name} must be a string", "bad_text", param=name)
    return value


def _to_http_error(error: ServerError) -> HttpError:
    is_gone = isinstance(error, ServerGone)
    return HttpError(503 if is_gone else 404, str(error), "server_unavailable" if is_gone else "app_not_found")

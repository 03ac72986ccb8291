"""The HTTP API for tools and MCP Apps: tools, their schemas, the pages of apps, and calls outside of turns.

The event stream of such a call also announces requests for input.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dial_client import __version__
from dial_client.client.dial_client import DialClient
from dial_client.hooks.approval_request import quote_name, to_claims
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import DialError, ServerError, ServerGone
from dial_client.messages.events import Event
from dial_client.messages.mcp_apps import MAX_SOURCES, parse_policy
from dial_client.messages.message import ToolSpec
from dial_client.serve.http_messages import (
    HttpError,
    build_json_response,
    read_json,
    read_object,
    read_string,
    to_http_error,
)
from dial_client.serve.human_input import HumanInputBroker
from dial_client.serve.security import APP_FRAME
from dial_client.serve.sse_response import OPENING_COMMENT, SSEResponse, encode_event
from dial_client.sinks.sse_encoder import encode_named

MAX_CALLS = 32
"""Maximum number of calls at a time, including calls that wait for approval."""
_MAX_EVENTS = 64
"""Maximum number of unsent events of one call."""


@dataclass(eq=False)
class DirectCall:
    """A call outside of any turn."""

    conversation_id: str
    """The conversation that the call belongs to; empty if there is none."""
    server: str
    """The server of the tool."""
    call: Callable[[Origin], Awaitable[Mapping[str, Any]]]
    """Makes the call and returns its result, of JSON types only."""

    def __post_init__(self) -> None:
        self.id = secrets.token_hex(16)
        self.events, self.received = anyio.create_memory_object_stream[str](_MAX_EVENTS)

    def announce(self, event: Event) -> None:
        """Send an event, unless too many events are unsent or the client has disconnected."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.events.send_nowait(encode_event(event, self.id, {}))


class DirectCalls:
    """Runs direct calls and limits their number.

    Args:
        human_input: Asks the user to approve the calls.
    """

    def __init__(self, human_input: HumanInputBroker) -> None:
        self._human_input = human_input
        self._running = 0

    def start(self, call: DirectCall) -> Any:
        """Return a response that runs the call and streams its events.

        Raises:
            HttpError: Too many calls are running.
        """
        if self._running >= MAX_CALLS:
            message = f"{MAX_CALLS} calls are running: try again later"
            raise HttpError(429, message, "too_many_calls", kind="rate_limit_error", headers={"retry-after": "2"})

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            # If the client disconnects, the call is cancelled.
            async with anyio.create_task_group() as group:
                group.start_soon(self._run, call)
                await SSEResponse(_read_events(call))(scope, receive, send)
                group.cancel_scope.cancel()

        return respond

    async def _run(self, call: DirectCall) -> None:
        """Run a call and send its events. The last event is ``result``, or ``error`` if the call failed."""
        self._running += 1
        try:
            with call.events, self._human_input.listen(call, call.server):
                try:
                    result = await call.call(Origin(call.conversation_id, call.id))
                    await call.events.send(encode_named("result", result))
                except DialError as error:
                    await call.events.send(encode_named("error", {"message": to_http_error(error).error["message"]}))
        finally:
            self._running -= 1


async def _read_events(call: DirectCall) -> AsyncGenerator[str, None]:
    yield OPENING_COMMENT
    with call.received:
        async for event in call.received:
            yield event


class ToolRoutes:
    """The routes under ``/tools``.

    Args:
        dial: The client, entered.
        human_input: Asks the user to approve the calls.
    """

    def __init__(self, dial: DialClient, human_input: HumanInputBroker) -> None:
        self._dial = dial
        self._calls = DirectCalls(human_input)

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/tools", self._list),
            Route("/tools/call", self._call, methods=["POST"]),
            Route("/tools/{name:path}", self._get, methods=["GET"]),
        ]

    async def _list(self, request: Request) -> Response:  # noqa: ARG002
        return build_json_response({"tools": [_summarize(tool) for tool in self._dial.tools]})

    async def _get(self, request: Request) -> Response:
        tool = self._find(request.path_params["name"])
        details = {
            "tool": tool.tool,
            "names": {"server": quote_name(tool.server or ""), "tool": quote_name(tool.tool)},
            "claims": to_claims(tool),
            "schema": dict(tool.original_schema or tool.input_schema),
        }
        return build_json_response({**_summarize(tool), **details})

    async def _call(self, request: Request) -> Any:
        body = await read_json(request)
        arguments = read_object(body, "arguments")
        tool = self._find(body.get("name"))

        async def call(origin: Origin) -> Mapping[str, Any]:
            return (await self._dial.call(tool.name, arguments, origin=origin)).to_dict()

        return self._calls.start(DirectCall("", tool.server or "", call))

    def _find(self, name: Any) -> ToolSpec:
        for tool in self._dial.tools:
            if tool.name == name:
                return tool
        raise HttpError(404, "there is no such tool", "not_found", param="name")


def _summarize(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "server": tool.server,
        "title": tool.title,
        "read_only": tool.read_only,
    }


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
"""The document of an app's frame. It replaces itself with the HTML that the page sends; the Content-Security-Policy of
its response stays in force."""


class AppRoutes:
    """The routes under ``/apps``.

    Args:
        dial: The client, entered.
        human_input: Asks the user to approve the apps' calls.
    """

    def __init__(self, dial: DialClient, human_input: HumanInputBroker) -> None:
        self._dial = dial
        self._calls = DirectCalls(human_input)

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(APP_FRAME, self._frame),
            Route("/apps/read", self._read, methods=["POST"]),
            Route("/apps/resource", self._read_resource, methods=["POST"]),
            Route("/apps/call", self._call, methods=["POST"]),
        ]

    async def _frame(self, request: Request) -> Response:
        """Return the empty document, with a policy for the origins in the query. It contains no user data."""
        names = ("connect", "resource", "frame", "base_uri")
        policy = parse_policy({name: request.query_params.getlist(name)[:MAX_SOURCES] for name in names})
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
        server, uri, tool = read_string(body, "server", ""), read_string(body, "uri", ""), read_string(body, "tool", "")
        try:
            app = await self._dial.apps.read(server, uri)
        except ServerError as error:
            raise _to_http_error(error) from error
        policy = app.policy
        return build_json_response(
            {
                "html": app.html,
                "policy": {name: getattr(policy, name) for name in ("connect", "resource", "frame", "base_uri")},
                "origins": policy.origins,
                "left_out": app.left_out,
                "prefers_border": app.prefers_border,
                "tool": self._dial.apps.describe_tool(server, tool),
                "host": {"name": "dial-chat", "version": __version__},
            }
        )

    async def _read_resource(self, request: Request) -> Response:
        body = await read_json(request)
        server, uri = read_string(body, "server", ""), read_string(body, "uri", "")
        try:
            return build_json_response(await self._dial.apps.read_resource(server, uri))
        except ServerError as error:
            raise _to_http_error(error) from error

    async def _call(self, request: Request) -> Any:
        body = await read_json(request)
        arguments = read_object(body, "arguments")
        server, tool = read_string(body, "server", ""), read_string(body, "tool", "")

        async def call(origin: Origin) -> Mapping[str, Any]:
            return await self._dial.apps.call(server, tool, arguments, origin=origin)

        return self._calls.start(DirectCall(read_string(body, "conversation", ""), server, call))


def _to_http_error(error: ServerError) -> HttpError:
    is_gone = isinstance(error, ServerGone)
    return HttpError(503 if is_gone else 404, str(error), "server_unavailable" if is_gone else "app_not_found")

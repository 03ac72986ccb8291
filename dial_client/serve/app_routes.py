"""The HTTP API for MCP Apps: the empty document of an app's frame, the app's HTML, and the requests of an app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client import __version__
from dial_client.client.dial_client import DialClient
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import ServerError, ServerGone
from dial_client.messages.mcp_apps import MAX_SOURCES, parse_policy
from dial_client.serve.http_messages import HttpError, build_json_response, read_json, read_object, read_string
from dial_client.serve.human_input import HumanInputBroker
from dial_client.serve.security import APP_FRAME
from dial_client.serve.tool_routes import DirectCall, DirectCalls

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
        server, uri, tool = read_string(body, "server", ""), read_string(body, "uri", ""), read_string(body, "tool", "")
        try:
            app = await self._dial.apps.read(server, uri)
        except ServerError as error:
            raise _to_http_error(error) from error
        policy = app.policy
        lists = {"connect": policy.connect, "resource": policy.resource}
        return build_json_response(
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
            return build_json_response(
                await self._dial.apps.read_resource(read_string(body, "server", ""), read_string(body, "uri", ""))
            )
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

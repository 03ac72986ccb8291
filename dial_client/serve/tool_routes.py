"""The HTTP API for tools: the list of tools, a tool's schema, and calls by the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.hooks.approval_request import quote_name, to_claims
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.message import ToolSpec
from dial_client.serve.direct_calls import DirectCall, DirectCalls
from dial_client.serve.http_responses import HttpError, build_json_response
from dial_client.serve.human_input import HumanInputBroker
from dial_client.serve.request_bodies import read_json, read_object


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

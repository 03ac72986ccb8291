"""The routes for prompts and resources of MCP servers: lists, contents, and the completion of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ServerError
from dial_client.serve.http_messages import HttpError, build_json_response, read_json, read_string
from dial_client.servers.resources import ResourceContent

MAX_VALUE = 10_000
"""Characters of an argument's value for which completions are requested."""
MAX_CONTENT = 2_000_000
"""Characters of one resource content that is sent to the page, as text or base64."""


class PromptRoutes:
    """The routes under ``/prompts``, ``/resources`` and ``/completions``."""

    def __init__(self, dial: DialClient) -> None:
        self._dial = dial

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/prompts", self._list_prompts, methods=["GET"]),
            Route("/prompts/get", self._get_prompt, methods=["POST"]),
            Route("/resources", self._list_resources, methods=["GET"]),
            Route("/resources/read", self._read, methods=["POST"]),
            Route("/resources/expand", self._expand, methods=["POST"]),
            Route("/completions", self._complete, methods=["POST"]),
        ]

    async def _list_prompts(self, request: Request) -> Response:  # noqa: ARG002
        prompts = await self._dial.prompts.list()
        return build_json_response({"prompts": [prompt.to_dict() for prompt in prompts]})

    async def _list_resources(self, request: Request) -> Response:
        server = request.query_params.get("server")
        if server is not None:
            self._read_server({"server": server})
        try:
            resources = await self._dial.resources.list(server)
            templates = await self._dial.resources.templates(server)
        except ServerError as error:
            raise _to_http_error(error) from error
        return build_json_response(
            {
                "resources": [resource.to_dict() for resource in resources],
                "templates": [template.to_dict() for template in templates],
            }
        )

    async def _get_prompt(self, request: Request) -> Response:
        body = await read_json(request)
        server, name = self._read_server(body), read_string(body, "name")
        try:
            messages = await self._dial.prompts.get(server, name, _read_values(body, "arguments"))
        except ServerError as error:
            raise _to_http_error(error) from error
        taint = next((message.taint for message in messages if message.taint), "")
        return build_json_response({"messages": [message.to_dict() for message in messages], "taint": taint})

    async def _read(self, request: Request) -> Response:
        body = await read_json(request)
        server, uri = self._read_server(body), read_string(body, "uri")
        try:
            contents = await self._dial.resources.read(server, uri)
        except ServerError as error:
            raise _to_http_error(error) from error
        return build_json_response({"contents": [content_to_dict(content) for content in contents]})

    async def _expand(self, request: Request) -> Response:
        body = await read_json(request)
        server, uri_template = self._read_server(body), read_string(body, "uri_template")
        for template in await self._dial.resources.templates(server):
            if template.uri_template == uri_template:
                return build_json_response({"uri": template.expand(_read_values(body, "values"))})
        raise HttpError(404, f"{server!r} has no such template", "not_found", param="uri_template")

    async def _complete(self, request: Request) -> Response:
        body = await read_json(request)
        server, argument = self._read_server(body), read_string(body, "argument")
        value = read_string(body, "value", "")[:MAX_VALUE]
        arguments = _read_values(body, "arguments")
        try:
            if body.get("prompt") is not None:
                name = read_string(body, "prompt")
                values = await self._dial.prompts.complete(server, name, argument, value, arguments)
            else:
                template = read_string(body, "template")
                values = await self._dial.resources.complete(server, template, argument, value, arguments)
        except ServerError as error:
            raise _to_http_error(error) from error
        return build_json_response({"values": list(values)})

    def _read_server(self, body: Mapping[str, Any]) -> str:
        server = read_string(body, "server")
        if server not in self._dial.servers:
            raise HttpError(404, f"there is no server {server!r}", "not_found", param="server")
        return server


def content_to_dict(content: ResourceContent) -> dict[str, Any]:
    """Return a resource content as JSON types. A long text is truncated, and a large blob is omitted."""
    is_cut = max(len(content.text or ""), len(content.blob or "")) > MAX_CONTENT
    return {
        "uri": content.uri,
        "mime_type": content.mime_type,
        "text": content.text[:MAX_CONTENT] if content.text is not None else None,
        "blob": None if is_cut else content.blob,
        "is_cut": is_cut,
    }


def _to_http_error(error: ServerError) -> HttpError:
    return HttpError(502, str(error), "server_failed", kind="upstream_error")


def _read_values(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return an object whose values are strings, such as the arguments of a prompt."""
    values = body.get(name) or {}
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise HttpError(400, f"{name} must be an object of strings", "bad_values", param=name)
    return values

"""The routes for what users choose from: prompts and resources of MCP servers, with completions, and models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ServerError
from dial_client.messages.model import ModelInfo
from dial_client.messages.token_usage import Usage
from dial_client.serve.http_messages import HttpError, build_json_response, read_json, read_string
from dial_client.serve.turn_registry import ServedModel
from dial_client.servers.resources import ResourceContent
from dial_client.settings.config_types import ModelProfile
from dial_client.turns.prices import compute_cost, find_context_window

MAX_VALUE = 10_000
"""Characters of an argument's value for which completions are requested."""
MAX_CONTENT = 2_000_000
"""Characters of one resource content that is sent to the page, as text or base64."""


class PromptRoutes:
    """The routes under ``/prompts``, ``/resources`` and ``/completions``, and ``/models``.

    Args:
        dial: The client, which has the model profiles.
        model: The model of conversations that choose none.
        locked: Names of the settings that conversations cannot override.
    """

    def __init__(self, dial: DialClient, model: ServedModel, locked: Collection[str]) -> None:
        self._dial = dial
        self._model = model
        self._locked = sorted(locked)

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/prompts", self._list_prompts, methods=["GET"]),
            Route("/prompts/get", self._get_prompt, methods=["POST"]),
            Route("/resources", self._list_resources, methods=["GET"]),
            Route("/resources/read", self._read, methods=["POST"]),
            Route("/resources/expand", self._expand, methods=["POST"]),
            Route("/completions", self._complete, methods=["POST"]),
            Route("/models", self._list_models, methods=["GET"]),
        ]

    async def _list_prompts(self, request: Request) -> Response:  # noqa: ARG002
        prompts = await self._dial.prompts.list()
        return build_json_response({"prompts": [prompt.to_dict() for prompt in prompts]})

    async def _list_resources(self, request: Request) -> Response:
        server = request.query_params.get("server")
        if server is not None:
            self._read_server({"server": server})
        with _report_failures():
            resources = [resource.to_dict() for resource in await self._dial.resources.list(server)]
            templates = [template.to_dict() for template in await self._dial.resources.templates(server)]
        return build_json_response({"resources": resources, "templates": templates})

    async def _get_prompt(self, request: Request) -> Response:
        body = await read_json(request)
        server, name = self._read_server(body), read_string(body, "name")
        with _report_failures():
            messages = await self._dial.prompts.get(server, name, _read_values(body, "arguments"))
        taint = next((message.taint for message in messages if message.taint), "")
        return build_json_response({"messages": [message.to_dict() for message in messages], "taint": taint})

    async def _read(self, request: Request) -> Response:
        body = await read_json(request)
        server, uri = self._read_server(body), read_string(body, "uri")
        with _report_failures():
            contents = await self._dial.resources.read(server, uri)
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
        with _report_failures():
            if body.get("prompt") is not None:
                name = read_string(body, "prompt")
                values = await self._dial.prompts.complete(server, name, argument, value, arguments)
            else:
                template = read_string(body, "template")
                values = await self._dial.resources.complete(server, template, argument, value, arguments)
        return build_json_response({"values": list(values)})

    async def _list_models(self, request: Request) -> Response:  # noqa: ARG002 - the same for every request
        profiles = [] if "model" in self._locked else list(self._dial.model.profiles.values())
        models = await to_thread.run_sync(lambda: [describe_profile(profile) for profile in profiles])
        default = {"name": self._model.name, "profile": self._dial.model.profile_name or None}
        return build_json_response({"models": models, "default": default, "locked": self._locked})

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


@contextmanager
def _report_failures() -> Iterator[None]:
    """Turn the error of a server into an error response."""
    try:
        yield
    except ServerError as error:
        raise HttpError(502, str(error), "server_failed", kind="upstream_error") from error


def _read_values(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return an object whose values are strings, such as the arguments of a prompt."""
    values = body.get(name) or {}
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise HttpError(400, f"{name} must be an object of strings", "bad_values", param=name)
    return values


def describe_profile(profile: ModelProfile) -> dict[str, Any]:
    """Return the properties of a profile that are known without a request to it; unknown values are omitted."""
    model = profile.model or profile.name
    info = ModelInfo(profile.name, model, profile.base_url or "")
    known = {
        "name": profile.name,
        "model": model,
        "context_window": profile.context_window or find_context_window(info),
        "input_usd_per_million": compute_cost(Usage(input_tokens=1_000_000), info),
        "output_usd_per_million": compute_cost(Usage(output_tokens=1_000_000), info),
        "tools": "text" if profile.tool_format not in (None, "native") else None,
        "images": profile.quirks.get("images"),
        "documents": profile.quirks.get("documents"),
        "takes_temperature": profile.quirks.get("sampling"),
    }
    return {name: value for name, value in known.items() if value is not None}

"""The HTTP API for the features of MCP servers (tools, prompts, resources, completions, apps), for skills and models.

The event stream of a call outside of turns also announces requests for input.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dial_client import __version__
from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.hooks.approval_request import quote_name, to_claims
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import DialError, ServerError, ServerGone
from dial_client.messages.events import Event
from dial_client.messages.mcp_apps import MAX_SOURCES, parse_policy
from dial_client.messages.message import ToolSpec
from dial_client.messages.model import ModelInfo, ToolFormat
from dial_client.messages.token_usage import Usage
from dial_client.serve.http_messages import (
    HttpError,
    build_json_response,
    read_json,
    read_object,
    read_string,
    to_http_error,
)
from dial_client.serve.people.owner_limits import may_use_model
from dial_client.serve.security import APP_FRAME, find_person
from dial_client.serve.sse_response import OPENING_COMMENT, SSEResponse, encode_event
from dial_client.serve.turns.human_input import HumanInputBroker
from dial_client.serve.turns.turn_registry import ServedModel
from dial_client.servers.resources import ResourceContent
from dial_client.settings.config_types import ModelProfile
from dial_client.settings.policy_config import matches
from dial_client.sinks.sse_encoder import encode_named
from dial_client.turns.prices import compute_cost, find_context_window

# Maximum number of calls at a time, including calls that wait for approval.
MAX_CALLS = 32
# Maximum number of unsent events of one call.
_MAX_EVENTS = 64
# Characters of an argument's value for which completions are requested.
MAX_VALUE = 10_000
# Characters of one resource content that is sent to the page, as text or base64.
MAX_CONTENT = 2_000_000


@dataclass(eq=False)
class DirectCall:
    """A call outside of any turn: a response that runs the call and streams its events.

    The last event is ``result``, or ``error`` if the call failed.

    Raises:
        HttpError: Too many calls are running.
    """

    human_input: HumanInputBroker
    """Asks the user to approve the call."""
    running: set[DirectCall]
    """The running calls, whose number is limited."""
    call: Callable[[Origin], Awaitable[Mapping[str, Any]]]
    """Makes the call and returns its result, of JSON types only."""
    conversation_id: str = ""
    """The conversation that the call belongs to; empty if there is none."""
    owner: str = ""
    """The person who makes the call; empty in a service for one person."""

    def __post_init__(self) -> None:
        if len(self.running) >= MAX_CALLS:
            message = f"{MAX_CALLS} calls are running: try again later"
            raise HttpError(429, message, "too_many_calls", kind="rate_limit_error", headers={"retry-after": "2"})
        self.id = secrets.token_hex(16)
        self._events, self._received = anyio.create_memory_object_stream[str](_MAX_EVENTS)

    def announce(self, event: Event) -> None:
        """Send an event, unless too many events are unsent or the client has disconnected."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._events.send_nowait(encode_event(event, self.id, {}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request. If the client disconnects, the call is cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._run)
            await SSEResponse(self._read_events())(scope, receive, send)
            group.cancel_scope.cancel()

    async def _run(self) -> None:
        self.running.add(self)
        try:
            with self._events, self.human_input.listen(self):
                try:
                    last = encode_named("result", await self.call(Origin(self.conversation_id, self.id, self.owner)))
                except DialError as error:
                    last = encode_named("error", {"message": to_http_error(error).error["message"]})
                await self._events.send(last)
        finally:
            self.running.discard(self)

    async def _read_events(self) -> AsyncGenerator[str, None]:
        yield OPENING_COMMENT
        with self._received:
            async for event in self._received:
                yield event


# The document of an app's frame. It replaces itself with the HTML that the page sends; the Content-Security-Policy of
# its response stays in force.
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


class FeatureRoutes:
    """The routes of tools, prompts, skills, resources, completions, apps and models, under these words.

    Args:
        dial: The client, entered.
        manager: The conversations.
        human_input: Asks the user to approve the calls.
        model: The model of conversations that choose none.
        locked: Names of the settings that conversations cannot override.
    """

    def __init__(
        self,
        dial: DialClient,
        manager: ConversationManager,
        human_input: HumanInputBroker,
        model: ServedModel,
        locked: Collection[str],
    ) -> None:
        self._dial = dial
        self._manager = manager
        self._human_input = human_input
        # Counted separately: the calls of apps must not take the places of the user's own calls.
        self._tool_calls: set[DirectCall] = set()
        self._app_calls: set[DirectCall] = set()
        self._model = model
        self._locked = sorted(locked)

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/tools", self._list_tools),
            Route("/tools/call", self._call_tool, methods=["POST"]),
            Route("/tools/{name:path}", self._get_tool, methods=["GET"]),
            Route("/prompts", self._list_prompts, methods=["GET"]),
            Route("/prompts/get", self._get_prompt, methods=["POST"]),
            Route("/skills", self._list_skills, methods=["GET"]),
            Route("/skills/get", self._get_skill, methods=["POST"]),
            Route("/skills/review", self._review_skill, methods=["POST"]),
            # Below the servers, for the same people: what is trusted is trusted for all.
            Route("/servers/{name:path}/skills/trust", self._trust_skill, methods=["POST"]),
            Route("/resources", self._list_resources, methods=["GET"]),
            Route("/resources/read", self._read_resource, methods=["POST"]),
            Route("/resources/expand", self._expand, methods=["POST"]),
            Route("/completions", self._complete, methods=["POST"]),
            Route(APP_FRAME, self._send_frame),
            Route("/apps/read", self._read_app, methods=["POST"]),
            Route("/apps/resource", self._read_app_resource, methods=["POST"]),
            Route("/apps/call", self._call_app, methods=["POST"]),
            Route("/models", self._list_models, methods=["GET"]),
        ]

    async def _list_tools(self, request: Request) -> Response:  # noqa: ARG002
        await self._dial.parts.servers.prepare_owner()
        return build_json_response({"tools": [_summarize(tool) for tool in self._dial.tools if self._may_list(tool)]})

    def _may_list(self, tool: ToolSpec) -> bool:
        """Return whether the person of the request may call a tool: a list of others would only promise them."""
        patterns = self._dial.parts.servers.tool_patterns
        if patterns is None or not tool.server:
            return True
        return any(matches(pattern, tool.server, tool.tool) for pattern in patterns)

    async def _get_tool(self, request: Request) -> Response:
        tool = self._find_tool(request.path_params["name"])
        if not self._may_list(tool):
            raise HttpError(404, "there is no such tool", "not_found", param="name")
        details = {
            "tool": tool.tool,
            "names": {"server": quote_name(tool.server or ""), "tool": quote_name(tool.tool)},
            "claims": to_claims(tool),
            "schema": dict(tool.original_schema or tool.input_schema),
        }
        return build_json_response({**_summarize(tool), **details})

    async def _call_tool(self, request: Request) -> Any:
        body = await read_json(request)
        arguments = read_object(body, "arguments")
        await self._dial.parts.servers.prepare_owner()
        tool = self._find_tool(body.get("name"))

        async def call(origin: Origin) -> Mapping[str, Any]:
            return (await self._dial.call(tool.name, arguments, origin=origin)).to_dict()

        return DirectCall(self._human_input, self._tool_calls, call, owner=find_person(request).name)

    def _find_tool(self, name: Any) -> ToolSpec:
        for tool in self._dial.tools:
            if tool.name == name:
                return tool
        raise HttpError(404, "there is no such tool", "not_found", param="name")

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

    async def _list_skills(self, request: Request) -> Response:  # noqa: ARG002
        # Without the folders of this machine, which are the operator's.
        skills = [
            {
                "name": skill.name,
                "description": skill.description,
                "server": skill.server,
                "withheld": skill.is_withheld,
            }
            for skill in await self._dial.skills.list()
        ]
        return build_json_response({"skills": skills})

    async def _get_skill(self, request: Request) -> Response:
        name = read_string(await read_json(request), "name")
        with _report_failures():
            message = await self._dial.skills.build_message(name)
        return build_json_response({"messages": [message.to_dict()], "taint": message.taint})

    async def _review_skill(self, request: Request) -> Response:
        name = read_string(await read_json(request), "name")
        with _report_failures():
            review = await self._dial.skills.review(name)
        summary = review.summary
        if not summary.server:
            raise HttpError(404, f"no server has the skill {name!r}", "not_found", param="name")
        shown = {"name": summary.name, "server": summary.server, "allowed_tools": summary.allowed_tools}
        seen = {"text": review.text, "files": list(review.files), "change": review.change, "digest": review.digest}
        return build_json_response({**shown, **seen})

    async def _trust_skill(self, request: Request) -> Response:
        """Trust a skill of a server as the person has seen it."""
        body = await read_json(request)
        name, digest = read_string(body, "name"), read_string(body, "digest")
        server = request.path_params["name"]
        if not name.startswith(f"{server}/") or not digest:
            raise HttpError(400, f"a skill of {server!r} and its digest are needed", "bad_request")
        with _report_failures():
            await self._dial.skills.trust(name, digest)
        return Response(status_code=204)

    async def _read_resource(self, request: Request) -> Response:
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

    async def _send_frame(self, request: Request) -> Response:
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

    async def _read_app(self, request: Request) -> Response:
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

    async def _read_app_resource(self, request: Request) -> Response:
        body = await read_json(request)
        server, uri = read_string(body, "server", ""), read_string(body, "uri", "")
        try:
            return build_json_response(await self._dial.apps.read_resource(server, uri))
        except ServerError as error:
            raise _to_http_error(error) from error

    async def _call_app(self, request: Request) -> Any:
        body = await read_json(request)
        arguments = read_object(body, "arguments")
        server, tool = self._read_server(body), read_string(body, "tool")

        async def call(origin: Origin) -> Mapping[str, Any]:
            return await self._dial.apps.call(server, tool, arguments, origin=origin)

        conversation_id, owner = read_string(body, "conversation", ""), find_person(request).name
        if conversation_id and owner:
            # What is granted in a conversation must not be used by others.
            await self._manager.for_owner(owner).read_state(conversation_id)
        return DirectCall(self._human_input, self._app_calls, call, conversation_id, owner)

    async def _list_models(self, request: Request) -> Response:  # noqa: ARG002 - the same for every request
        named = {} if "model" in self._locked else self._dial.model.profiles
        profiles = [profile for name, profile in named.items() if may_use_model(name)]
        models = await anyio.to_thread.run_sync(lambda: [describe_profile(profile) for profile in profiles])
        default = {
            "name": self._model.name,
            "profile": self._dial.model.profile_name or None,
            "is_allowed": may_use_model(self._model.name),
        }
        return build_json_response({"models": models, "default": default, "locked": self._locked})

    def _read_server(self, body: Mapping[str, Any]) -> str:
        server = read_string(body, "server")
        if server not in self._dial.servers:
            raise HttpError(404, f"there is no server {server!r}", "not_found", param="server")
        return server


def _summarize(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "server": tool.server,
        "title": tool.title,
        "read_only": tool.read_only,
    }


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
    info = ModelInfo(profile.name, model, profile.base_url or "", prices=profile.quirks.get("prices", {}))
    known = {
        "name": profile.name,
        "model": model,
        "context_window": profile.context_window or find_context_window(info),
        "input_usd_per_million": compute_cost(Usage(input_tokens=1_000_000), info),
        "output_usd_per_million": compute_cost(Usage(output_tokens=1_000_000), info),
        "tools": "text" if profile.tool_format in (ToolFormat.REACT, ToolFormat.XML) else None,
        "images": profile.quirks.get("images"),
        "documents": profile.quirks.get("documents"),
        "takes_temperature": profile.quirks.get("sampling"),
    }
    return {name: value for name, value in known.items() if value is not None}


def _to_http_error(error: ServerError) -> HttpError:
    is_gone = isinstance(error, ServerGone)
    return HttpError(503 if is_gone else 404, str(error), "server_unavailable" if is_gone else "app_not_found")

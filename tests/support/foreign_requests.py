"""Asks every route of a service, by a person who knows all ids of another person, for what is the other's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.support.mcp_clients import HEADERS

MARKER = "kestrel 4711"
"""What is in each text of the first person, and in nothing that the second may see."""


@dataclass(frozen=True)
class Estate:
    """The ids of what a person has in a service."""

    turns: Mapping[str, str]
    """The turns by the ids of their conversations."""
    approvals: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    response: str = "resp_none"
    """A response of ``/v1/responses``."""
    item: str = "msg_none"
    """An item of that response."""
    call: str = "call_none"
    """A call that ``/v1/chat/completions`` has returned."""
    tool: str = "echo"
    """A tool that everybody may call."""
    session: str = "none"
    """A session of ``/mcp``."""
    link: str = "none"
    """The key of a link to a conversation, which is only known to those who have the link."""


@dataclass(frozen=True)
class Foreign:
    """A request for what is another person's, and its response."""

    route: str
    """The method and the path of the route."""
    status: int
    content: bytes
    """The head and the body."""


# The response to each route that is not about one conversation; of a person without the scope `admin`.
STATUSES: Mapping[str, int] = {
    "GET /": 200,
    "GET /healthz": 200,
    "GET /readyz": 200,
    "GET /metrics": 403,
    "GET /me": 200,
    "GET /assets/{name:path}": 200,
    "GET /v1/models": 200,
    "GET /v1/models/{model:path}": 404,
    "POST /v1/chat/completions": 200,
    "POST /v1/responses": 400,
    "POST /v1/messages": 200,
    "POST /v1/messages/count_tokens": 200,
    "GET /conversations": 200,
    "POST /conversations": 201,
    "POST /conversations/import": 201,
    "GET /tools": 200,
    "POST /tools/call": 200,
    "GET /tools/{name:path}": 200,
    "GET /prompts": 200,
    "POST /prompts/get": 404,
    "GET /resources": 200,
    "POST /resources/read": 404,
    "POST /resources/expand": 404,
    "POST /completions": 404,
    "GET /skills": 200,
    "POST /skills/get": 400,
    "POST /skills/review": 400,
    "GET /apps/frame": 200,
    "POST /apps/read": 404,
    "POST /apps/resource": 404,
    "POST /apps/call": 404,
    "GET /models": 200,
    "GET /servers": 200,
    "POST /servers": 403,
    "POST /servers/{name:path}/login": 403,
    "POST /servers/{name:path}/restart": 403,
    "POST /servers/{name:path}/skills/trust": 403,
    "POST /servers/{name:path}/enable": 403,
    "POST /servers/{name:path}/disable": 403,
    "DELETE /servers/{name:path}": 403,
    "GET /credentials": 200,
    "DELETE /credentials/{server}": 404,
    "POST /credentials/{server}/login": 404,
    "PUT /credentials/{server}/{name}": 404,
    "DELETE /credentials/{server}/{name}": 404,
    "GET /oauth/callback": 400,
    "GET /grants": 200,
    "DELETE /grants/{id}": 404,
    "GET /audit": 403,
    "GET /shared": 200,
    "GET /shared/conversation": 404,
    "GET /usage": 200,
    "GET /approvals": 200,
    "POST /approvals/{id}": 404,
    "POST /approvals/{id}/check": 404,
    "GET /questions": 200,
    "POST /questions/{id}": 404,
    "GET /waiting": 200,
    "GET /login": 303,
    "GET /login/callback": 400,
    "POST /login/refresh": 401,
    "POST /login/logout": 200,
    "GET /mcp": 404,
    "POST /mcp": 404,
    "DELETE /mcp": 404,
    "OPTIONS /mcp": 204,
    "POST /ai-sdk/chat": 404,
    "OPTIONS /ai-sdk/chat": 204,
    "GET /ai-sdk/chat/{chat}/stream": 204,
    "OPTIONS /ai-sdk/chat/{chat}/stream": 204,
    "POST /ag-ui": 404,
    "OPTIONS /ag-ui": 204,
}

# The bodies for each route that has one. Those about a conversation have all fields that such a route reads.
_CONVERSATION = {"text": "What is it?", "title": "mine", "message": 0, "at": 1, "pinned": True, "stream": False}


def expect(found: Foreign) -> int:
    """Return the status that a response should have."""
    if b"item_not_found" in found.content:
        return 404
    return 404 if "/conversations/{id}" in found.route else STATUSES[found.route]


def list_routes(routes: Iterable[Any]) -> list[str]:
    """Return the method and the path of each route of an application."""
    return [f"{method} {route.path}" for route in routes for method in sorted(set(route.methods or ()) - {"HEAD"})]


async def ask_for_foreign(client: httpx2.AsyncClient, routes: Iterable[str], estate: Estate) -> list[Foreign]:
    """Ask all routes for what is in an estate, and return the responses."""
    found = []
    for route in routes:
        method = route.partition(" ")[0]
        for path, more in _list_requests(route, estate):
            response = await client.request(method, path, **more)
            head = "".join(f"{name}: {value}\n" for name, value in response.headers.multi_items()).encode()
            found.append(Foreign(route, response.status_code, head + response.content))
    return found


def _list_requests(route: str, estate: Estate) -> Iterator[tuple[str, dict[str, Any]]]:
    method, _, template = route.partition(" ")
    for path in _list_paths(template, estate):
        for more in _list_bodies(route, estate) if method in ("POST", "PATCH") else _list_queries(route, estate):
            yield path, more


def _list_paths(template: str, estate: Estate) -> Iterator[str]:
    fixed = template.replace("{position}", "0").replace("{model:path}", f"x/{estate.response}")
    name = {"assets": "app.js", "tools": estate.tool, "servers": "pen"}.get(template.split("/")[1], "")
    fixed = fixed.replace("{name:path}", name)
    match template.split("/")[1:3]:
        case ["conversations", "{id}"]:
            for conversation, turn in estate.turns.items():
                yield fixed.replace("{id}", conversation).replace("{turn}", turn)
        case ["approvals" | "questions" | "grants" as kind, "{id}"]:
            ids: tuple[str, ...] = getattr(estate, kind)
            yield from (fixed.replace("{id}", id_) for id_ in ids)
        case ["ai-sdk", "chat"]:
            yield from {fixed.replace("{chat}", conversation) for conversation in estate.turns}
        case _:
            yield fixed


def _list_queries(route: str, estate: Estate) -> Iterator[dict[str, Any]]:
    match route:
        case "GET /conversations":
            yield {}
            yield {"params": {"search": MARKER.split(maxsplit=1)[0], "pinned": "true"}}
        case "GET /shared/conversation":
            for conversation in estate.turns:
                yield {"headers": {"x-share-key": f"{conversation}.{estate.link[:-1]}"}}
        case "GET /mcp" | "DELETE /mcp":
            yield {"headers": {**_mcp_headers(), "mcp-session-id": estate.session}}
        case "OPTIONS /mcp":
            yield {"headers": {"mcp-session-id": estate.session}}
        case "GET /servers" | "GET /resources":
            yield {}
        case _:
            yield {"headers": {"last-event-id": f"{next(iter(estate.turns.values()))}:0"}}


def _mcp_headers() -> dict[str, str]:
    return {name: value for name, value in HEADERS.items() if name != "authorization"}


def _list_bodies(route: str, estate: Estate) -> Iterator[dict[str, Any]]:
    conversation = next(iter(estate.turns))
    question = {"role": "user", "content": "What was it?"}
    messages = {"max_tokens": 100}
    bodies: dict[str, list[Any]] = {
        "POST /approvals/{id}": [{"decision": "always"}, {"decision": "perhaps"}],
        "POST /approvals/{id}/check": [{"arguments": {"what": "x"}}],
        "POST /questions/{id}": [{"action": "accept", "content": {"age": 7}}],
        "POST /v1/chat/completions": [messages | {"messages": [question, *_return_call(estate.call)]}],
        "POST /v1/responses": [
            {"input": "What was it?", "previous_response_id": estate.response},
            {"input": [{"type": "item_reference", "id": estate.item}]},
            {"input": [{"id": estate.item}]},
        ],
        "POST /v1/messages": [messages | {"messages": [question, *_return_tool_use(estate.call)]}],
        "POST /v1/messages/count_tokens": [messages | {"messages": [question, *_return_tool_use(estate.call)]}],
        "POST /conversations/import": [[{"role": "user", "content": "mine", "id": conversation}]],
        "POST /tools/call": [{"name": estate.tool, "arguments": {}, "conversation": conversation}],
        "POST /prompts/get": [{"server": MARKER[:3], "name": "x", "arguments": {}}],
        "POST /ai-sdk/chat": [{"id": id_, "messages": [_approve(estate)]} for id_ in estate.turns],
        "POST /ag-ui": [
            {"threadId": id_, "runId": "x", "resume": [{"interruptId": request, "status": "resolved"}]}
            for id_ in estate.turns
            for request in (*estate.approvals, *estate.questions, "x.1")
        ],
        "POST /apps/call": [{"server": "pen", "tool": estate.tool, "conversation": id_} for id_ in estate.turns],
    }
    if route == "POST /mcp":
        call = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
        yield {"content": json.dumps(call), "headers": {**_mcp_headers(), "mcp-session-id": estate.session}}
        return
    if "/conversations/{id}" in route:
        for edit in ("undo", "compact"):
            yield {"json": {**_CONVERSATION, "edit": edit}}
        return
    for body in bodies.get(route, [{"server": "none", "uri": "none", "name": "none", "argument": "x"}]):
        yield {"json": body}


def _approve(estate: Estate) -> dict[str, Any]:
    """Return a message of the AI SDK that approves the calls."""
    approvals = [{"id": f"{id_}.1", "approved": True} for id_ in (*estate.approvals, "x")]
    parts = [{"type": "dynamic-tool", "state": "approval-responded", "approval": approval} for approval in approvals]
    return {"role": "assistant", "parts": parts}


def _return_call(call: str) -> list[dict[str, Any]]:
    function = {"name": "mine", "arguments": "{}"}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function}],
    }
    return [asked, {"role": "tool", "tool_call_id": call, "content": "seven"}]


def _return_tool_use(call: str) -> list[dict[str, Any]]:
    asked = {"type": "tool_use", "id": call, "name": "mine", "input": {}}
    result = {"type": "tool_result", "tool_use_id": call, "content": "seven"}
    return [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [result]}]

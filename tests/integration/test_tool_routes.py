"""HTTP routes for tool calls by users: approved and recorded like calls of the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.server import MCPServer

from tests.integration.test_serve_cluster import two
from tests.support.http_service import HttpService, ServerSentEvent, read_events, serve
from tests.support.temporary_stores import needs_postgres

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def build_server(written: list[str]) -> MCPServer:
    server = MCPServer("pen")

    @server.tool()
    def write(what: str) -> str:
        """Writes."""
        written.append(what)
        return f"written: {what}"

    return server


async def read_call(service: HttpService, body: dict[str, Any], decision: dict[str, Any]) -> list[ServerSentEvent]:
    """Return the events of a call whose approval gets a decision."""
    found = []
    async with service.http.stream("POST", "/tools/call", json=body) as response:
        events: AsyncIterator[ServerSentEvent] = read_events(response)
        async for event in events:
            found.append(event)
            if event.name == "approval":
                await service.json("POST", f"/approvals/{event.data['id']}", 204, json=decision)
    return found


async def test_a_tool_can_be_read_with_its_schema() -> None:
    async with serve([], {"pen": build_server([])}) as service:
        tool = await service.json("GET", "/tools/write")
        await service.json("GET", "/tools/unknown", 404)
    assert (tool["name"], tool["server"], tool["tool"]) == ("write", "pen", "write")
    assert tool["schema"]["required"] == ["what"]
    assert tool["claims"]["description"] == "Writes."


async def test_a_call_by_a_user_waits_for_approval_and_returns_the_result() -> None:
    written: list[str] = []
    async with serve([], {"pen": build_server(written)}) as service:
        body = {"name": "write", "arguments": {"what": "a"}}
        events = await read_call(service, body, {"decision": "once"})
    assert written == ["a"]
    assert events[-1].name == "result"
    assert (events[-1].data["success"], events[-1].data["content"]) == (True, "written: a")


@needs_postgres
async def test_a_call_by_a_user_is_approved_at_a_peer_while_no_turn_runs() -> None:
    written: list[str] = []
    async with two(servers={"pen": build_server(written)}) as (here, there):
        body = {"name": "write", "arguments": {"what": "a"}}
        async with here.http.stream("POST", "/tools/call", json=body) as answer:
            events = read_events(answer)
            request = await anext(events)
            assert request.name == "approval"
            await there.json("POST", f"/approvals/{request.data['id']}", 204, json={"decision": "once"})
            rest = [event async for event in events]
    assert written == ["a"]
    assert rest[-1].data["success"] is True


async def test_a_denied_call_by_a_user_does_not_run() -> None:
    written: list[str] = []
    async with serve([], {"pen": build_server(written)}) as service:
        body = {"name": "write", "arguments": {"what": "a"}}
        events = await read_call(service, body, {"decision": "deny", "reason": "no"})
    assert written == []
    assert events[-1].data["success"] is False


async def test_invalid_arguments_are_a_failed_call_and_unknown_tools_are_refused() -> None:
    written: list[str] = []
    async with serve([], {"pen": build_server(written)}) as service:
        events = await read_call(service, {"name": "write", "arguments": {}}, {"decision": "once"})
        await service.json("POST", "/tools/call", 404, json={"name": "unknown"})
        await service.json("POST", "/tools/call", 400, json={"name": "write", "arguments": "x"})
    assert written == []
    assert events[-1].data["success"] is False


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/servers"),
        ("DELETE", "/servers/pen"),
        ("POST", "/servers/pen/enable"),
        ("POST", "/servers/pen/disable"),
    ],
)
async def test_servers_cannot_be_changed_without_permission_of_the_operator(method: str, path: str) -> None:
    body = {"name": "new", "entry": {"command": "true"}}
    async with serve([], {"pen": build_server([])}) as service:
        refused = await service.json(method, path, 403, json=body)
        listed = await service.json("GET", "/servers")
    assert refused["error"]["code"] == "not_allowed"
    assert ([server["name"] for server in listed["servers"]], listed["can_change"]) == (["pen"], False)

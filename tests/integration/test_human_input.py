"""Approvals and elicitation over HTTP: sent as events of the turn, answered by the first response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from tests.inner import ServerState
from tests.support.http_service import HttpService, ServerSentEvent, read_events, serve

pytestmark = pytest.mark.anyio

CALL = {"tool_calls": [{"name": "write", "arguments": {"what": "a"}}]}
TWO = {"tool_calls": [{"name": "write", "arguments": {"what": what}} for what in "ab"]}
ASKS = {"tool_calls": [{"name": "ask", "arguments": {}}]}
WAITS = {"tool_calls": [{"name": "wait", "arguments": {}}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Pen:
    """A server that records texts; one of its tools sends an elicitation request."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.released = anyio.Event()
        self.server = MCPServer("pen")

        class Age(BaseModel):
            age: int

        @self.server.tool(title="Write it down")
        def write(what: str) -> str:
            """Writes."""
            self.written.append(what)
            return f"written: {what}"

        @self.server.tool()
        async def wait() -> str:
            """Waits."""
            await self.released.wait()
            return "waited"

        @self.server.tool()
        async def ask(ctx: Context) -> str:
            """Asks."""
            answer = await ctx.elicit("How old are you?", Age)
            return f"{answer.action}: {answer.data.age if answer.action == 'accept' else '?'}"


@asynccontextmanager
async def stream_chat(
    server: HttpService, where: str
) -> AsyncIterator[tuple[AsyncIterator[ServerSentEvent], httpx2.Response]]:
    async with server.http.stream("POST", f"{where}/chat", json={"text": "Go!"}) as answer:
        yield read_events(answer), answer


@asynccontextmanager
async def chat_events(
    replies: list[Any], servers: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[HttpService, AsyncIterator[ServerSentEvent]]]:
    async with (
        serve(replies, servers, **options) as server,
        stream_chat(server, await server.conversation()) as (events, _),
    ):
        yield server, events


async def until(events: AsyncIterator[ServerSentEvent], name: str) -> ServerSentEvent:
    async for event in events:
        if event.name == name:
            return event
    raise AssertionError(f"no {name}")


async def results(events: AsyncIterator[ServerSentEvent]) -> list[Any]:
    return [event.data["content"] for event in [event async for event in events] if event.name == "tool_result"]


async def test_a_call_waits_until_it_is_allowed() -> None:
    pen = Pen()
    async with serve([CALL, "Done."], {"pen": pen.server}) as server:
        where = await server.conversation()
        async with stream_chat(server, where) as (events, answer):
            asked = (await until(events, "approval")).data
            pending = await server.json("GET", "/approvals")
            assert pen.written == []
            await server.json("POST", f"/approvals/{asked['id']}", 204, json={"decision": "once"})
            done = await until(events, "approval_done")
            outcomes = await results(events)
            turn = answer.headers["x-turn-id"]
        empty = await server.json("GET", "/approvals")
        late = await server.json("POST", f"/approvals/{asked['id']}", 404, json={"decision": "deny"})
    assert pending["approvals"] == [asked]
    assert asked == {
        "id": asked["id"],
        "conversation": where.rpartition("/")[2],
        "turn": turn,
        "agent": "",
        "agent_calls": [],
        "call": {"id": "call_1", "name": "write", "arguments": {"what": "a"}},
        "server": "pen",
        "tool": "write",
        "names": {"server": "pen", "tool": "write"},
        "title": "Write it down",
        "description": "Writes.",
        "read_only": False,
        "claims": {"title": "Write it down", "description": "Writes.", "annotations": {}},
        "change": "",
        "why_asked": "",
        "removed_invisible": 0,
        "invisible_in_arguments": 0,
        "schema": {
            "type": "object",
            "title": "writeArguments",
            "properties": {"what": {"title": "What", "type": "string"}},
            "required": ["what"],
        },
        "file_changes": [],
    }
    assert done.data == {"id": asked["id"], "decision": "once"}
    assert (pen.written, outcomes, empty["approvals"]) == (["a"], ["written: a"], [])
    assert late["error"]["code"] == "not_found"


async def test_a_denied_call_does_not_run_and_the_model_gets_the_reason() -> None:
    pen = Pen()
    async with chat_events([CALL, "I may not."], {"pen": pen.server}) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        reason = {"decision": "deny", "reason": "not on a Sunday"}
        await server.json("POST", f"/approvals/{asked}", 204, json=reason)
        outcomes = await results(events)
    assert pen.written == []
    assert outcomes == ["The user did not allow this call: not on a Sunday."]


@pytest.mark.parametrize("decision", ["session", "always"])
async def test_concurrent_calls_request_approval_concurrently_and_a_session_answer_approves_both(decision: str) -> None:
    pen = Pen()
    async with chat_events([TWO, CALL, "Done."], {"pen": pen.server}) as (server, events):
        first = (await until(events, "approval")).data["id"]
        second = (await until(events, "approval")).data["id"]
        assert first != second
        await server.json("POST", f"/approvals/{first}", 204, json={"decision": decision})
        outcomes = await results(events)
    assert sorted(pen.written) == ["a", "a", "b"]
    assert len(outcomes) == 3


async def test_a_conversation_that_waits_for_an_approval_does_not_delay_another_conversation() -> None:
    pen = Pen()
    async with serve([CALL, CALL, "Done."], {"pen": pen.server}) as server:
        first, second = await server.conversation(), await server.conversation()
        async with stream_chat(server, first) as (waiting, _):
            await until(waiting, "approval")
            async with stream_chat(server, second) as (events, _):
                asked = (await until(events, "approval")).data["id"]
                await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "once"})
                assert await results(events) == ["written: a"]


async def test_an_approval_without_an_answer_is_a_denial() -> None:
    pen = Pen()
    async with chat_events([CALL, "I may not."], {"pen": pen.server}, answer_timeout=0.0) as (_, events):
        done = await until(events, "approval_done")
        outcomes = await results(events)
    assert done.data["decision"] == "deny"
    assert outcomes == ["The user did not allow this call: nobody answered the request for approval."]
    assert pen.written == []


async def test_a_turn_that_waits_for_approval_is_listed_and_takes_no_place_of_the_limit() -> None:
    async with serve([CALL, "Hello.", "Done."], {"pen": Pen().server}, max_turns=1) as server:
        where = await server.conversation()
        async with stream_chat(server, where) as (events, _):
            asked = (await until(events, "approval")).data["id"]
            brief = {"id": asked, "kind": "approval", "server": "pen", "tool": "write"}
            conversation = where.rpartition("/")[2]
            assert (await server.json("GET", "/waiting"))["waiting"] == [{**brief, "conversation": conversation}]
            greeting = {"text": "Hi", "stream": False}
            assert (await server.json("POST", f"{await server.conversation()}/chat", json=greeting))["text"] == "Hello."
            await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "once"})
            assert await results(events) == ["written: a"]
        assert (await server.json("GET", "/waiting"))["waiting"] == []


async def test_a_stopped_turn_has_no_pending_approval() -> None:
    async with serve([CALL], {"pen": Pen().server}) as server:
        where = await server.conversation()
        async with stream_chat(server, where) as (events, _):
            asked = (await until(events, "approval")).data["id"]
            await server.json("POST", f"{where}/stop", 204)
            assert (await until(events, "approval_done")).data == {"id": asked, "decision": "deny"}
            assert await results(events) == ["Not run: it was cancelled."]
        assert (await server.json("GET", "/approvals"))["approvals"] == []


async def test_a_pending_approval_is_sent_again_to_a_reconnecting_client() -> None:
    async with serve([CALL, "Done."], {"pen": Pen().server}) as server:
        where = await server.conversation()
        async with stream_chat(server, where) as (events, answer):
            first = (await until(events, "approval")).data
            turn = answer.headers["x-turn-id"]
        async with server.http.stream("GET", f"{where}/turns/{turn}/events") as again:
            assert (await until(read_events(again), "approval")).data == first
        await server.json("POST", f"/approvals/{first['id']}", 204, json={"decision": "once"})


@pytest.mark.parametrize("answer", [{}, {"decision": "forever"}, {"decision": 1}, {"decision": "deny", "reason": 1}])
async def test_an_invalid_answer_keeps_the_approval_pending(answer: dict[str, Any]) -> None:
    async with chat_events([CALL, "Done."], {"pen": Pen().server}) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        await server.json("POST", f"/approvals/{asked}", 400, json=answer)
        assert len((await server.json("GET", "/approvals"))["approvals"]) == 1


async def test_calls_that_rules_allow_or_deny_need_no_approval() -> None:
    pen = Pen()
    async with chat_events([CALL, "Done."], {"pen": pen.server}, allow=["pen/*"]) as (_, events):
        assert await results(events) == ["written: a"]
    async with chat_events([CALL, "Done."], {"pen": pen.server}, deny=["write"]) as (_, events):
        assert "forbids" in (await results(events))[0]


async def test_an_elicitation_is_an_event_of_the_stream_and_is_answered() -> None:
    async with serve([ASKS, "Done."], {"pen": Pen().server}, allow=["*"]) as server:
        where = await server.conversation()
        async with stream_chat(server, where) as (events, _):
            asked = (await until(events, "question")).data
            pending = await server.json("GET", "/questions")
            wrong = {"action": "accept", "content": {"age": "old"}}
            refused = await server.json("POST", f"/questions/{asked['id']}", 400, json=wrong)
            right = {"action": "accept", "content": {"age": 7}}
            await server.json("POST", f"/questions/{asked['id']}", 204, json=right)
            done = await until(events, "question_done")
            outcomes = await results(events)
    assert pending["questions"] == [asked]
    assert (asked["server"], asked["message"]) == ("pen", "How old are you?")
    assert (asked["conversation"], asked["url"]) == (where.rpartition("/")[2], None)
    assert asked["schema"]["properties"]["age"]["type"] == "integer"
    assert "age" in refused["error"]["message"]
    assert done.data == {"id": asked["id"], "action": "accept"}
    assert outcomes == ["accept: 7"]


async def test_an_elicitation_reaches_only_the_conversation_whose_call_caused_it() -> None:
    pen, replies = Pen(), [ASKS, "Done.", WAITS, ASKS, "Done.", "Done."]
    async with serve(replies, {"pen": pen.server}, allow=["*"]) as server:
        first, second, third = [await server.conversation() for _ in range(3)]
        async with stream_chat(server, first) as (events, _):
            asked = (await until(events, "question")).data["id"]
            await server.json("POST", f"/questions/{asked}", 204, json={"action": "decline"})
            await results(events)
        async with stream_chat(server, second) as (waiting, _):
            await until(waiting, "tool_call")
            async with stream_chat(server, third) as (events, _):
                asked = (await until(events, "question")).data
                await server.json("POST", f"/questions/{asked['id']}", 204, json={"action": "decline"})
                await results(events)
            pen.released.set()
            seen = [event.name async for event in waiting]
    assert f"/conversations/{asked['conversation']}" == third
    assert "question" not in seen


async def test_an_elicitation_without_an_answer_is_cancelled() -> None:
    async with chat_events([ASKS, "Done."], {"pen": Pen().server}, allow=["*"], answer_timeout=0.0) as (_, events):
        assert (await until(events, "question_done")).data["action"] == "cancel"
        assert await results(events) == ["cancel: ?"]


async def test_a_server_that_connects_and_ends_is_an_event_of_the_stream() -> None:
    async with chat_events([CALL, "Done."], {"pen": Pen().server}) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        await server.json("POST", "/servers/pen/restart", 204)
        assert (await until(events, "server")).data["name"] == "pen"
        await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "once"})
        assert server.dial.servers["pen"].state is ServerState.READY


async def test_a_call_runs_with_arguments_changed_by_the_user_and_the_model_is_told() -> None:
    pen = Pen()
    async with chat_events([CALL, "Done."], {"pen": pen.server}) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        answer = {"decision": "once", "arguments": {"what": "b"}}
        await server.json("POST", f"/approvals/{asked}", 204, json=answer)
        outcomes = await results(events)
    assert pen.written == ["b"]
    assert "The user changed the arguments" in outcomes[0]


@pytest.mark.parametrize("arguments", [{"what": 5}, {}, [], "what"])
async def test_invalid_changed_arguments_keep_the_approval_pending(arguments: Any) -> None:
    pen = Pen()
    async with chat_events([CALL, "Done."], {"pen": pen.server}) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        answer = {"decision": "once", "arguments": arguments}
        refused = await server.json("POST", f"/approvals/{asked}", 400, json=answer)
        assert refused["error"]["code"] == "bad_arguments"
        assert len((await server.json("GET", "/approvals"))["approvals"]) == 1
        await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "deny"})
    assert pen.written == []


async def test_changed_arguments_apply_to_one_call_when_the_answer_approves_all_waiting_calls() -> None:
    pen = Pen()
    async with chat_events([TWO, "Done."], {"pen": pen.server}) as (server, events):
        first = (await until(events, "approval")).data
        await until(events, "approval")
        answer = {"decision": "session", "arguments": {"what": "changed"}}
        await server.json("POST", f"/approvals/{first['id']}", 204, json=answer)
        await results(events)
    unchanged = "b" if first["call"]["arguments"]["what"] == "a" else "a"
    assert sorted(pen.written) == [unchanged, "changed"]


async def test_changed_arguments_are_checked_before_approval() -> None:
    pen = Pen()
    async with chat_events([CALL, "Done."], {"pen": pen.server}) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        path = f"/approvals/{asked}/check"
        wrong = await server.json("POST", path, json={"arguments": {"what": 5}})
        unseen = await server.json(
            "POST", path, json={"arguments": {"what": "a\u200bb", "old_text": "1", "new_text": "2"}}
        )
        await server.json("POST", path, 400, json={"arguments": "no object"})
        await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "deny"})
    assert wrong["problems"] == ['what: 5 is not of type "string"']
    assert (unseen["problems"], unseen["invisible_in_arguments"]) == ([], 1)
    assert unseen["file_changes"][0]["lines"] == ["-1", "+2"]


async def test_an_approval_for_a_session_does_not_apply_to_another_conversation() -> None:
    pen = Pen()
    async with serve([TWO, CALL, "Done.", CALL, "Done."], {"pen": pen.server}) as server:
        async with stream_chat(server, await server.conversation()) as (events, _):
            first = (await until(events, "approval")).data["id"]
            await until(events, "approval")
            await server.json("POST", f"/approvals/{first}", 204, json={"decision": "conversation"})
            done = (await until(events, "approval_done")).data
            await results(events)
        assert sorted(pen.written) == ["a", "a", "b"]
        async with stream_chat(server, await server.conversation()) as (events, _):
            asked = (await until(events, "approval")).data["id"]
            await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "deny"})
            await results(events)
    assert done["decision"] == "conversation"
    assert sorted(pen.written) == ["a", "a", "b"]


@pytest.mark.parametrize("decision", ["conversation", "session", "always"])
async def test_a_grant_is_listed_and_after_its_revocation_the_tool_needs_approval(decision: str) -> None:
    pen = Pen()
    async with serve([CALL, "Done.", CALL, "Done."], {"pen": pen.server}) as server:
        where = await server.conversation()
        async with stream_chat(server, where) as (events, _):
            asked = (await until(events, "approval")).data["id"]
            await server.json("POST", f"/approvals/{asked}", 204, json={"decision": decision})
            await results(events)
        (grant,) = (await server.json("GET", "/grants"))["grants"]
        await server.json("DELETE", f"/grants/{grant['id']}", 204)
        await server.json("DELETE", f"/grants/{grant['id']}", 404)
        async with stream_chat(server, where) as (events, _):
            asked = (await until(events, "approval")).data["id"]
            await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "deny"})
            await results(events)
    assert (grant["server"], grant["tool"]) == ("pen", "write")
    assert pen.written == ["a"]

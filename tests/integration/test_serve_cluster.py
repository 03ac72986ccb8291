"""Several server processes with one PostgreSQL database: a client gets the same results from each of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import httpx2
import pytest
from mcp.server import MCPServer

from tests.inner import Message, Peers, Provider, ScriptedProvider, SQLStore, remote_turns
from tests.integration.test_conversation_routes import Maths
from tests.integration.test_human_input import ASKS, CALL, Pen, results, stream_chat, until
from tests.support.http_service import MODEL, HttpService, ServerSentEvent, join_text, read_events, serve
from tests.support.other_process import other_process
from tests.support.program import LONG
from tests.support.servers.launch import raw
from tests.support.temporary_stores import database_url, needs_postgres

pytestmark = [pytest.mark.anyio, needs_postgres]

WAITS = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
OTHER_CALL = {"tool_calls": [{"name": "write", "arguments": {"what": "b"}}]}
ONCE, SESSION = {"decision": "once"}, {"decision": "session"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def two(
    here: Sequence[Any] | Provider = (),
    there: Sequence[Any] | Provider = (),
    servers: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[HttpService, HttpService]]:
    """Run two services with one database."""
    async with database_url() as url, AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(
                serve(replies, servers, store=SQLStore(url), shared=True, **options)  # one store per process
            )
            for replies in (here, there)
        ]
        yield both[0], both[1]


@asynccontextmanager
async def reading(
    server: HttpService, where: str, turn: str, last: str = ""
) -> AsyncIterator[tuple[AsyncIterator[ServerSentEvent], httpx2.Response]]:
    headers = {"last-event-id": last} if last else {}
    async with server.http.stream("GET", f"{where}/turns/{turn}/events", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield read_events(answer), answer


async def cut_connections(server: HttpService) -> None:
    """End all connections to the server's database."""
    assert isinstance(server.store, SQLStore)
    assert isinstance(server.store.where, str)
    connection = await asyncpg.connect(server.store.where)
    end = (
        "pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.execute(f"SELECT {end}")
    await connection.close()


async def next_text(events: AsyncIterator[ServerSentEvent]) -> ServerSentEvent:
    async for event in events:
        if not event.name and event.data != "[DONE]" and event.data["choices"][0]["delta"].get("content"):
            return event
    raise AssertionError("no text")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages between the processes."""
    messages: list[str] = []
    send = Peers.send

    async def record(self: Peers, kind: str, content: Mapping[str, Any], to: str = "") -> None:
        messages.append(kind)
        await send(self, kind, content, to)

    monkeypatch.setattr(Peers, "send", record)
    return messages


async def test_a_running_turn_can_be_read_from_a_peer() -> None:
    maths = Maths()
    async with two([WAITS, "Done."], servers={"maths": maths.server}, allow=["*"]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, answer):
            turn = answer.headers["x-turn-id"]
            await maths.gate.begun.wait()
            async with reading(there, where, turn) as (foreign, again):
                await next_text(foreign)
                maths.gate.open.set()
                remote_events = [event async for event in foreign]
            local_events = [event async for event in events]
    assert again.headers["x-turn-id"] == turn
    assert remote_events[-1].data == "[DONE]"
    assert remote_events[-2].data["stop_reason"] == "answered"
    assert [e for e in local_events if e.name == "tool_result"] == [e for e in remote_events if e.name == "tool_result"]
    assert join_text(remote_events) == "Done."


async def test_a_client_resumes_at_its_position_even_after_the_end_of_the_turn() -> None:
    maths = Maths()
    async with two([WAITS, "Done."], servers={"maths": maths.server}, allow=["*"]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, answer):
            turn = answer.headers["x-turn-id"]
            await maths.gate.begun.wait()
            async with reading(there, where, turn) as (foreign, _):
                last = (await next_text(foreign)).id
            maths.gate.open.set()
            local_events = [event async for event in events]
        async with reading(there, where, turn, last) as (foreign, _):
            rest = [event async for event in foreign]
        async with reading(there, where, turn) as (foreign, _):
            whole = [event async for event in foreign]
        await there.json("GET", f"{where}/turns/another/events", 404)
    assert [event.id for event in whole] == [event.id for event in local_events]
    later = [event for event in whole if not event.id or int(event.id.split(":")[1]) > int(last.split(":")[1])]
    assert [(event.id, event.name) for event in rest] == [(event.id, event.name) for event in later]
    assert join_text(rest) == join_text(later)
    assert len(rest) < len(whole)


async def test_events_without_a_remote_reader_are_not_sent(sent: list[str]) -> None:
    async with two(["Hello."]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, answer):
            assert join_text([event async for event in events]) == "Hello."
        assert sent == []
        missing = await there.json("GET", f"{where}/turns/another/events", 404)
        async with reading(there, where, answer.headers["x-turn-id"]) as (late, _):
            assert join_text([event async for event in late]) == "Hello."
    assert missing["error"]["code"] == "turn_not_found"


async def test_many_events_of_a_turn_are_sent_in_few_messages(sent: list[str]) -> None:
    maths = Maths()
    many = {**WAITS, "text": "word " * 50}
    async with two([many, "Done."], servers={"maths": maths.server}, allow=["*"]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, answer):
            await maths.gate.begun.wait()
            async with reading(there, where, answer.headers["x-turn-id"]) as (foreign, _):
                maths.gate.open.set()
                remote_events = [event async for event in foreign]
            local_events = [event async for event in events]
    assert [event.id for event in remote_events] == [event.id for event in local_events]
    assert join_text(remote_events) == join_text(local_events)
    assert len(sent) < len(remote_events)


async def test_an_event_longer_than_a_notification_arrives_whole() -> None:
    text = "A" * 30_000 + "\u2603" + "A" * 30_000
    async with two([{"text": text, "hang": True}]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, answer):
            await next_text(events)
            async with reading(there, where, answer.headers["x-turn-id"]) as (foreign, _):
                read = ""
                while read != text:
                    read += (await next_text(foreign)).data["choices"][0]["delta"]["content"]


async def test_a_reader_goes_on_after_the_connections_to_the_database_were_cut() -> None:
    maths = Maths()
    async with two([WAITS, "Done."], servers={"maths": maths.server}, allow=["*"]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, answer):
            await maths.gate.begun.wait()
            async with reading(there, where, answer.headers["x-turn-id"]) as (foreign, _):
                await next_text(foreign)
                await cut_connections(here)
                maths.gate.open.set()
                remote_events = [event async for event in foreign]
            local_events = [event async for event in events]
    assert [event for event in local_events if event.name == "tool_result"] == [
        event for event in remote_events if event.name == "tool_result"
    ]
    assert join_text(remote_events) == "Done."


async def test_a_turn_is_stopped_from_a_peer() -> None:
    maths = Maths()
    async with two([WAITS], ["Well?"], {"maths": maths.server}, allow=["*"]) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, _):
            await maths.gate.begun.wait()
            await there.json("POST", f"{where}/stop", 204)
            assert (await until(events, "done")).data["stop_reason"] == "cancelled"
        await maths.gate.cancelled.wait()
        await there.json("POST", f"{where}/stop", 204)
        kept = await there.json("GET", where)
        async with stream_chat(there, where) as (events, _):
            assert join_text([event async for event in events]) == "Well?"
    assert [message["role"] for message in kept["messages"]] == ["user", "assistant", "tool"]


async def test_the_first_answer_to_an_approval_of_a_peer_decides() -> None:
    pen = Pen()
    async with two([CALL, "Done."], servers={"pen": pen.server}) as (here, there):
        async with stream_chat(here, await here.conversation()) as (events, _):
            asked = (await until(events, "approval")).data
            pending = [await server.json("GET", "/approvals") for server in (here, there)]
            await there.json("POST", f"/approvals/{asked['id']}", 400, json={"decision": "perhaps"})
            assert pen.written == []
            codes: list[int] = []

            async def decide(server: HttpService) -> None:
                codes.append((await server.http.post(f"/approvals/{asked['id']}", json=ONCE)).status_code)

            async with anyio.create_task_group() as group:
                for server in (here, there, here, there):
                    group.start_soon(decide, server)
            event = await until(events, "approval_done")
            assert await results(events) == ["written: a"]
        late = await there.json("POST", f"/approvals/{asked['id']}", 404, json=ONCE)
        left = [(await server.json("GET", "/approvals"))["approvals"] for server in (here, there)]
    assert pending == [{"approvals": [asked]}] * 2
    assert sorted(codes) == [204, 404, 404, 404]
    assert event.data == {"id": asked["id"], "decision": "once"}
    assert (late["error"]["code"], left) == ("not_found", [[], []])


async def test_the_reason_of_a_denial_at_a_peer_reaches_the_model() -> None:
    denied = {"decision": "deny", "reason": "not on a Sunday"}
    async with (
        two([CALL, "Done."], servers={"pen": Pen().server}) as (here, there),
        stream_chat(here, await here.conversation()) as (events, _),
    ):
        asked = (await until(events, "approval")).data["id"]
        await there.json("POST", f"/approvals/{asked}", 204, json=denied)
        assert await results(events) == ["The user did not allow this call: not on a Sunday."]


async def test_an_elicitation_is_answered_at_a_peer_that_checks_the_form() -> None:
    async with (
        two([ASKS, "Done."], servers={"pen": Pen().server}, allow=["*"]) as (here, there),
        stream_chat(here, await here.conversation()) as (events, _),
    ):
        asked = (await until(events, "question")).data
        pending = await there.json("GET", "/questions")
        wrong = {"action": "accept", "content": {"age": "old"}}
        refused = await there.json("POST", f"/questions/{asked['id']}", 400, json=wrong)
        right = {"action": "accept", "content": {"age": 7}}
        await there.json("POST", f"/questions/{asked['id']}", 204, json=right)
        event = await until(events, "question_done")
        assert await results(events) == ["accept: 7"]
    assert pending["questions"] == [asked]
    assert "age" in refused["error"]["message"]
    assert event.data["action"] == "accept"


async def test_an_expired_request_is_pending_at_no_server() -> None:
    async with (
        two([CALL, "Done."], servers={"pen": Pen().server}, answer_timeout=0.0) as (here, there),
        stream_chat(here, await here.conversation()) as (events, _),
    ):
        assert (await until(events, "approval_done")).data["decision"] == "deny"
        assert (await there.json("GET", "/approvals"))["approvals"] == []
        assert await results(events) == ["The user did not allow this call: nobody answered the request for approval."]


async def test_a_stopped_turn_has_no_pending_requests_at_a_peer() -> None:
    async with two([CALL], servers={"pen": Pen().server}) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, _):
            await until(events, "approval")
            await there.json("POST", f"{where}/stop", 204)
            await until(events, "approval_done")
            assert (await there.json("GET", "/approvals"))["approvals"] == []


async def test_a_session_approval_applies_to_all_servers_and_to_waiting_calls() -> None:
    pen = Pen()
    async with two([CALL, "Done."], [OTHER_CALL, "Done.", CALL, "Done."], {"pen": pen.server}) as (here, there):
        where = await there.conversation()
        async with stream_chat(here, await here.conversation()) as (ours, _), stream_chat(there, where) as (theirs, _):
            asked = (await until(ours, "approval")).data["id"]
            await until(theirs, "approval")
            await here.json("POST", f"/approvals/{asked}", 204, json=SESSION)
            assert (await results(ours), await results(theirs)) == (["written: a"], ["written: b"])
        async with stream_chat(there, where) as (theirs, _):
            named = [event.name async for event in theirs]
    assert "tool_result" in named
    assert "approval" not in named
    assert len(pen.written) == 3


async def test_a_session_grant_applies_to_the_unchanged_tool_and_ends_with_its_server() -> None:
    pen, changed = Pen(), MCPServer("pen")

    @changed.tool(title="Write it down")
    def write(what: str) -> str:
        """Write the text in public."""
        return f"told: {what}"

    async def asks(server: HttpService) -> bool:
        async with stream_chat(server, await server.conversation()) as (events, _):
            async for event in events:
                if event.name in ("approval", "tool_result"):
                    return event.name == "approval"
        raise AssertionError("no call")

    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(database_url())
        store = SQLStore(url)
        there = await stack.enter_async_context(
            serve([CALL, "Done."] * 2, {"pen": pen.server}, store=store, shared=True)
        )
        async with serve([CALL, "Done."], {"pen": pen.server}, store=SQLStore(url), shared=True) as here:
            async with stream_chat(here, await here.conversation()) as (events, _):
                asked = (await until(events, "approval")).data["id"]
                await there.json("POST", f"/approvals/{asked}", 204, json=SESSION)
                assert await results(events) == ["written: a"]
            assert not await asks(there)
            async with serve([CALL], {"pen": changed}, store=SQLStore(url), shared=True) as changed_service:
                assert await asks(changed_service)
        assert await asks(there)


async def test_a_grant_does_not_apply_to_a_server_started_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    asked: list[str] = []
    async with database_url() as url, AsyncExitStack() as stack:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)  # the entry names no folder: the server starts in the current folder
            service = serve([echo, "Done."], {"it": raw("Server")}, store=SQLStore(url), shared=True)
            server = await stack.enter_async_context(service)
            async with stream_chat(server, await server.conversation()) as (events, _):
                asked.append((await until(events, "approval")).data["id"])
                await server.json("POST", f"/approvals/{asked[-1]}", 204, json=SESSION)
                await until(events, "done")
    assert len(asked) == 2


async def test_a_peer_knows_the_steps_of_a_turn_before_its_client_tool_calls() -> None:
    adds = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}
    mine = {"tool_calls": [{"name": "mine", "arguments": {}}], "text": "A moment."}
    model = ScriptedProvider(["Both."])
    tools = [{"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}]
    asked: dict[str, Any] = {"model": MODEL, "tools": tools, "messages": [{"role": "user", "content": "Hi"}]}
    async with two([adds, mine], model, {"maths": Maths().server}, allow=["*"]) as (here, there):
        handed = await here.json("POST", "/v1/chat/completions", json=asked)
        message = handed["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}
        asked["messages"] += [message, result]
        last = await there.json("POST", "/v1/chat/completions", json=asked)
    assert last["choices"][0]["message"]["content"] == "Both."
    messages = [(m.role.value, m.text) for m in model.requests[0].messages]
    assert messages == [("user", "Hi"), ("assistant", ""), ("tool", "3"), ("assistant", "A moment."), ("tool", "42")]


async def test_requests_for_a_turn_that_no_server_runs_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_turns, "REQUEST_TIMEOUT", 0.1)
    async with two() as (here, _):
        made = await here.store.create()
        await here.store.acquire(made.id, "a-turn", [Message.user("Hi")], expected_count=0, lease=LONG, title="")
        where = f"/conversations/{made.id}"
        assert (await here.json("GET", f"{where}/turns/a-turn/events", 404))["error"]["code"] == "turn_not_found"
        assert (await here.json("POST", f"{where}/stop", 409))["error"]["code"] == "runs_elsewhere"
        await here.json("GET", "/conversations/none/turns/a-turn/events", 404)
        await here.json("POST", "/conversations/none/stop", 404)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_stream_whose_server_is_gone_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    monkeypatch.setattr(remote_turns, "END_TIMEOUT", 0.0)
    monkeypatch.setattr(remote_turns, "SILENCE_TIMEOUT", 0.1)
    async with two() as (here, _):
        store = here.store
        assert isinstance(store, SQLStore)
        made = await store.create()
        await store.acquire(made.id, "a-turn", [Message.user("Hi")], expected_count=0, lease=LONG, title="")
        turns = {"a-turn": [[1, "id: a-turn:1\ndata: 1\n\n"]]}
        async with AsyncExitStack() as stack:
            async with other_process(store, turns):
                events, _ = await stack.enter_async_context(reading(here, f"/conversations/{made.id}", "a-turn"))
                first = await anext(events)
            if is_deleted:
                await store.delete(made.id)
            else:
                await store.renew(made.id, "a-turn", 0.0)
            rest = [event async for event in events]
    assert (first.id, first.data) == ("a-turn:1", 1)
    assert [event.name for event in rest] == ["error", ""]
    assert rest[0].data["type"] == "TurnLost"
    assert "the conversation has the messages stored until then" in rest[0].data["message"]
    assert rest[1].data == "[DONE]"


async def test_a_stopping_server_reports_how_its_turns_ended() -> None:
    maths = Maths()
    async with database_url() as url, AsyncExitStack() as stack:
        there = await stack.enter_async_context(serve([], store=SQLStore(url), shared=True))
        leaving = serve([WAITS], {"maths": maths.server}, allow=["*"], store=SQLStore(url), grace=0.0, shared=True)
        async with leaving as here:
            where = await here.conversation()
            async with stream_chat(here, where) as (_, answer):
                await maths.gate.begun.wait()
                events, _ = await stack.enter_async_context(reading(there, where, answer.headers["x-turn-id"]))
                await next_text(events)
        rest = [event async for event in events]
    assert (rest[-2].data["stop_reason"], rest[-1].data) == ("cancelled", "[DONE]")


async def test_an_answer_counts_although_its_message_was_lost() -> None:
    pen = Pen()
    async with two([], [CALL, "Written."], {"pen": pen.server}) as (here, there):
        store = here.store
        assert isinstance(store, SQLStore)
        where = await there.conversation()
        async with stream_chat(there, where) as (events, _):
            asked = (await until(events, "approval")).data
            # Another process answers, and its message does not arrive.
            answer = {"decision": "once", "reason": "", "arguments": None}
            assert await store.values.replace("approval", asked["id"], "answer", json.dumps(answer), LONG)
            await there.context.human_input.requests.collect_answers()
            assert await results(events) == ["written: a"]
        assert (await here.json("GET", "/approvals"))["approvals"] == []

"""The service keeps working when the database fails, or when its rows cannot be read or written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from tests.inner import (
    APPROVAL,
    DONE,
    DialClient,
    GrantedTool,
    HandoffStore,
    InputRequested,
    Message,
    Peers,
    PendingRequests,
    ScriptedProvider,
    SharedValues,
    SQLStore,
    StopReason,
    ToolCallRequest,
    ToolCallResult,
    Turn,
    TurnRegistry,
    Usage,
    human_input,
    pending_requests,
    remote_turns,
)
from tests.integration.test_conversation_routes import Maths
from tests.integration.test_human_input import CALL, Pen, chat_events, results, stream_chat, until
from tests.integration.test_serve_cluster import WAITS, next_text, reading, two
from tests.support.http_service import MODEL, HttpService, ServerSentEvent, serve
from tests.support.other_process import other_process
from tests.support.program import LONG
from tests.support.temporary_stores import database_url, locked, needs_postgres

ONCE = {"decision": "once"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def shared_chat(
    replies: list[Any], servers: dict[str, Any]
) -> AsyncIterator[tuple[HttpService, AsyncIterator[ServerSentEvent], SQLStore]]:
    """Run one of several processes, and a turn of it."""
    async with database_url() as url:
        store = SQLStore(url)
        async with chat_events(replies, servers, store=store, shared=True) as (server, events):
            yield server, events, store


async def query_postgres(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


@needs_postgres
@pytest.mark.anyio
async def test_an_approval_is_answered_locally_after_it_expired_in_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(human_input, "_DELIVERY_TIMEOUT", 0.1)
    pen = Pen()
    async with shared_chat([CALL, "Done."], {"pen": pen.server}) as (server, events, store):
        asked = (await until(events, "approval")).data["id"]
        # As if the machine was suspended or the database unreachable, and another process deleted expired rows.
        await store.values.take(APPROVAL, asked)
        await server.json("POST", f"/approvals/{asked}", 204, json=ONCE)
        assert await results(events) == ["written: a"]
        await server.json("POST", f"/approvals/{asked}", 404, json=ONCE)


@needs_postgres
@pytest.mark.anyio
async def test_requests_in_a_format_of_another_version_are_not_listed() -> None:
    async with shared_chat([CALL, "Done."], {"pen": Pen().server}) as (server, events, store):
        asked = (await until(events, "approval")).data
        for name, value in (("a", '{"form": 2}'), ("b", "[]")):
            await store.values.put(APPROVAL, name, value, LONG)
        assert (await server.json("GET", "/approvals"))["approvals"] == [asked]
        await server.json("POST", f"/approvals/{asked['id']}", 204, json=ONCE)
        assert await results(events) == ["written: a"]


@pytest.mark.anyio
@pytest.mark.parametrize("body", ['{"form": 2}', '{"messages": []}'])
async def test_a_handoff_of_another_version_is_treated_like_a_missing_handoff(tmp_path: Path, body: str) -> None:
    call = f"call_{'0' * 32}"
    function = {"name": "mine", "arguments": "{}"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "content": "42"},
    ]
    store = SQLStore(tmp_path / "kept.db")
    async with serve(["42 it is."], store=store) as server:
        await store.values.put("handoff", call, body, LONG)
        answer = await server.json("POST", "/v1/chat/completions", json={"model": MODEL, "messages": messages})
    assert answer["choices"][0]["message"]["content"] == "42 it is."


@pytest.mark.anyio
async def test_only_the_latest_handoffs_are_kept(tmp_path: Path) -> None:
    store = SQLStore(tmp_path / "kept.db")
    here, there = HandoffStore(store.values, max_turns=2), HandoffStore(store.values, max_turns=2)
    messages: list[Message] = []
    for at in range(4):
        call = ToolCallRequest("mine", "mine", {})
        inner = (Message.assistant(f"hidden {at}"), Message.assistant("A moment.", [call]))
        turn = Turn(inner[-1], inner, StopReason.CLIENT_TOOL_CALLS, 0, Usage(), client_tool_calls=(call,))
        (out,) = await here.issue_calls(turn)
        messages += [
            Message.assistant("A moment.", [out]),
            Message.tool(out, ToolCallResult(out.id, success=True, content="42")),
        ]
    hidden = [
        [message.text for message in await store.restore(messages) if message.text.startswith("hidden")]
        for store in (here, here, there, there)
    ]
    await store.aclose()
    assert hidden == [["hidden 2", "hidden 3"]] * 4


@needs_postgres
@pytest.mark.anyio
async def test_a_reader_of_a_remote_turn_continues_after_a_database_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_turns, "SILENCE_TIMEOUT", 0.05)
    async with database_url() as url, serve([], store=(store := SQLStore(url)), shared=True) as server:
        made = await store.create()
        await store.acquire(made.id, "a-turn", [Message.user("Hi")], expected_count=0, lease=LONG, title="")
        turns: dict[str, Any] = {"a-turn": [[1, "id: a-turn:1\ndata: 1\n\n"]]}
        async with other_process(store, turns), reading(server, f"/conversations/{made.id}", "a-turn") as (events, _):
            await anext(events)
            await query_postgres(url, "ALTER TABLE conversations RENAME TO away")
            await anyio.sleep(0.3)  # the reader checks now whether the turn still runs
            await query_postgres(url, "ALTER TABLE away RENAME TO conversations")
            turns["a-turn"] += [[2, "id: a-turn:2\ndata: 2\n\n"], [None, DONE]]
            rest = [event.data async for event in events]
    assert rest == [2, "[DONE]"]


@needs_postgres
@pytest.mark.anyio
async def test_a_failed_renewal_is_retried_after_a_pause_and_the_log_has_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pending_requests, "LEASE_TTL", 0.03)
    tried: list[float] = []

    class Watched(SharedValues):
        async def renew(self, values: Iterable[tuple[str, str]], seconds: float) -> None:
            tried.append(anyio.current_time())
            await super().renew(values, seconds)

    async with database_url() as url, SQLStore(url) as store:
        store.values = Watched(store._database)
        requests = PendingRequests(Peers(store))
        await requests.grant(GrantedTool("key", "it", "echo"))
        await query_postgres(url, "DROP TABLE shared_values")
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                group.start_soon(requests.run)
                while len(tried) < 2:  # noqa: ASYNC110 - it is another task's
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
    assert tried[1] - tried[0] >= pending_requests.RETRY_PAUSE
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


@needs_postgres
@pytest.mark.anyio
async def test_an_event_that_cannot_be_serialized_ends_only_the_streams_of_its_turn() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    maths = Maths()
    async with two([WAITS, WAITS], servers={"maths": maths.server}, allow=["*"]) as (here, there):
        wrong, fine = await here.conversation(), await here.conversation()
        async with stream_chat(here, wrong) as (_, answer), stream_chat(here, fine) as (_, readable):
            await maths.gate.begun.wait()
            async with (
                reading(there, wrong, answer.headers["x-turn-id"]) as (broken, _),
                reading(there, fine, readable.headers["x-turn-id"]) as (whole, _),
            ):
                await next_text(broken)
                wrong_turn = answer.headers["x-turn-id"]
                (turn,) = (running for running in here.turns.conversation_turns if running.id == wrong_turn)
                turn.announce(InputRequested("a", "question", {"deep": deep}))
                rest = [event async for event in broken]
                maths.gate.open.set()
                await until(whole, "tool_result")
    assert ([event.name for event in rest[-2:]], rest[-1].data) == (["error", ""], "[DONE]")


@pytest.mark.anyio
async def test_a_turn_that_starts_during_shutdown_is_cancelled() -> None:
    turns = TurnRegistry()
    with anyio.fail_after(LONG):
        async with DialClient(ScriptedProvider([{"hang": True}])) as dial:
            with turns.reserve(""):
                await turns.end(0.0)
                turn = dial.start([Message.user("Hi")], stream_events=False)
                turns.add(turn)
            assert (await turn.result()).stop_reason is StopReason.CANCELLED


def test_writes_that_waited_in_an_ended_event_loop_are_not_stored_later(tmp_path: Path) -> None:
    file = tmp_path / "kept.db"
    store = SQLStore(file, patience=0.2)

    async def leave_writes_waiting(conversation: str) -> None:
        for text in ("first", "second"):
            asyncio.get_running_loop().create_task(store.append(conversation, [Message.user(text)]))
            await anyio.wait_all_tasks_blocked()

    async def append_and_read(conversation: str) -> list[str]:
        await store.append(conversation, [Message.user("third")])
        texts = [message.text for message in (await store.get(conversation)).messages]
        await store.aclose()
        return texts

    made = asyncio.run(store.create())
    with locked(file):
        asyncio.run(leave_writes_waiting(made.id))
    assert asyncio.run(append_and_read(made.id)) == ["third"]

"""Turns that wait for a place, and the limits of persons at all processes together."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import httpx2
import pytest

from tests.inner import AccessPolicy, LimitTable, Operations, OwnerLimiter, OwnerLimits, PersonalTokens, SQLStore, peers
from tests.integration.test_conversation_routes import Maths, chat
from tests.integration.test_durable import new_enough
from tests.integration.test_serve_cluster import cut_connections
from tests.support.database_proxy import DatabaseProxy
from tests.support.http_service import HttpService, join_text, read_events, serve
from tests.support.temporary_stores import database_url, needs_postgres

pytestmark = pytest.mark.anyio

WAITS = {"tool_calls": [{"name": "wait", "arguments": {}}]}
ASKED = {"messages": [{"role": "user", "content": "Hello?"}]}
QUEUED = {"text": "Waiting until other turns have ended…", "code": "queued"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_turn_that_waits_for_a_place_says_so_is_stored_and_can_be_stopped() -> None:
    maths = Maths()
    async with serve([WAITS, "Done."], {"maths": maths.server}, max_turns=1, allow=["*"]) as server:
        first, second = await server.conversation(), await server.conversation()
        async with anyio.create_task_group() as group:
            group.start_soon(chat, server, first)
            await maths.gate.begun.wait()
            async with server.http.stream("POST", f"{second}/chat", json={"text": "Hi"}) as waiting:
                events = read_events(waiting)
                status = await anext(events)
                running, _, queued = server.turns.count()
                read = await server.json("GET", second)
                await server.json("POST", f"{second}/stop", 204)
                ended = [event async for event in events]
            maths.gate.open.set()
    assert (status.name, status.data) == ("status", QUEUED)
    assert (running, queued) == (1, 1)
    assert read["running"]
    assert read["messages"][0]["content"] == "Hi"
    assert ended[-2].data["stop_reason"] == "cancelled"


async def test_a_turn_that_has_waited_too_long_is_refused_and_may_be_sent_again() -> None:
    maths = Maths()
    options: dict[str, Any] = {"max_turns": 1, "max_wait": 0.05, "allow": ["*"]}
    async with serve([WAITS, "Done.", "Hello."], {"maths": maths.server}, **options) as server:
        first, second = await server.conversation(), await server.conversation()
        async with anyio.create_task_group() as group:
            group.start_soon(chat, server, first)
            await maths.gate.begun.wait()
            of_api = await server.http.post("/v1/chat/completions", json=ASKED)
            refused = await server.http.post(f"{second}/chat", json={"text": "Hi", "stream": False})
            maths.gate.open.set()
        await server.json("POST", f"{second}/regenerate", json={"stream": False})
        read = await server.json("GET", second)
    for answer in (of_api, refused):
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert answer.json()["error"]["code"] == "too_many_turns"
    assert [message["content"] for message in read["messages"]] == ["Hi", "Hello."]


@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_of_the_model_api_that_leaves_while_its_turn_waits_takes_no_place(*, streams: bool) -> None:
    maths = Maths()
    async with serve([WAITS, "Done.", "Hello."], {"maths": maths.server}, max_turns=1, allow=["*"]) as server:
        first = await server.conversation()
        async with anyio.create_task_group() as group:
            group.start_soon(chat, server, first)
            await maths.gate.begun.wait()
            async with anyio.create_task_group() as client:
                client.start_soon(lambda: server.http.post("/v1/chat/completions", json=ASKED | {"stream": streams}))
                while server.turns.count()[2] == 0:  # noqa: ASYNC110 - the request is on its way
                    await anyio.sleep(0.01)
                client.cancel_scope.cancel()
            while server.turns.count()[2]:  # noqa: ASYNC110 - the server notices it by itself
                await anyio.sleep(0.01)
            maths.gate.open.set()
        assert join_text(await chat(server, await server.conversation())) == "Hello."


@new_enough
async def test_a_durable_turn_that_waits_is_answered_by_the_next_process_within_its_limit(tmp_path: Path) -> None:
    maths = Maths()
    options: dict[str, Any] = {"max_turns": 1, "durable": True}
    async with serve(
        [WAITS], {"maths": maths.server}, allow=["*"], store=SQLStore(tmp_path / "a.db"), grace=0.0, **options
    ) as server:
        wheres = [await server.conversation() for _ in range(2)]
        async with anyio.create_task_group() as group:
            group.start_soon(chat, server, wheres[0])
            await maths.gate.begun.wait()
            async with server.http.stream("POST", f"{wheres[1]}/chat", json={"text": "Hi"}) as waiting:
                events = read_events(waiting)
                await anext(events)  # from the head of the response on the turn is durable
                server.server.shut_down()
                async for _ in events:
                    pass
    async with serve(["Done.", "Done."], store=SQLStore(tmp_path / "a.db"), **options) as server:
        read = []
        for where in wheres:
            while (found := await server.json("GET", where))["running"]:  # noqa: ASYNC110 - another's turn
                await anyio.sleep(0.05)
            read.append([message["content"] for message in found["messages"]])
    assert [contents[0] for contents in read] == ["Hello?", "Hi"]
    assert [contents[-1] for contents in read] == ["Done.", "Done."]


@asynccontextmanager
async def open_two(
    limits: Mapping[str, OwnerLimits], maths: Maths, **options: Any
) -> AsyncIterator[tuple[HttpService, HttpService, httpx2.AsyncClient, httpx2.AsyncClient]]:
    """Run two processes of one service, and log anna in at both."""
    async with database_url() as url, AsyncExitStack() as stack:
        services, clients = [], []
        for replies in ([WAITS, "Done.", "Once more."], ["Hello.", "Again."]):
            store = SQLStore(url)
            operations = Operations(limits=OwnerLimiter(LimitTable(limits)))
            service = await stack.enter_async_context(
                serve(
                    replies,
                    {"maths": maths.server},
                    store=store,
                    shared=True,
                    policy=AccessPolicy(authenticator=PersonalTokens(store.tokens)),
                    operations=operations,
                    middleware=operations.middleware,
                    single_user=False,
                    allow=["*"],
                )
            )
            text, _ = await store.tokens.create("a program", "anna", ["chat", "read"], **options)
            headers = {"Authorization": f"Bearer {text}"}
            client = httpx2.AsyncClient(base_url=service.url, headers=headers, trust_env=False, timeout=60.0)
            services.append(service)
            clients.append(await stack.enter_async_context(client))
        yield *services, *clients  # type: ignore[misc]


async def create(client: httpx2.AsyncClient) -> str:
    return f"/conversations/{(await client.post('/conversations', json={})).json()['id']}"


async def wait_for_lock(service: HttpService) -> None:
    """Wait until a process of the service has a lock."""
    assert isinstance(service.store, SQLStore)
    connection = await asyncpg.connect(str(service.store.where))
    statement = "SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database AND datname = current_database()"
    while not await connection.fetch(f"{statement} WHERE locktype = 'advisory'"):  # noqa: ASYNC110 - of PostgreSQL
        await anyio.sleep(0.01)
    await connection.close()


@needs_postgres
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_person_has_so_many_turns_at_all_processes_together(*, is_cut: bool) -> None:
    maths = Maths()
    async with open_two({"*": OwnerLimits(turns=1)}, maths) as (first, second, here, there):
        of_first, of_second = await create(here), await create(there)
        async with here.stream("POST", f"{of_first}/chat", json={"text": "Wait."}) as running:
            await maths.gate.begun.wait()
            if is_cut:  # the locks are lost, and taken again
                await cut_connections(first)
                await wait_for_lock(first)
            async with there.stream("POST", f"{of_second}/chat", json={"text": "Hello?"}) as waiting:
                events = read_events(waiting)
                status = await anext(events)
                is_waiting = second.turns.count()
                maths.gate.open.set()
                await running.aread()
                text = join_text([event async for event in events])
        answers = [await client.post("/v1/chat/completions", json=ASKED) for client in (here, there)]
    assert (status.name, status.data) == ("status", QUEUED)
    assert is_waiting == (0, 0, 1)
    assert text == "Hello."
    assert [answer.status_code for answer in answers] == [200, 200]


@needs_postgres
async def test_a_turn_begins_soon_while_the_database_is_away_however_many_ask_for_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_CONNECTING", 0.5)
    async with database_url() as direct:
        with DatabaseProxy(direct) as proxy:
            limits = OwnerLimits(turns=60, requests_per_minute=1000)
            operations = Operations(limits=OwnerLimiter(LimitTable({"*": limits})))
            store = SQLStore(proxy.url)
            async with serve(["Hello."] * 60, store=store, shared=True, operations=operations, max_wait=15) as service:
                proxy.cut()
                answers: list[int] = []

                async def ask() -> None:
                    answers.append((await service.http.post("/v1/chat/completions", json=ASKED)).status_code)

                async with anyio.create_task_group() as group:
                    for _ in range(60):
                        group.start_soon(ask)
                proxy.restore()
    assert answers == [200] * 60


@needs_postgres
async def test_a_turn_gets_the_place_of_a_process_that_was_killed() -> None:
    async with open_two({"*": OwnerLimits(turns=1)}, Maths()) as (_, second, _, there):
        assert isinstance(second.store, SQLStore)
        killed = await asyncpg.connect(str(second.store.where))
        key = int.from_bytes(hashlib.sha256(b"anna").digest()[:4], signed=True)
        await killed.execute("SELECT pg_advisory_lock($1, 1)", key)
        async with there.stream("POST", f"{await create(there)}/chat", json={"text": "Hello?"}) as waiting:
            events = read_events(waiting)
            status = await anext(events)
            killed.terminate()  # it tells nobody
            with anyio.fail_after(30):
                text = join_text([event async for event in events])
    assert (status.data, text) == (QUEUED, "Hello.")


@needs_postgres
@pytest.mark.parametrize("code", ["requests_limit_exceeded", "rate_limit_exceeded"])
async def test_a_person_and_a_token_send_so_many_requests_to_all_processes_together(code: str) -> None:
    of_person = OwnerLimits(requests_per_minute=3 if code == "requests_limit_exceeded" else None)
    of_token = 0 if of_person.requests_per_minute else 3
    async with open_two({"*": of_person}, Maths(), requests_per_minute=of_token) as (_, second, here, _):
        answers = [(await here.get("/conversations")).status_code for _ in range(3)]
        with anyio.fail_after(30):
            while (answer := await here.get(f"{second.url}/conversations")).status_code == 200:  # noqa: ASYNC110
                await anyio.sleep(0.02)
    assert answers == [200, 200, 200]
    assert answer.json()["error"]["code"] == code
    assert int(answer.headers["retry-after"]) > 0

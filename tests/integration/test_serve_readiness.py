"""What a service says while its database is away, and while it shuts down."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import pytest

from tests.inner import Operations, SQLStore, conversation_routes
from tests.integration.test_conversation_routes import Maths, chat
from tests.support.database_proxy import DatabaseProxy
from tests.support.http_service import serve
from tests.support.temporary_stores import database_url, needs_postgres

pytestmark = pytest.mark.anyio

# What another process may have kept: a response, and the results beside a call that its client has answered.
ELSEWHERE = f"resp_{'0' * 32}"
CALL = {"id": f"call_{'0' * 32}", "type": "function", "function": {"name": "mine", "arguments": "{}"}}
RETURNED = [
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": CALL["id"], "content": "seven"},
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@needs_postgres
async def test_while_the_database_is_away_requests_are_told_to_come_again_and_the_log_says_why_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with database_url() as direct:
        with DatabaseProxy(direct) as proxy, caplog.at_level(logging.WARNING):
            async with serve(["Hello."] * 2, store=SQLStore(proxy.url)) as service:
                ready = await service.http.get("/readyz")
                created = await service.json("POST", "/conversations", 201)
                path = f"/conversations/{created['id']}"
                proxy.cut()
                stored = await service.http.post("/v1/responses", json={"input": "Hello?"})
                refused = [
                    await service.http.post("/v1/responses", json={"input": "More", "previous_response_id": ELSEWHERE}),
                    await service.http.post("/v1/chat/completions", json={"messages": RETURNED}),
                    await service.http.get("/conversations"),
                    await service.http.get(path),
                    await service.http.post(f"{path}/chat", json={"text": "Hello?"}),
                ]
                away = await service.http.get("/readyz", headers={"Authorization": ""})
                alive = await service.http.get("/healthz")
                proxy.restore()
                answered = await service.json("POST", f"{path}/chat", json={"text": "Hello?", "stream": False})
                again = await service.http.get("/readyz")
    assert [(answer.status_code, answer.headers["retry-after"]) for answer in refused] == [(503, "5")] * 5
    assert {answer.json()["error"]["code"] for answer in refused} == {"no_database"}
    assert not any("127.0.0.1" in answer.text for answer in refused)
    assert (away.status_code, away.json()) == (503, {"status": "not ready", "missing": ["database"]})
    assert (ready.status_code, alive.status_code, again.status_code) == (200, 200, 200)
    assert answered["text"] == "Hello."
    assert stored.status_code == 200
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert [warning.partition(" ")[0] for warning in warnings] == [
        "event='database_failed'",
        "event='database_works_again'",
    ]


@needs_postgres
async def test_a_stop_whose_turn_cannot_be_stored_is_told_to_come_again_until_the_turn_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_routes, "STOP_TIMEOUT", 0.3)
    maths = Maths()
    calls_wait = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
    async with database_url() as direct:
        with DatabaseProxy(direct) as proxy:
            async with (
                serve([calls_wait], {"maths": maths.server}, store=SQLStore(proxy.url), allow=["*"]) as service,
                anyio.create_task_group() as group,
            ):
                where = await service.conversation()
                group.start_soon(chat, service, where)
                await maths.gate.begun.wait()
                proxy.cut()
                refused = [await service.http.post(f"{where}/stop") for _ in range(2)]
                proxy.restore()
                while (stopped := await service.http.post(f"{where}/stop")).status_code == 503:
                    pass
                read = await service.json("GET", where)
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(503, "2")}
    assert {answer.json()["error"]["code"] for answer in refused} == {"not_stored_yet"}
    assert stopped.status_code == 204
    assert [message["role"] for message in read["messages"]] == ["user", "assistant", "tool"]
    assert (read["running"], read["turns"][0]["stop_reason"], read["notes"]) == (None, "cancelled", [])


async def test_a_service_that_shuts_down_is_alive_and_not_ready() -> None:
    async with serve([]) as service:
        service.turns.is_closed = True
        ready, alive = await service.http.get("/readyz"), await service.http.get("/healthz")
        asked = await service.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
    assert (ready.status_code, ready.json()["missing"]) == (503, ["accepts no more turns"])
    assert alive.status_code == 200
    assert (asked.status_code, asked.headers["retry-after"]) == (503, "5")


@needs_postgres
async def test_however_often_readiness_is_asked_the_database_is_asked_once_in_an_interval() -> None:
    async with database_url() as direct:
        with DatabaseProxy(direct) as proxy:
            operations = Operations(check_interval=1000.0)
            async with serve([], store=SQLStore(proxy.url), operations=operations) as service:
                first = await service.http.get("/readyz")
                proxy.cut()
                later = [await service.http.get("/readyz", headers={"Authorization": ""}) for _ in range(20)]
    assert {answer.status_code for answer in (first, *later)} == {200}


async def test_a_service_whose_disk_is_full_is_not_ready(tmp_path: Path) -> None:
    operations = Operations(min_free_bytes=2**62, check_interval=0.0)
    async with serve([], store=SQLStore(tmp_path / "a.db"), operations=operations) as service:
        ready = await service.http.get("/readyz")
    assert (ready.status_code, ready.json()["missing"], ready.headers["retry-after"]) == (503, ["disk"], "5")

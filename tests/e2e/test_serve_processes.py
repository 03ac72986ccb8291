"""Two processes of `dial-chat serve --durable` with one PostgreSQL database, behind a proxy that has no affinity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from dial_client.serve import McpOptions
from tests.inner import SQLStore, build_routes
from tests.integration.test_foreign_owners import PERSONAL
from tests.integration.test_human_input import until
from tests.integration.test_serve_cluster import ONCE, next_text
from tests.integration.test_serve_shutdown import serving
from tests.support.foreign_requests import MARKER, Estate, ask_for_foreign, expect, list_routes
from tests.support.http_service import TOKEN, ServerSentEvent, read_events, serve
from tests.support.program import LONG, entry, waiting_for, write_config
from tests.support.temporary_stores import database_url, needs_dbos, needs_postgres

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Proxy:
    """A client that sends each request to the next server in turn."""

    def __init__(self, urls: Sequence[str]) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.servers = [
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=LONG, trust_env=False, verify=False)
            for url in urls
        ]
        self._next = cycle(self.servers)

    async def json(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = await next(self._next).request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    @asynccontextmanager
    async def events(
        self, method: str, path: str, **more: Any
    ) -> AsyncIterator[tuple[AsyncIterator[ServerSentEvent], str]]:
        async with next(self._next).stream(method, path, **more) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield read_events(answer), answer.headers["x-turn-id"]

    def remove(self, server: int) -> None:
        self._next = cycle(server_ for at, server_ in enumerate(self.servers) if at != server)


async def allow_and_stop_elsewhere(proxy: Proxy, where: str) -> None:
    """Start a turn at one server, and send each further request to the next server in turn."""
    async with proxy.events("POST", f"{where}/chat", json={"text": "Echo!"}) as (events, turn):
        await until(events, "approval")
    follows = f"{where}/turns/{turn}/events"
    async with proxy.events("GET", follows) as (events, _):
        asked = (await until(events, "approval")).data
        assert (await proxy.json("GET", "/approvals"))["approvals"] == [asked]
        await proxy.json("POST", f"/approvals/{asked['id']}", 204, json=ONCE)
        await proxy.json("POST", f"/approvals/{asked['id']}", 404, json=ONCE)
        assert (await until(events, "approval_done")).data["decision"] == "once"
        assert (await until(events, "tool_result")).data["success"]
        last = (await next_text(events)).id
    await proxy.json("POST", f"{where}/stop", 204)
    assert (await proxy.json("GET", where))["title"] == "Echo!"
    async with proxy.events("GET", follows, headers={"last-event-id": last}) as (events, _):
        rest = [event async for event in events]
    assert (rest[-2].data["stop_reason"], rest[-1].data) == ("cancelled", "[DONE]")
    assert last not in [event.id for event in rest]
    messages = (await proxy.json("GET", where))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]


@needs_dbos
@needs_postgres
async def test_every_process_gives_the_same_results(tmp_path: Path) -> None:
    calls = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    replies = [{"text": "Of the first.", "hang": True}], [calls, {"text": "I think", "hang": True}, "Gone on with."]
    async with database_url() as url, AsyncExitStack() as stack:
        processes = []
        for name, script in zip("ab", replies, strict=True):
            (tmp_path / name).mkdir()
            write_config(tmp_path / name, {"it": entry("Server")}, script)
            processes.append(
                stack.enter_context(serving(tmp_path / name, "--durable", "--store", url, "--token", TOKEN))
            )
        proxy = Proxy([address for _, address, _ in processes])
        for client in proxy.servers:
            await stack.enter_async_context(client)
        where = (
            f"/conversations/{(await proxy.json('POST', '/conversations', 201))['id']}"  # first request: first server
        )
        with waiting_for("the end of a turn that another process stops"):
            await allow_and_stop_elsewhere(proxy, where)

        with waiting_for("the text of the second turn"):
            async with proxy.events("POST", f"{where}/chat", json={"text": "And then?"}) as (events, turn):
                await next_text(events)
        async with proxy.events("GET", f"{where}/turns/{turn}/events") as (events, _):
            assert (await next_text(events)).data["choices"][0]["delta"]["content"].startswith("Of")
            processes[0][0].kill()
            proxy.remove(0)
            with waiting_for("the end of the events of a process that was killed"):
                rest = [event async for event in events]
        assert [event.name for event in rest][-2:] == ["error", ""]
        assert rest[-1].data == "[DONE]"
        with waiting_for("the end of the turn that the other process resumes"):
            while (left := await proxy.json("GET", where))["running"]:  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.1)
        assert [message["content"] for message in left["messages"][4:]] == ["And then?", "Gone on with."]


@needs_dbos
@needs_postgres
async def test_no_process_has_a_byte_of_another_person(tmp_path: Path) -> None:
    call = {"text": MARKER, "tool_calls": [{"name": "pen__echo", "arguments": {"what": MARKER}}]}
    nothing = ["I know nothing."] * 3
    async with serve([], mcp=McpOptions()) as service:
        routes = list_routes(build_routes(service.context))
    async with database_url() as url, AsyncExitStack() as stack:
        store = await stack.enter_async_context(SQLStore(url))
        tokens = [(await store.tokens.create("a program", name, PERSONAL))[0] for name in ("anna", "bob")]
        persons: dict[str, list[httpx2.AsyncClient]] = {token: [] for token in tokens}
        for name, script in (("a", [MARKER, call, MARKER, *nothing]), ("b", nothing)):
            (tmp_path / name).mkdir()
            write_config(tmp_path / name, {"it": entry("Server"), "pen": entry("Server")}, script)
            options = ("--durable", "--store", url, "--auth", "tokens", "--allow", "it/echo")
            _, address, _ = stack.enter_context(serving(tmp_path / name, *options))
            for token, clients in persons.items():
                headers = {"Authorization": f"Bearer {token}"}
                client = httpx2.AsyncClient(
                    base_url=address, headers=headers, timeout=LONG, trust_env=False, verify=False
                )
                clients.append(await stack.enter_async_context(client))
        (anna, *_), strangers = persons.values()
        turns: dict[str, str] = {}
        for question in ("It is over.", "It waits."):
            id_ = (await anna.post("/conversations", json={"title": MARKER})).json()["id"]
            async with anna.stream("POST", f"/conversations/{id_}/chat", json={"text": question}) as answer:
                turns[id_] = answer.headers["x-turn-id"]
                await until(read_events(answer), "done" if question == "It is over." else "approval")
        response = (await anna.post("/v1/responses", json={"input": MARKER})).json()
        (asked,) = (await anna.get("/approvals")).json()["approvals"]
        ids: dict[str, Any] = {"approvals": (asked["id"],), "response": response["id"]}
        estate = Estate(turns, **ids, tool="it__echo")
        answers = [found for client in strangers for found in await ask_for_foreign(client, routes, estate)]
        assert (await anna.get("/approvals")).json() == {"approvals": [asked]}
    assert {(found.route, found.status) for found in answers if found.status != expect(found)} == set()
    assert {found.route for found in answers if MARKER.encode() in found.content} == set()

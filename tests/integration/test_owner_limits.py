"""What persons of a service have used, and the limits of what they may."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError

from dial_client.serve import McpOptions
from tests.inner import (
    SCOPES,
    AccessPolicy,
    ConfigError,
    Delta,
    LimitTable,
    ModelInfo,
    ModelProfile,
    ModelRequest,
    Operations,
    OwnerLimiter,
    OwnerLimits,
    PersonalTokens,
    Provider,
    ScriptedProvider,
    SQLStore,
    TextChunk,
    read_limits,
)
from tests.support.clients import calculator
from tests.support.gateways import MODES
from tests.support.http_service import MODEL, Gate, HttpService, join_text, read_events, serve
from tests.support.mcp_clients import mcp_client
from tests.support.servers.library import library
from tests.support.temporary_stores import needs_postgres, place

pytestmark = pytest.mark.anyio

ANSWER = {"text": "Done.", "usage": {"input_tokens": 60, "output_tokens": 40}}
ASKED = {"messages": [{"role": "user", "content": "Hello?"}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Company:
    service: HttpService
    store: SQLStore

    async def login(self, owner: str, *scopes: str) -> httpx2.AsyncClient:
        text, _ = await self.store.tokens.create("a program", owner, scopes or {*SCOPES} - {"admin"})
        headers = {"Authorization": f"Bearer {text}"}
        return httpx2.AsyncClient(base_url=self.service.url, headers=headers, trust_env=False, timeout=60.0)


def list_requests(company: Company) -> list[ModelRequest]:
    """Return what the model was asked."""
    assert isinstance(company.service.provider, ScriptedProvider)
    return list(company.service.provider.requests)


@asynccontextmanager
async def open_company(
    where: Path | str, replies: Sequence[Any] | Provider, limits: Mapping[str, OwnerLimits], **options: Any
) -> AsyncIterator[Company]:
    store = SQLStore(where)
    operations = Operations(limits=OwnerLimiter(LimitTable(limits)))
    policy = AccessPolicy(authenticator=PersonalTokens(store.tokens))
    async with serve(
        replies,
        store=store,
        policy=policy,
        operations=operations,
        middleware=operations.middleware,
        single_user=False,
        **options,
    ) as service:
        yield Company(service, store)


async def test_a_person_whose_tokens_of_the_day_are_used_up_is_told_when_to_come_again(tmp_path: Path) -> None:
    limits = {"*": OwnerLimits(tokens_per_day=150)}
    async with (
        open_company(tmp_path / "a.db", [ANSWER] * 4, limits) as company,
        await company.login("anna") as anna,
        await company.login("bob") as bob,
    ):
        where = f"/conversations/{(await anna.post('/conversations', json={})).json()['id']}/chat"
        first = await anna.post(where, json={"text": "Hello?", "stream": False})
        second = await anna.post("/v1/chat/completions", json=ASKED)
        refused = [
            await anna.post(where, json={"text": "Hello?"}),
            await anna.post("/v1/chat/completions", json=ASKED),
            await anna.post("/v1/messages", json=ASKED | {"max_tokens": 9}),
        ]
        listed = await anna.get("/conversations")
        of_bob = await bob.post("/v1/chat/completions", json=ASKED)
        used = (await anna.get("/usage")).json()
    assert (first.status_code, second.status_code, listed.status_code, of_bob.status_code) == (200, 200, 200, 200)
    assert [answer.status_code for answer in refused] == [429] * 3
    assert refused[1].json()["error"]["code"] == "budget_limit_exceeded"
    assert "150 tokens of this day" in refused[1].json()["error"]["message"]
    assert all(0 < int(answer.headers["retry-after"]) <= 86_400 for answer in refused)
    assert used["owner"] == "anna"
    assert used["today"] == used["month"] == {"turns": 2, "input_tokens": 120, "output_tokens": 80, "cost_usd": 0.0}
    assert used["days"] == [{"day": f"{datetime.now(UTC):%Y-%m-%d}", **used["today"]}]
    assert used["limits"] == {"tokensPerDay": 150}


class Endless:
    """A model that writes on until it is stopped, and so never says what it has used."""

    info = ModelInfo("endless")

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:  # noqa: ARG002 - a `Provider`
        yield TextChunk("word " * 600)
        await anyio.sleep_forever()

    async def aclose(self) -> None:
        pass


async def test_a_person_who_stops_each_answer_before_its_end_has_used_an_estimate(tmp_path: Path) -> None:
    limits = {"*": OwnerLimits(tokens_per_day=1_500)}
    async with open_company(tmp_path / "a.db", Endless(), limits) as company, await company.login("anna") as anna:
        where = f"/conversations/{(await anna.post('/conversations', json={})).json()['id']}"
        used = []
        for _ in range(2):
            async with anna.stream("POST", f"{where}/chat", json={"text": "Hello?"}) as answer:
                async for event in read_events(answer):
                    if "word" in str(event.data):
                        await anna.post(f"{where}/stop")
            used.append((await anna.get("/usage")).json()["today"])
        refused = await anna.post(f"{where}/chat", json={"text": "Hello?"})
    assert [amount["turns"] for amount in used] == [1, 2]
    assert [amount["output_tokens"] for amount in used] == [1_000, 2_000]
    assert 0 < used[0]["input_tokens"] < used[1]["input_tokens"]
    assert refused.status_code == 429


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=needs_postgres)])
async def test_what_a_process_has_counted_limits_a_person_at_all_processes(tmp_path: Path, kind: str) -> None:
    limits = {"owner:anna": OwnerLimits(tokens_per_month=200)}
    async with (
        place(kind, tmp_path) as where,
        open_company(where, [ANSWER] * 3, limits) as first,
        open_company(where, [ANSWER] * 3, limits) as second,
    ):
        async with await first.login("anna") as here, await second.login("anna") as there:
            answers = [await person.post("/v1/chat/completions", json=ASKED) for person in (here, there)]
            with anyio.fail_after(30):  # the other process stores it when the answer has ended
                while (await here.get("/usage")).json()["month"]["turns"] < 2:  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.01)
            answers.append(await here.post("/v1/chat/completions", json=ASKED))
        async with await first.login("boss", "admin", "read") as boss, await first.login("bob") as bob:
            owners = await boss.get("/usage?owners")
            refused = await bob.get("/usage?owners")
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert owners.json()["owners"] == [
        {"owner": "anna", "turns": 2, "input_tokens": 120, "output_tokens": 80, "cost_usd": 0.0}
    ]
    assert refused.status_code == 403


async def test_a_person_has_so_many_turns_and_requests_and_others_are_not_kept_out(tmp_path: Path) -> None:
    gate, clock = Gate(), MCPServer("clock")

    @clock.tool()
    async def now() -> str:
        """Tells the time."""
        await gate.passed()
        return "noon"

    call = {"tool_calls": [{"name": "now", "arguments": {}}]}
    limits = {"*": OwnerLimits(turns=1), "owner:carl": OwnerLimits(requests_per_minute=2)}
    options: dict[str, Any] = {"servers": {"clock": clock}, "allow": ["*"]}
    replies = [call, "Hello.", "Noon.", "Waited.", "Again."]
    async with open_company(tmp_path / "a.db", replies, limits, **options) as company:
        async with await company.login("anna") as anna, await company.login("bob") as bob:
            where, waits = [
                f"/conversations/{(await anna.post('/conversations', json={})).json()['id']}/chat" for _ in range(2)
            ]
            async with anna.stream("POST", where, json={"text": "What time is it?"}) as running:
                await gate.begun.wait()
                async with anna.stream("POST", waits, json={"text": "And then?"}) as waiting:
                    refused = await anna.post("/v1/chat/completions", json=ASKED)
                    of_bob = await bob.post("/v1/chat/completions", json=ASKED)
                    gate.open.set()
                    await running.aread()
                    assert join_text([event async for event in read_events(waiting)]) == "Waited."
            again = await anna.post("/v1/chat/completions", json=ASKED)
        async with await company.login("carl") as carl:
            asked = [await carl.get("/conversations") for _ in range(3)]
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "turns_limit_exceeded")
    assert (of_bob.status_code, again.status_code) == (200, 200)
    assert [answer.status_code for answer in asked] == [200, 200, 429]
    assert 0 < int(asked[2].headers["retry-after"]) <= 30


async def test_a_person_uses_no_tool_that_is_not_allowed_in_a_turn_or_by_name(tmp_path: Path) -> None:
    ran: list[str] = []
    pen = MCPServer("pen")

    @pen.tool()
    def write(what: str) -> str:
        """Writes."""
        ran.append(what)
        return what

    call = {"tool_calls": [{"name": "write", "arguments": {"what": "a line"}}]}
    limits = {"*": OwnerLimits(tools=("clock/*",)), "owner:bob": OwnerLimits(tools=("pen/w*",))}
    options: dict[str, Any] = {"servers": {"pen": pen}, "allow": ["*"]}
    async with (
        open_company(tmp_path / "a.db", [call, "No.", call, "Yes."], limits, **options) as company,
        await company.login("anna") as anna,
        await company.login("bob") as bob,
    ):
        direct = await anna.post("/tools/call", json={"name": "write", "arguments": {"what": "by hand"}})
        where = f"/conversations/{(await anna.post('/conversations', json={})).json()['id']}/chat"
        turn = (await anna.post(where, json={"text": "Write.", "stream": False})).json()
        ran_for_anna = [*ran]
        await bob.post("/v1/chat/completions", json=ASKED)
        offered = [[tool.name for tool in request.tools] for request in list_requests(company)]
    assert offered == [[], [], ["write"], ["write"]]
    assert "may not use this tool" in direct.text
    assert [(each["is_error"], each["failure"]) for each in turn["tool_calls"]] == [(True, "denied")]
    assert ran_for_anna == []
    assert ran == ["a line"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_that_a_person_may_not_use_is_not_there_for_this_person(tmp_path: Path, mode: str) -> None:
    read = {"server": "books", "uri": "book://1"}
    limits = {"owner:anna": OwnerLimits(servers=("sums",))}
    options: dict[str, Any] = {"servers": {"sums": calculator(), "books": library()}, "mcp": McpOptions()}
    seen: dict[str, list[Any]] = {}
    async with open_company(tmp_path / "a.db", ["Hello."] * 3, limits, **options) as company:
        for name in ("bob", "anna", "bob"):
            text, _ = await company.store.tokens.create("a program", name, {*SCOPES} - {"admin"})
            async with await company.login(name) as person, mcp_client(company.service, mode, text) as client:
                lists = [(await person.get(f"/{kind}")).json()[kind] for kind in ("servers", "tools", "prompts")]
                seen[name] = [{found.get("server", found["name"]) for found in items} for items in (*lists,)]
                seen[name].append((await person.post("/resources/read", json=read)).status_code)
                seen[name].append(bool((await client.list_resources()).resources))
                seen[name].append(any("books" in tool.name for tool in (await client.list_tools()).tools))
                where = f"/conversations/{(await person.post('/conversations', json={})).json()['id']}"
                asked = {"text": "See @books:book://1", "stream": False}
                await person.post(f"{where}/chat", json=asked)
        requests = list_requests(company)
    both = {"sums", "books"}
    assert seen["anna"] == [{"sums"}, {"sums"}, set(), 404, False, False]
    assert seen["bob"] == [both, both, {"books"}, 200, True, True]
    assert ["The first book." in str(request.messages) for request in requests] == [True, False, True]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("listing", ["all", "search"])
async def test_lists_have_only_the_tools_that_the_person_may_call(tmp_path: Path, mode: str, listing: str) -> None:
    pen = MCPServer("pen")

    @pen.tool()
    def write(what: str) -> str:
        """Writes a line."""
        return what

    @pen.tool()
    def erase(what: str) -> str:
        """Erases a line."""
        return what

    limits = {"owner:anna": OwnerLimits(tools=("pen/w*",))}
    options: dict[str, Any] = {"servers": {"pen": pen}, "allow": ["*"], "mcp": McpOptions(tools=listing)}
    seen: dict[str, list[Any]] = {}
    async with open_company(tmp_path / "a.db", [], limits, **options) as company:
        for name in ("bob", "anna", "bob"):
            text, _ = await company.store.tokens.create("a program", name, {*SCOPES} - {"admin"})
            async with await company.login(name) as person, mcp_client(company.service, mode, text) as client:
                listed = [tool["name"] for tool in (await person.get("/tools")).json()["tools"]]
                described = [(await person.get(f"/tools/{tool}")).status_code for tool in ("write", "erase")]
                if listing == "all":
                    found = " ".join(tool.name for tool in (await client.list_tools()).tools)
                else:
                    found = str(await client.call_tool("search_tools", {"query": "a line"}))
                seen[name] = [listed, described, "pen__write" in found, "pen__erase" in found]
                if name == "anna" and listing == "all":
                    with pytest.raises(MCPError, match="There is no tool 'pen__erase'"):
                        await client.call_tool("pen__erase", {"what": "a line"})
    assert seen["anna"] == [["write"], [200, 404], True, False]
    assert seen["bob"] == [["erase", "write"], [200, 200], True, True]


async def test_a_person_sees_and_asks_only_the_models_that_are_allowed(tmp_path: Path) -> None:
    profiles = {"second": ModelProfile("second", base_url="http://127.0.0.1:9/v1", model="m")}
    limits = {"*": OwnerLimits(models=(MODEL,)), "owner:bob": OwnerLimits(models=("second",))}
    options: dict[str, Any] = {"models": profiles}
    async with (
        open_company(tmp_path / "a.db", [ANSWER] * 3, limits, **options) as company,
        await company.login("anna") as anna,
        await company.login("bob") as bob,
    ):
        created = (await anna.post("/conversations", json={})).json()
        where = f"/conversations/{created['id']}"
        of_bob = f"/conversations/{(await bob.post('/conversations', json={})).json()['id']}"
        answers = [
            await anna.post("/v1/chat/completions", json=ASKED),
            await anna.post(f"{where}/chat", json={"text": "Hello?", "stream": False}),
            await bob.patch(of_bob, json={"settings": {"model": "second"}}),
            await anna.post("/v1/chat/completions", json=ASKED | {"model": "second"}),
            await anna.patch(where, json={"pinned": True, "settings": {"model": "second"}}),
            await bob.patch(of_bob, json={"settings": {"model": None}}),
            await bob.post("/v1/chat/completions", json=ASKED),
        ]
        kept = [(await anna.get(where)).json(), (await bob.get(of_bob)).json()]
        listed = [[model["id"] for model in (await each.get("/v1/models")).json()["data"]] for each in (anna, bob)]
        models = [(await each.get("/models")).json() for each in (anna, bob)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 403, 403, 403, 403]
    assert {answer.json()["error"]["code"] for answer in answers[3:]} == {"model_not_allowed"}
    assert [(each["settings"], each["pinned"]) for each in kept] == [({}, False), ({"model": "second"}, False)]
    assert listed == [[MODEL, f"{MODEL}:plain"], ["second", "second:plain"]]
    assert [[model["name"] for model in found["models"]] for found in models] == [[], ["second"]]
    assert [found["default"]["is_allowed"] for found in models] == [True, False]


async def test_whoever_loses_a_model_can_change_other_settings_of_a_conversation_without_naming_a_model(
    tmp_path: Path,
) -> None:
    limits = {"*": OwnerLimits(models=("second",))}
    async with open_company(tmp_path / "a.db", [], limits) as company, await company.login("anna") as anna:
        where = f"/conversations/{(await anna.post('/conversations', json={})).json()['id']}"
        changed = await anna.patch(where, json={"settings": {"system": "Be brief."}})
    assert (changed.status_code, changed.json()["settings"]) == (200, {"system": "Be brief."})


def test_a_limit_is_that_of_the_person_else_the_widest_of_the_groups_else_that_of_everybody() -> None:
    table = LimitTable(
        {
            "*": OwnerLimits(turns=1, tokens_per_day=10, usd_per_day=1.0, tools=("time/*",)),
            "group:staff": OwnerLimits(turns=4, tools=("time/*", "docs/*")),
            "group:lab": OwnerLimits(turns=2, tokens_per_day=20, tools=("lab/*",)),
            "owner:anna": OwnerLimits(turns=3),
        }
    )
    both = table.find("anna", ["staff", "lab", "unknown"])
    assert both == OwnerLimits(turns=3, tokens_per_day=20, usd_per_day=1.0, tools=("time/*", "docs/*", "lab/*"))
    assert table.find("bob", ["staff"]).turns == 4
    assert table.find("carl", []) == table.by_name["*"]


def test_a_file_of_limits_is_read_and_a_wrong_file_is_refused_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "limits.json"
    file.write_text('{"*": {"turns": 4, "usdPerMonth": 20}, "group:staff": {"tools": ["*"], "models": ["main"]}}')
    table = read_limits(file)
    assert table.by_name["*"] == OwnerLimits(turns=4, usd_per_month=20.0)
    assert table.by_name["group:staff"] == OwnerLimits(tools=("*",), models=("main",))
    for wrong, place_ in (
        ({"*": {"turn": 4}}, "*.turn"),
        ({"*": {"turns": "4"}}, "*.turns"),
        ({"anna": {}}, "anna"),
        ([], "object"),
    ):
        file.write_text(json.dumps(wrong))
        with pytest.raises(ConfigError) as error:
            read_limits(file)
        assert place_ in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_limits(tmp_path / "none.json")

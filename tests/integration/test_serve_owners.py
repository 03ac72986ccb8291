"""A service for several persons: each has a token, and conversations, approvals and questions that nobody else sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from tests.inner import (
    NEEDED_SCOPES,
    SCOPES,
    SQLITE_IS_TOO_OLD,
    AccessPolicy,
    AccessTokens,
    FirstOf,
    PersonalTokens,
    Provider,
    ScriptedProvider,
    SQLStore,
    TokenAuthenticator,
    build_routes,
    find_needed_scopes,
)
from tests.support.http_service import MODEL, TOKEN, HttpService, ServerSentEvent, join_text, read_events, serve
from tests.support.servers.launch import raw

pytestmark = pytest.mark.anyio

SECRET = "the launch is on Friday"
WRITE = {"tool_calls": [{"name": "write", "arguments": {"what": SECRET}}]}
ASK = {"tool_calls": [{"name": "ask", "arguments": {}}]}

# Need no token: the key of a link opens the conversation (test_shared_conversations.py).
OPENED_BY_A_LINK = ("/shared", "/shared/conversation")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def build_pen() -> MCPServer:
    """Return a server that writes, and one of whose tools asks."""
    server = MCPServer("pen")

    class Age(BaseModel):
        age: int

    @server.tool()
    def write(what: str) -> str:
        """Writes."""
        return f"written: {what}"

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Asks."""
        answer = await ctx.elicit("How old are you?", Age)
        return answer.action

    return server


@dataclass
class Company:
    """A service with two persons and an operator."""

    service: HttpService
    tokens: AccessTokens
    anna: httpx2.AsyncClient
    bob: httpx2.AsyncClient

    @property
    def operator(self) -> httpx2.AsyncClient:
        return self.service.http

    async def build_client(self, *scopes: str, owner: str = "anna", **limits: Any) -> httpx2.AsyncClient:
        text, _ = await self.tokens.create("a program", owner, scopes or SCOPES, **limits)
        return self.connect(text)

    def connect(self, token: str) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(base_url=self.service.url, headers=headers, trust_env=False, verify=False)


@asynccontextmanager
async def open_company(folder: Path, replies: list[Any] | Provider, **options: Any) -> AsyncIterator[Company]:
    store = SQLStore(folder / "company.db")
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(TokenAuthenticator(TOKEN), PersonalTokens(store.tokens)))
    async with serve(replies, policy=policy, store=store, single_user=False, **options) as service:
        company = Company(service, store.tokens, service.http, service.http)
        async with await company.build_client() as anna, await company.build_client(owner="bob") as bob:
            company.anna, company.bob = anna, bob
            yield company


async def create_conversation(person: httpx2.AsyncClient) -> str:
    created = await person.post("/conversations", json={"title": SECRET})
    assert created.status_code == 201
    return f"/conversations/{created.json()['id']}"


async def find(events: AsyncIterator[ServerSentEvent], name: str) -> Any:
    async for event in events:
        if event.name == name:
            return event.data
    raise AssertionError(f"no {name}")


@pytest.mark.parametrize(
    "durable",
    [False, pytest.param(True, marks=pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="DBOS needs a newer SQLite"))],
)
async def test_another_person_finds_no_conversation_and_no_turn_at_any_route(tmp_path: Path, *, durable: bool) -> None:
    async with open_company(tmp_path, [SECRET], durable=durable) as company:
        where = await create_conversation(company.anna)
        async with company.anna.stream("POST", f"{where}/chat", json={"text": SECRET}) as answer:
            turn, events = answer.headers["x-turn-id"], [event async for event in read_events(answer)]
        answers: dict[tuple[str, str], httpx2.Response] = {}
        for route in build_routes(company.service.context):
            if "{id}" not in route.path or not route.path.startswith("/conversations"):
                continue
            path = route.path.replace("/conversations/{id}", where).replace("{turn}", turn).replace("{position}", "0")
            for method in (route.methods or set()) - {"HEAD"}:
                body = {"text": "What is it?", "title": "mine", "message": 0}
                sent = None if method in ("GET", "DELETE") else body
                answers[method, path] = await company.bob.request(method, path, json=sent)
        forged = await company.bob.post("/apps/call", json={"server": "x", "tool": "x", "conversation": where[15:]})
        listed = await company.bob.get("/conversations", params={"search": "launch"})
        kept = await company.anna.get(where)
        seen_by_operator = await company.operator.get(where)
    assert join_text(events) == SECRET
    assert len(answers) >= 16
    assert {answer.status_code for answer in (*answers.values(), forged)} == {404}
    assert not any(SECRET in answer.text for answer in (*answers.values(), forged, listed))
    assert listed.json() == {"conversations": [], "cursor": None, "can_share": True}
    assert kept.json() == seen_by_operator.json()
    assert [message["content"] for message in kept.json()["messages"]] == [SECRET, SECRET]


@pytest.mark.parametrize(("reply", "kind"), [(WRITE, "approval"), (ASK, "question")])
async def test_only_the_person_of_the_turn_is_asked_and_may_answer(tmp_path: Path, reply: Any, kind: str) -> None:
    answer = {"decision": "once"} if kind == "approval" else {"action": "accept", "content": {"age": 7}}
    async with open_company(tmp_path, [reply, "Done."], servers={"pen": build_pen()}, allow=["pen/ask"]) as company:
        where = await create_conversation(company.anna)
        async with company.anna.stream("POST", f"{where}/chat", json={"text": "Go!"}) as stream:
            events = read_events(stream)
            asked = await find(events, kind)
            foreign = await company.bob.get(f"/{kind}s")
            foreign_summary = await company.bob.get("/waiting")
            refused = await company.bob.post(f"/{kind}s/{asked['id']}", json=answer)
            own = await company.anna.get(f"/{kind}s")
            accepted = await company.anna.post(f"/{kind}s/{asked['id']}", json=answer)
            done = await find(events, "done")
    assert (foreign.json(), foreign_summary.json()) == ({f"{kind}s": []}, {"waiting": []})
    assert (refused.status_code, accepted.status_code) == (404, 204)
    assert [item["id"] for item in own.json()[f"{kind}s"]] == [asked["id"]]
    assert done["stop_reason"] == "answered"


@pytest.mark.parametrize("decision", ["session", "always"])
async def test_a_grant_of_one_person_holds_for_nobody_else(tmp_path: Path, decision: str) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    replies = [call, "Done.", call, "Done.", call, "Done."]
    async with open_company(tmp_path, replies, servers={"it": raw()}, grants=tmp_path / "grants") as company:
        where = await create_conversation(company.anna)
        async with company.anna.stream("POST", f"{where}/chat", json={"text": "Go!"}) as stream:
            events = read_events(stream)
            asked = await find(events, "approval")
            await company.anna.post(f"/approvals/{asked['id']}", json={"decision": decision})
            await find(events, "done")
        again = await company.anna.post(f"{where}/chat", json={"text": "Again!", "stream": False})
        async with company.bob.stream(
            "POST", f"{await create_conversation(company.bob)}/chat", json={"text": "Go!"}
        ) as stream:
            events = read_events(stream)
            asked = await find(events, "approval")
            await company.bob.post(f"/approvals/{asked['id']}", json={"decision": "deny"})
            await find(events, "done")
        of_bob = (await company.bob.get("/grants")).json()["grants"]
        (grant,) = (await company.anna.get("/grants")).json()["grants"]
        refused = await company.bob.delete(f"/grants/{grant['id']}")
        revoked = await company.anna.delete(f"/grants/{grant['id']}")
        left = (await company.anna.get("/grants")).json()["grants"]
    assert not again.json()["tool_calls"][0]["is_error"]
    assert (of_bob, left) == ([], [])
    assert (grant["server"], grant["tool"], grant["scope"]) == ("it", "echo", decision)
    assert (refused.status_code, revoked.status_code) == (404, 204)


async def test_a_turn_that_returned_calls_is_restored_for_its_own_person_only(tmp_path: Path) -> None:
    both = {"tool_calls": [{"name": "echo", "arguments": {}}, {"name": "mine", "arguments": {}}], "text": SECRET}
    model = ScriptedProvider([both, "Done.", "Done."])
    tool = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}
    asked: list[Any] = [{"role": "user", "content": "Go!"}]
    async with open_company(tmp_path, model, servers={"it": raw()}, allow=["*"]) as company:
        request = {"model": MODEL, "messages": asked, "tools": [tool]}
        reply = (await company.anna.post("/v1/chat/completions", json=request)).json()["choices"][0]["message"]
        call = reply["tool_calls"][0]
        bare = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "seven"}
        for person in (company.bob, company.anna):
            answer = await person.post("/v1/chat/completions", json={**request, "messages": [*asked, bare, result]})
            assert answer.status_code == 200
    of_bob, of_anna = (str(sent.messages) for sent in model.requests[1:])
    assert SECRET not in of_bob
    assert SECRET in of_anna


async def test_a_token_without_the_scope_of_a_route_is_refused_there_and_named_what_it_needs(tmp_path: Path) -> None:
    async with open_company(tmp_path, []) as company:
        routes = [
            (method, route.path)
            for route in build_routes(company.service.context)
            for method in (route.methods or set()) - {"HEAD"}
            if route.path
            not in ("/", "/healthz", "/readyz", "/apps/frame", "/oauth/callback", "/me", *OPENED_BY_A_LINK)
            and not route.path.startswith("/assets")
        ]
        answers: dict[tuple[str, str, str], httpx2.Response] = {}
        for scope in SCOPES:
            async with await company.build_client(scope) as client:
                answers |= {
                    (scope, *route): await client.request(*route) for route in routes if scope not in needed(*route)
                }
                me = (await client.get("/me")).json()
                assert me == {"name": "anna", "shown_name": "anna", "scopes": [scope]}
    assert len(routes) >= 45
    assert {answer.status_code for answer in answers.values()} == {403}
    for (_, *route), answer in answers.items():
        assert needed(*route)[0] in answer.json()["error"]["message"]
        assert f'scope="{needed(*route)[0]}"' in answer.headers["www-authenticate"]


async def test_a_mistyped_path_is_not_found_whatever_the_scopes_of_the_token(tmp_path: Path) -> None:
    async with open_company(tmp_path, []) as company:
        for scope in SCOPES:
            async with await company.build_client(scope) as client:
                wrong = await client.get("/conversation")
                unversioned = await client.post("/chat/completions", json={})
                assert (wrong.status_code, unversioned.status_code) == (404, 404)
                assert wrong.json()["error"]["message"] == "there is nothing at this path"
                assert (
                    "it is /v1/chat/completions, so end the base URL in /v1" in unversioned.json()["error"]["message"]
                )
        assert (
            await company.service.http.get("/conversation", headers={"authorization": "Bearer x"})
        ).status_code == 401


def needed(method: str, path: str) -> tuple[str, ...]:
    """Return the scopes of a route, each of which is listed: none is left to the rule for unknown paths."""
    assert path.split("/")[1] in NEEDED_SCOPES, f"{path} has no scope"
    return find_needed_scopes(method, path)


async def test_a_forged_revoked_or_expired_token_is_refused(tmp_path: Path) -> None:
    async with open_company(tmp_path, []) as company:
        text, token = await company.tokens.create("laptop", "anna", ["read"])
        expired, _ = await company.tokens.create("old", "anna", ["read"], lifetime=timedelta(seconds=-1))
        was_there = await company.tokens.revoke(token.id)
        other_end = f"{text[:-1]}{'b' if text.endswith('a') else 'a'}"
        forged = [text, expired, other_end, "dial_", f"{text} or 1=1"]
        answers = [
            await company.service.http.get("/conversations", headers={"authorization": f"Bearer {bad}"})
            for bad in forged
        ]
        without = await company.service.http.get("/conversations", headers={"authorization": ""})
        stored = await company.tokens.list_all()
        database = (tmp_path / "company.db-wal").read_bytes()
    assert was_there
    assert [answer.status_code for answer in answers] == [401] * len(forged)
    refused = "this token is not accepted: it is wrong, has expired or was revoked"
    assert {answer.json()["error"]["message"] for answer in answers} == {refused}
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer error="invalid_token"'}
    assert without.headers["www-authenticate"] == "Bearer"
    assert (without.status_code, without.json()["error"]["message"].partition(":")[0]) == (
        401,
        "send your token for this service",
    )
    assert [found.name for found in stored if found.expires_at is not None] == ["old"]
    assert all(found.created_at <= datetime.now(UTC) for found in stored)
    assert expired.encode() not in database


async def test_a_token_that_was_used_up_is_told_when_to_try_again(tmp_path: Path) -> None:
    async with open_company(tmp_path, []) as company:
        async with await company.build_client("read", requests_per_minute=3) as client:
            answers = [await client.get("/conversations") for _ in range(4)]
        unlimited = await company.anna.get("/conversations")
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
    assert unlimited.status_code == 200


async def test_a_person_who_stops_a_foreign_turn_does_not_stop_it(tmp_path: Path) -> None:
    async with open_company(tmp_path, [WRITE, "Done."], servers={"pen": build_pen()}) as company:
        where = await create_conversation(company.anna)
        async with company.anna.stream("POST", f"{where}/chat", json={"text": "Go!"}) as stream:
            events = read_events(stream)
            asked = await find(events, "approval")
            stopped = await company.bob.post(f"{where}/stop")
            with anyio.fail_after(60):
                await company.anna.post(f"/approvals/{asked['id']}", json={"decision": "deny"})
                done = await find(events, "done")
    assert stopped.status_code == 404
    assert done["stop_reason"] == "answered"

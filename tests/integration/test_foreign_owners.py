"""A person who knows all ids of another person gets not a byte of the other's, at any route of any process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskGroup
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from dial_client.serve import McpOptions
from tests.inner import (
    SCOPES,
    AccessPolicy,
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    FirstOf,
    IdentityProvider,
    ModelInfo,
    ModelRequest,
    OidcLogin,
    PersonalTokens,
    SQLStore,
    TextChunk,
    TokenAuthenticator,
    ToolCallRequest,
    build_routes,
    extract_text,
    find_needed_scopes,
)
from tests.support.foreign_requests import MARKER, Estate, ask_for_foreign, expect, list_routes
from tests.support.http_service import MODEL, TOKEN, HttpService, serve
from tests.support.mcp_clients import HEADERS, initialize
from tests.support.openid_provider import openid_provider
from tests.support.program import LONG
from tests.support.temporary_stores import database_url, needs_postgres

pytestmark = [pytest.mark.anyio, needs_postgres, pytest.mark.filterwarnings("ignore:The logging capability")]

PERSONAL = {*SCOPES} - {"admin"}
# Need no token: the page, what is the same for all, and what a secret of its own opens.
OPEN = (
    "GET /",
    "GET /healthz",
    "GET /readyz",
    "GET /assets/{name:path}",
    "GET /apps/frame",
    "GET /oauth/callback",
    "GET /shared",
    "GET /shared/conversation",
    "GET /login",
    "GET /login/callback",
    "POST /login/refresh",
    "POST /login/logout",
)
TOOL = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Model:
    """A model that calls the tool that the question names, and knows nothing but its requests."""

    info = ModelInfo("model")

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        last = request.messages[-1]
        tool = extract_text(last.content).partition(":")[0] if last.role == "user" else ""
        if tool in ("write", "ask", "mine"):
            arguments = {"what": extract_text(last.content)} if tool == "write" else {}
            yield TextChunk(f"I call it for {extract_text(last.content)}")
            yield CallChunk(ToolCallRequest("call_1", tool, arguments))
            yield Completion(FinishReason.TOOL_CALLS)
        else:
            yield TextChunk(f"I have read {extract_text(last.content)}")
            yield Completion(FinishReason.STOP)

    async def aclose(self) -> None:
        pass


def build_pen() -> MCPServer:
    server = MCPServer("pen")

    class Age(BaseModel):
        age: int

    @server.tool()
    async def write(what: str, ctx: Context) -> str:
        """Writes."""
        await ctx.info(f"writing {what}")
        return f"written: {what}"

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Asks."""
        return (await ctx.elicit(f"How old is the {MARKER}?", Age)).action

    @server.tool()
    async def echo(ctx: Context, what: str = "") -> str:
        """Echoes."""
        await ctx.info(f"echoing {what}")
        return what

    return server


class Town:
    """Two processes with one database, and two persons."""

    def __init__(self, processes: list[HttpService], model: Model, stack: AsyncExitStack) -> None:
        self.processes, self.model, self._stack = processes, model, stack
        self.routes = list_routes(build_routes(processes[0].context))

    async def create_token(self, owner: str, *scopes: str, **limits: Any) -> str:
        store = self.processes[0].store
        assert isinstance(store, SQLStore)
        return (await store.tokens.create("a program", owner, scopes or PERSONAL, **limits))[0]

    async def connect(self, token: str) -> list[httpx2.AsyncClient]:
        """Return a client for each process."""
        headers = {"Authorization": f"Bearer {token}"}
        clients = [
            httpx2.AsyncClient(base_url=process.url, headers=headers, timeout=60, trust_env=False, verify=False)
            for process in self.processes
        ]
        return [await self._stack.enter_async_context(client) for client in clients]


@asynccontextmanager
async def open_town(folder: Path, **options: Any) -> AsyncIterator[Town]:
    model, pen = Model(), build_pen()
    async with database_url() as url, AsyncExitStack() as stack:
        issuer = stack.enter_context(openid_provider())
        processes = []
        for _ in range(2):
            store = SQLStore(url)
            policy = AccessPolicy(TOKEN, authenticator=FirstOf(TokenAuthenticator(TOKEN), PersonalTokens(store.tokens)))
            service = serve(
                model,
                {"pen": pen},
                policy=policy,
                store=store,
                shared=True,
                single_user=False,
                grants=folder,
                allow=["pen/ask", "pen/echo"],
                mcp=McpOptions(),
                login=OidcLogin(IdentityProvider(issuer.url), "dial", "http://127.0.0.1"),
                **options,
            )
            processes.append(await stack.enter_async_context(service))
        yield Town(processes, model, stack)


class Stream:
    """A response that is read from its beginning to its end."""

    def __init__(self) -> None:
        self.content = b""
        self.turn = ""
        self.opened, self.ended = anyio.Event(), anyio.Event()

    async def read(self, client: httpx2.AsyncClient, method: str, path: str, more: Mapping[str, Any]) -> None:
        async with client.stream(method, path, **more) as response:
            assert response.status_code == 200, await response.aread()
            self.turn = response.headers.get("x-turn-id", "")
            self.opened.set()
            async for chunk in response.aiter_bytes():
                self.content += chunk
        self.ended.set()


class Person:
    """A person with a client for each process, whose streams are read while they are open."""

    def __init__(self, clients: list[httpx2.AsyncClient], group: TaskGroup) -> None:
        self.clients, self.here, self._group = clients, clients[0], group
        self.streams: list[Stream] = []

    async def open(self, method: str, path: str, client: int = 0, **more: Any) -> Stream:
        stream = Stream()
        self.streams.append(stream)
        self._group.start_soon(stream.read, self.clients[client], method, path, more)
        await stream.opened.wait()
        return stream

    async def create(self, title: str) -> str:
        created = await self.here.post("/conversations", json={"title": title})
        assert created.status_code == 201
        id_: str = created.json()["id"]
        return id_

    async def chat(self, title: str, text: str) -> tuple[str, Stream]:
        id_ = await self.create(title)
        return id_, await self.open("POST", f"/conversations/{id_}/chat", json={"text": text})

    async def wait_for(self, kind: str, count: int) -> list[dict[str, Any]]:
        with anyio.fail_after(LONG):
            while len(found := (await self.here.get(f"/{kind}")).json()[kind]) < count:  # noqa: ASYNC110 - it is asked
                await anyio.sleep(0.02)
        return list(found)

    async def begin_mcp_session(self, client: int = 0) -> str:
        """Begin a session of ``/mcp``, and read what the servers tell it."""
        headers = {name: value for name, value in HEADERS.items() if name != "authorization"}
        http = self.clients[client]
        begun = await http.post("/mcp", json=initialize(), headers=headers)
        session: str = begun.headers["mcp-session-id"]
        headers["mcp-session-id"] = session
        level = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "debug"}}
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        await http.post("/mcp", json=level, headers=headers)
        await self.open("GET", "/mcp", client, headers=headers)
        return session

    async def call_over_mcp(self, session: str, what: str) -> str:
        headers = {name: value for name, value in HEADERS.items() if name != "authorization"}
        params = {"name": "pen__echo", "arguments": {"what": what}}
        message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
        answer = await self.here.post("/mcp", json=message, headers={**headers, "mcp-session-id": session})
        return answer.text


async def settle(anna: Person) -> Estate:
    """Let a person have one of everything: ended and waiting turns, answers, grants, sessions and a link."""
    ended, stream = await anna.chat(MARKER, MARKER)
    await stream.ended.wait()
    turns = {ended: stream.turn}
    marks = {"pinned": True, "settings": {"system": MARKER}}
    assert (await anna.here.patch(f"/conversations/{ended}", json=marks)).status_code == 200
    link = (await anna.here.post(f"/conversations/{ended}/share", json={})).json()["link"]["address"]
    granted, stream = await anna.chat(MARKER, f"write: {MARKER}")
    (asked,) = await anna.wait_for("approvals", 1)
    await anna.here.post(f"/approvals/{asked['id']}", json={"decision": "conversation"})
    await stream.ended.wait()
    turns[granted] = stream.turn
    for question in (f"write: {MARKER}", f"ask: {MARKER}"):
        waiting, stream = await anna.chat(MARKER, question)
        turns[waiting] = stream.turn
    await anna.open("POST", "/tools/call", json={"name": "write", "arguments": {"what": MARKER}})
    response = (await anna.here.post("/v1/responses", json={"model": MODEL, "input": MARKER})).json()
    asked_for = {"model": MODEL, "messages": [{"role": "user", "content": f"mine: {MARKER}"}], "tools": [TOOL]}
    answer = (await anna.here.post("/v1/chat/completions", json=asked_for)).json()["choices"][0]["message"]
    session = await anna.begin_mcp_session()
    assert MARKER in await anna.call_over_mcp(session, MARKER)
    return Estate(
        turns,
        approvals=tuple(asked["id"] for asked in await anna.wait_for("approvals", 2)),
        questions=tuple(asked["id"] for asked in await anna.wait_for("questions", 1)),
        grants=tuple(grant["id"] for grant in (await anna.here.get("/grants")).json()["grants"]),
        response=response["id"],
        item=response["output"][-1]["id"],
        call=answer["tool_calls"][0]["id"],
        session=session,
        link=link.partition(".")[2],
    )


async def read_everything(anna: Person, estate: Estate) -> dict[str, Any]:
    paths = [f"/conversations/{id_}" for id_ in estate.turns]
    paths += ["/conversations", "/approvals", "/questions", "/grants", "/usage"]
    return {path: (await anna.here.get(path)).json() for path in paths}


async def test_no_route_of_any_process_has_a_byte_of_another_person(tmp_path: Path) -> None:
    async with open_town(tmp_path) as town, anyio.create_task_group() as group:
        anna, bob = [Person(await town.connect(await town.create_token(name)), group) for name in ("anna", "bob")]
        for process in (0, 1):
            await bob.begin_mcp_session(process)
        own, stream = await bob.chat("mine", "write: mine")
        await bob.open("GET", f"/conversations/{own}/turns/{stream.turn}/events", 1)
        (waiting,) = await bob.wait_for("approvals", 1)
        estate = await settle(anna)
        assert all(len(ids) > 0 for ids in (estate.approvals, estate.questions, estate.grants))
        before, asked = await read_everything(anna, estate), len(town.model.requests)
        answers = [found for client in bob.clients for found in await ask_for_foreign(client, town.routes, estate)]
        for client in bob.clients:
            foreign = await client.get(f"/conversations/{own}/turns/{list(estate.turns.values())[2]}/events")
            assert foreign.status_code == 404
        read = town.model.requests[asked:]
        assert await read_everything(anna, estate) == before
        # It answers the other request of this person, for the same tool, and not that of the other person.
        allowed = await anna.here.post(f"/approvals/{estate.approvals[0]}", json={"decision": "always"})
        assert allowed.status_code == 204
        answer = {"action": "accept", "content": {"age": 7}}
        assert (await anna.here.post(f"/questions/{estate.questions[0]}", json=answer)).status_code == 204
        for each in anna.streams[:-1]:  # the last one is that of the session
            await each.ended.wait()
        assert await bob.wait_for("approvals", 1) == [waiting]
        group.cancel_scope.cancel()
    assert {(found.route, found.status) for found in answers if found.status != expect(found)} == set()
    assert {found.route for found in answers} == {*town.routes}
    seen = {found.route: found.content for found in answers} | {str(at): s.content for at, s in enumerate(bob.streams)}
    assert [where for where, content in seen.items() if MARKER.encode() in content] == []
    assert [request for request in read if MARKER in str(request.messages)] == []
    assert all(MARKER.encode() in each.content for each in anna.streams[:-1])
    assert stream.content


async def test_a_token_that_is_not_valid_opens_no_route_of_any_process(tmp_path: Path) -> None:
    async with open_town(tmp_path) as town:
        text = await town.create_token("anna")
        expired = await town.create_token("anna", lifetime=timedelta(seconds=-1))
        forged = f"{text[:-1]}{'b' if text.endswith('a') else 'a'}"
        estate, closed = Estate({"none": "none"}, ("none",), ("none",), ("none",)), set(town.routes) - set(OPEN)
        answers = [
            found
            for token in ("none", expired, forged, f"{text} or 1=1")
            for client in await town.connect(token)
            for found in await ask_for_foreign(client, closed, estate)
        ]
    assert {found.route for found in answers} == closed
    assert {found.status for found in answers} == {401}


async def test_a_token_without_the_scope_of_a_route_opens_it_at_no_process(tmp_path: Path) -> None:
    estate = Estate({"none": "none"}, ("none",), ("none",), ("none",))
    async with open_town(tmp_path) as town:
        closed = set(town.routes) - {*OPEN, "GET /me"}
        refused: dict[str, set[int]] = {route: set() for route in closed}
        for scope in SCOPES:
            lacking = [route for route in closed if scope not in find_needed_scopes(*route.split(" "))]
            for client in await town.connect(await town.create_token("anna", scope)):
                for found in await ask_for_foreign(client, lacking, estate):
                    refused[found.route].add(found.status)
    assert refused == {route: {403} for route in closed}

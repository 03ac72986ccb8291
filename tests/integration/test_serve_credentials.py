"""Credentials of persons at a service: given, used for nobody else at any door, revoked, and never shown again."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import Implementation, TextResourceContents, ToolListChangedNotification

from dial_client import ConfigError
from dial_client.serve import McpOptions
from tests.inner import (
    SCOPES,
    AccessPolicy,
    AuditLog,
    FirstOf,
    OwnerCredentials,
    PersonalTokens,
    SecretBox,
    SQLStore,
    StoredCredentials,
    TokenAuthenticator,
)
from tests.support.clients import call
from tests.support.http_service import BOX, MODEL, TOKEN, HttpService, serve
from tests.support.mcp_clients import mcp_client
from tests.support.oauth_logins import find_stored_logins, redirect_user_data
from tests.support.program import LONG, python_server
from tests.support.servers.launch import HERE, is_alive, until, web_server
from tests.support.servers.oauth_server import guarded
from tests.support.servers.whose import APP, name

pytestmark = pytest.mark.anyio

SECRETS = {"anna": "anna-secret-4f9a8c21", "bob": "bob-secret-77d1e0b3"}
TURN = [call("whoami"), "Done."]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Town:
    """A service with persons."""

    service: HttpService
    persons: dict[str, httpx2.AsyncClient]
    tokens: dict[str, str]
    answers: list[httpx2.Response]
    """All answers of the service."""

    async def give(self, owner: str, value: str, status: int = 204) -> httpx2.Response:
        answer = await self.persons[owner].put("/credentials/crm/TOKEN", json={"value": value})
        assert answer.status_code == status, answer.text
        return answer


@asynccontextmanager
async def open_town(folder: Path, replies: list[Any], servers: dict[str, Any] | None = None) -> AsyncIterator[Town]:
    store = SQLStore(folder / "town.db")
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(TokenAuthenticator(TOKEN), PersonalTokens(store.tokens)))
    options: dict[str, Any] = {"single_user": False, "mcp": McpOptions(), "allow": ["*"]}
    audit = AuditLog(folder / "audit")
    servers = servers if servers is not None else {"crm": stdio()}
    async with serve(replies, servers, policy=policy, store=store, audit=audit, **options) as service:
        town = Town(service, {"": service.http}, {"": TOKEN}, [])

        async def keep(answer: httpx2.Response) -> None:
            await answer.aread()
            town.answers.append(answer)

        for owner in ("anna", "bob", "eve"):
            town.tokens[owner], _ = await store.tokens.create("laptop", owner, SCOPES)
            headers = {"Authorization": f"Bearer {town.tokens[owner]}"}
            client = httpx2.AsyncClient(
                base_url=service.url,
                headers=headers,
                trust_env=False,
                verify=False,
                timeout=60,
                event_hooks={"response": [keep]},
            )
            town.persons[owner] = client
        yield town
        for client in town.persons.values():
            await client.aclose()


def stdio(**more: Any) -> dict[str, Any]:
    return python_server(HERE / "whose.py", "stdio", env={"TOKEN": "${user.TOKEN}"}, **more)


async def use_every_door(town: Town, owner: str) -> list[str]:
    """Return what a person is told at each door of the service."""
    person, found = town.persons[owner], []
    conversation = (await person.post("/conversations", json={})).json()["id"]
    turn = await person.post(f"/conversations/{conversation}/chat", json={"text": "Who?", "stream": False})
    found.append(str(turn.json()["tool_calls"][0]["content"]))
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Who?"}]}
    await person.post("/v1/chat/completions", json=asked)
    provider: Any = town.service.provider
    found.append(str(provider.requests[-1].messages))
    called = await person.post("/tools/call", json={"name": "whoami", "arguments": {}})
    found.append(called.text)
    read = await person.post("/resources/read", json={"server": "crm", "uri": "whose://me"})
    found.append(read.json()["contents"][0]["text"])
    prompt = await person.post("/prompts/get", json={"server": "crm", "name": "greet"})
    found.append(str(prompt.json()["messages"]))
    app = await person.post("/apps/read", json={"server": "crm", "uri": APP})
    found.append(app.json()["html"])
    app_called = await person.post("/apps/call", json={"server": "crm", "tool": "whoami", "arguments": {}})
    found.append(app_called.text)
    for mode in ("legacy", "2026-07-28"):
        async with mcp_client(town.service, mode, town.tokens[owner]) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert "crm__whoami" in listed
            found.append(str((await client.call_tool("crm__whoami", {})).content))
            templates = await client.list_resource_templates()
            address = next(item.uri_template for item in templates.resource_templates if "whose" in item.uri_template)
            (content,) = (await client.read_resource(address.replace("{what}", "me"))).contents
            assert isinstance(content, TextResourceContents)
            found.append(content.text)
            assert "crm__greet" in [prompt.name for prompt in (await client.list_prompts()).prompts]
            found.append(str((await client.get_prompt("crm__greet")).messages))
    return found


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_each_person_gets_their_own_session_at_every_door(tmp_path: Path, transport: str) -> None:
    with web_server("whose.py", "http") as url:
        web = {"url": f"{url}/mcp", "headers": {"Authorization": "Bearer ${user.TOKEN}"}}
        servers = {"crm": web if transport == "http" else stdio()}
        async with open_town(tmp_path, TURN * 4, servers) as town:
            for owner, secret in SECRETS.items():
                await town.give(owner, secret)
            found = {owner: await use_every_door(town, owner) for owner in SECRETS}
    own = {owner: name(secret) for owner, secret in SECRETS.items()}
    assert len(found["anna"]) == 13
    for owner, stranger in (("anna", "bob"), ("bob", "anna")):
        assert [text for text in found[owner] if own[owner] not in text] == []
        assert [text for text in found[owner] if own[stranger] in text] == []


async def test_a_person_without_credentials_is_told_what_is_missing_and_finds_no_tool_at_any_door(
    tmp_path: Path,
) -> None:
    async with open_town(tmp_path, ["I cannot."]) as town:
        await town.give("anna", SECRETS["anna"])
        eve = town.persons["eve"]
        (server,) = (await eve.get("/servers")).json()["servers"]
        tools = (await eve.get("/tools")).json()["tools"]
        called = await eve.post("/tools/call", json={"name": "whoami", "arguments": {}})
        read = await eve.post("/resources/read", json={"server": "crm", "uri": "whose://me"})
        (of_anna,) = (await town.persons["anna"].get("/servers")).json()["servers"]
        async with mcp_client(town.service, "2026-07-28", town.tokens["eve"]) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
    assert (server["state"], server["tools"], server["per_user"]) == ("needs_credentials", [], True)
    assert "TOKEN" in server["error"]
    assert "page" in server["error"]
    assert (tools, listed) == ([], [])
    assert (called.status_code, read.status_code) == (404, 502)
    assert of_anna["state"] == "ready"


async def find_process(town: Town, owner: str) -> int:
    """Return the process that a person's call reaches."""
    called = await town.persons[owner].post("/tools/call", json={"name": "whoami", "arguments": {}})
    (process,) = {*re.findall(rf"{name(SECRETS[owner])} (\d+)", called.text)}
    return int(process)


async def test_a_revoked_value_closes_the_session_at_once(tmp_path: Path) -> None:
    async with open_town(tmp_path, []) as town:
        await town.give("anna", SECRETS["anna"])
        await town.give("bob", SECRETS["bob"])
        of_anna, of_bob = [await find_process(town, owner) for owner in SECRETS]
        foreign = await town.persons["bob"].delete("/credentials/crm/OTHER")
        revoked = await town.persons["anna"].delete("/credentials/crm/TOKEN")
        again = await town.persons["anna"].delete("/credentials/crm/TOKEN")
        await until(lambda: not is_alive(of_anna))
        assert await find_process(town, "bob") == of_bob
        (server,) = (await town.persons["anna"].get("/servers")).json()["servers"]
    assert (foreign.status_code, revoked.status_code, again.status_code) == (404, 204, 404)
    assert server["state"] == "needs_credentials"


async def test_a_value_is_never_shown_again_nor_stored_or_logged_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        async with open_town(tmp_path, [call("leak"), "Done."]) as town:
            anna = town.persons["anna"]
            await town.give("anna", SECRETS["anna"])
            before = (await anna.get("/credentials")).json()
            conversation = (await anna.post("/conversations", json={})).json()["id"]
            await anna.post(f"/conversations/{conversation}/chat", json={"text": "Go!", "stream": False})
            await anna.get("/servers")
            bad = await town.give("anna", "\0", 400)
            of_bob = (await town.persons["bob"].get("/credentials")).json()
            store = town.service.store
            assert isinstance(store, SQLStore)
            exported = [row async for row in store.owner_data.export("anna")]
            erased = await store.owner_data.erase("anna")
            after = (await anna.get("/credentials")).json()
    (server,) = before["servers"]
    assert (server["server"], server["values"][0]["name"]) == ("crm", "TOKEN")
    assert server["values"][0]["set_at"]
    assert [value["set_at"] for item in (of_bob, after) for value in item["servers"][0]["values"]] == [None, None]
    kept = [row for row in exported if row["kind"] == "owner_credentials"]
    assert [{*row} for row in kept] == [{"kind", "server", "name", "changed_at"}]
    assert erased["owner_credentials"] == 1
    assert bad.json()["error"]["code"] == "bad_value"
    secret = SECRETS["anna"]
    assert not [answer for answer in town.answers if secret in answer.text]
    assert secret not in caplog.text
    assert secret not in str(exported)
    assert find_files_with(tmp_path, secret) == []


def find_files_with(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


async def test_only_what_an_entry_asks_for_can_be_given(tmp_path: Path) -> None:
    async with open_town(tmp_path, []) as town:
        anna = town.persons["anna"]
        answers = [
            await anna.put("/credentials/crm/LD_PRELOAD", json={"value": "x"}),
            await anna.put("/credentials/other/TOKEN", json={"value": "x"}),
            await anna.put("/credentials/crm/TOKEN", json={"value": 7}),
            await anna.put("/credentials/crm/TOKEN", json={"value": ""}),
        ]
    assert [answer.status_code for answer in answers] == [404, 404, 400, 400]


async def test_without_a_key_nothing_is_stored_and_the_operator_is_told_what_to_do(tmp_path: Path) -> None:
    async with SQLStore(tmp_path / "x.db") as store:
        stored = StoredCredentials(store.credentials, None)
        with pytest.raises(ConfigError, match="DIAL_CREDENTIALS_KEY"):
            await stored.put("anna", "crm", "TOKEN", "secret")
        assert await stored.find("anna", "crm", "TOKEN") is None


async def test_the_one_person_of_a_service_may_have_a_variable_in_place_of_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "of-the-operator")
    async with SQLStore(tmp_path / "x.db") as store:
        stored = StoredCredentials(store.credentials, BOX)
        assert await stored.find("", "crm", "TOKEN") == "of-the-operator"
        assert await stored.find("anna", "crm", "TOKEN") is None
        await stored.put("", "crm", "TOKEN", "given")
        assert await stored.find("", "crm", "TOKEN") == "given"


async def test_a_value_that_another_process_takes_back_is_used_for_no_more_than_its_lifetime(tmp_path: Path) -> None:
    now = 0.0
    async with SQLStore(tmp_path / "a.db") as first, SQLStore(tmp_path / "a.db") as second:
        here = StoredCredentials(first.credentials, BOX, lifetime=2.0, clock=lambda: now)
        elsewhere = StoredCredentials(second.credentials, BOX)
        assert await here.find("anna", "crm", "A") is None
        await elsewhere.put("anna", "crm", "A", "one")
        assert await here.find("anna", "crm", "A") == "one"  # what was missing is looked for each time
        await elsewhere.put("anna", "crm", "A", "two")
        now = 1.9
        assert await here.find("anna", "crm", "A") == "one"
        now = 2.0
        assert await here.find("anna", "crm", "A") == "two"
        await elsewhere.forget("anna", "crm")
        assert await here.find("bob", "crm", "A") is None
        now = 4.0
        assert await here.find("anna", "crm", "A") is None


async def test_a_value_that_is_changed_or_taken_back_here_is_not_used_again(tmp_path: Path) -> None:
    async with SQLStore(tmp_path / "a.db") as store:
        here = StoredCredentials(store.credentials, BOX, clock=lambda: 0.0)
        await here.put("anna", "crm", "A", "one")
        assert await here.find("anna", "crm", "A") == "one"
        await here.put("anna", "crm", "A", "two")
        assert await here.find("anna", "crm", "A") == "two"
        async with anyio.create_task_group() as group:  # looks that are under way while it is taken back
            for _ in range(8):
                group.start_soon(here.find, "anna", "crm", "A")
            group.start_soon(here.forget, "anna", "crm")
            for _ in range(8):
                group.start_soon(here.find, "anna", "crm", "A")
        assert await here.find("anna", "crm", "A") is None


async def test_a_value_that_somebody_moves_in_the_database_cannot_be_read(tmp_path: Path) -> None:
    async with SQLStore(tmp_path / "x.db") as store:
        credentials: OwnerCredentials = store.credentials
        await credentials.put(BOX, "anna", "crm", "TOKEN", "secret")
        for change in ("owner = 'bob'", "server = 'evil', owner = 'anna'", "server = 'crm', name = 'OTHER'"):
            await execute(store, f"UPDATE owner_credentials SET {change}")
            ((owner, server, at),) = await execute(store, "SELECT owner, server, name FROM owner_credentials")
            with pytest.raises(ConfigError, match="cannot be decrypted"):
                await credentials.find(BOX, owner, server, at)


async def test_an_older_key_still_decrypts_and_the_newer_one_encrypts(tmp_path: Path) -> None:
    older, newer = SecretBox.generate_key(), SecretBox.generate_key()
    async with SQLStore(tmp_path / "x.db") as store:
        credentials = store.credentials
        await credentials.put(SecretBox.from_text(older), "anna", "crm", "A", "one")
        both = SecretBox.from_text(f"{newer} {older}")
        assert await credentials.find(both, "anna", "crm", "A") == "one"
        await credentials.put(both, "anna", "crm", "A", "two")
        assert await credentials.find(SecretBox.from_text(newer), "anna", "crm", "A") == "two"
    for text in ("", "short", newer[:-4], f"{newer} x"):
        with pytest.raises(ConfigError, match="DIAL_CREDENTIALS_KEY"):
            SecretBox.from_text(text)


async def test_a_client_of_mcp_is_told_when_its_person_has_filled_in_credentials(tmp_path: Path) -> None:
    changed = anyio.Event()

    async def note(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    async with (
        open_town(tmp_path, []) as town,
        mcp_client(town.service, "legacy", town.tokens["anna"], message_handler=note) as client,
    ):
        before = (await client.list_tools()).tools
        await town.give("anna", SECRETS["anna"])
        with anyio.fail_after(LONG):
            await changed.wait()
        after = (await client.list_tools()).tools
    assert before == []
    assert "crm__whoami" in [tool.name for tool in after]


async def test_with_both_keys_each_client_of_a_person_has_a_session_with_the_credential_of_the_person(
    tmp_path: Path,
) -> None:
    answers: dict[str, list[str]] = {"anna": [], "bob": []}
    async with open_town(tmp_path, [], {"crm": stdio(perClient=True)}) as town:
        for owner, secret in SECRETS.items():
            await town.give(owner, secret)
            for program in ("one", "two"):
                info = Implementation(name=program, version="1")
                async with mcp_client(town.service, "2026-07-28", town.tokens[owner], client_info=info) as client:
                    await client.list_tools()
                    result = await client.call_tool("crm__whoami", {})
                answers[owner] += re.findall(rf"{name(secret)} \d+", str(result.content))[:1]
    assert [len({*found}) for found in answers.values()] == [2, 2]


async def log_in(town: Town, owner: str) -> int:
    """Log a person in with a browser of their own; return the status of the page that the browser ends at."""
    person = town.persons[owner]
    redirect = {"redirect_uri": f"{town.service.url}/oauth/callback"}
    begun = await person.post("/credentials/crm/login", json=redirect)
    assert begun.status_code == 200, begun.text
    async with httpx2.AsyncClient(
        trust_env=False, verify=False, follow_redirects=True, cookies=person.cookies, timeout=60
    ) as tab:
        return (await tab.get(begun.json()["url"])).status_code


async def call_by_hand(town: Town, owner: str) -> int:
    return (await town.persons[owner].post("/tools/call", json={"name": "echo", "arguments": {}})).status_code


async def test_each_person_logs_in_for_themselves_and_logs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = redirect_user_data(tmp_path / "home", monkeypatch)
    with guarded() as server:
        server.offer_revocation()
        servers = {"crm": {"url": server.url, "perUser": True}}
        async with open_town(tmp_path, [], servers) as town:
            before = [(await person.get("/servers")).json()["servers"][0] for person in town.persons.values()]
            assert await call_by_hand(town, "anna") == 404
            waiting = (await town.persons["anna"].get("/servers")).json()["servers"][0]
            assert await log_in(town, "anna") == 200
            of_anna = await call_by_hand(town, "anna"), await call_by_hand(town, "bob")
            assert await log_in(town, "bob") == 200
            assert await call_by_hand(town, "bob") == 200
        async with open_town(tmp_path, [], servers) as town:
            again = await call_by_hand(town, "anna")
            logged_out = await town.persons["anna"].delete("/credentials/crm")
            afterwards = [await call_by_hand(town, owner) for owner in ("anna", "bob", "eve")]
            (status,) = (await town.persons["anna"].get("/servers")).json()["servers"]
            (revocation,) = server.forms("/revoke")
            server.answers["/revoke"] = (503, "down")
            not_revoked = await town.persons["bob"].delete("/credentials/crm")
        bearers = [headers["Authorization"] for path, headers in server.seen if path == "mcp tools/call"]
    assert {server["state"] for server in before} == {"sleeping"}
    assert (waiting["state"], waiting["needs_login"]) == ("failed", True)
    assert "dial-chat servers login" not in waiting["error"]
    assert of_anna == (200, 404)
    assert again == 200
    assert (logged_out.status_code, afterwards) == (204, [404, 200, 404])
    assert (status["state"], status["needs_login"]) == ("failed", True)
    assert revocation["token"].startswith("refresh-")
    assert not_revoked.status_code == 200
    assert (
        f"crm: its tokens stay valid until they expire, or until you end the login at {server.base}"
        in (not_revoked.json()["warning"])
    )
    assert [bearers[0] == bearer for bearer in bearers] == [True, False, True, False]
    assert find_stored_logins(home) == []
    assert find_files_with(tmp_path, "-secret") == []


async def execute(store: SQLStore, statement: str) -> list[Any]:
    from sqlalchemy import text

    async def run(connection: Any) -> list[Any]:
        result = await connection.execute(text(statement))
        return list(result.all()) if result.returns_rows else []

    return await store._database.run(run, writes=True)

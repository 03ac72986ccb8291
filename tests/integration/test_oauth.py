"""OAuth for servers: login, token storage, refresh, scopes and client credentials, with or without a login callback."""

from __future__ import annotations

import json
import logging
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from dial_client import DialClient, Limits, ServerState
from tests.inner import Callbacks, Login
from tests.support.oauth_logins import Person, find_stored_logins, redirect_user_data
from tests.support.program import LONG
from tests.support.servers.launch import raw, until
from tests.support.servers.oauth_server import WELL_KNOWN, Guarded, guarded

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return redirect_user_data(tmp_path, monkeypatch)


def client(server: Guarded, login: Login | None = None, limits: Limits | None = None, **oauth: Any) -> DialClient:
    entry = {"url": server.url} | ({"oauth": oauth} if oauth else {})
    return DialClient(servers={"docs": entry}, callbacks=Callbacks(login=login), limits=limits, logins=True)


async def test_a_server_that_needs_a_login_fails_with_a_hint_and_other_servers_run(server: Guarded) -> None:
    async with DialClient(servers={"my docs": {"url": server.url}, "good": raw("Server")}, logins=True) as dial:
        status = dial.servers["my docs"]
        assert status.state is ServerState.FAILED
        assert status.error == "it needs a login: run `dial-chat servers login 'my docs'`"
        assert (await dial.call("echo", {"text": "hi"})).success
    assert "/register" not in server.paths()


async def test_a_login_that_never_completes_does_not_delay_other_servers(server: Guarded) -> None:
    class Gone(Person):
        async def __call__(self, request: Any) -> str:
            self.asked.append(request)
            await anyio.sleep_forever()
            raise AssertionError

    servers = {"docs": {"url": server.url, "startupTimeout": 0.5}, "good": raw("Server")}
    async with DialClient(servers=servers, callbacks=Callbacks(login=Gone())) as dial:
        assert "not ready within 0.5 seconds" in (dial.servers["docs"].error or "")
        assert (await dial.call("echo", {"text": "hi"})).success


async def test_a_login_is_stored_for_later_clients(server: Guarded, home: Path) -> None:
    person = Person()
    async with client(server, person) as dial:
        assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error
        assert (await dial.call("echo", {})).success
    [asked] = person.asked
    assert (asked.server, asked.origin) == ("docs", server.base)
    [file] = find_stored_logins(home)
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    async with client(server) as dial:
        assert (await dial.call("echo", {})).success
    assert server.paths().count("/authorize") == 1


async def test_expired_stored_tokens_are_refreshed(server: Guarded, home: Path) -> None:
    async with client(server, Person()):
        pass
    [file] = find_stored_logins(home)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires_at": 1.0}))
    async with client(server) as dial:
        assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error
    assert [form["grant_type"] for form in server.forms("/token")] == ["authorization_code", "refresh_token"]


async def test_a_revoked_access_token_is_refreshed_during_a_call(server: Guarded) -> None:
    person = Person()
    async with client(server, person) as dial:
        server.tokens.clear()
        assert (await dial.call("echo", {})).success
    assert len(person.asked) == 1


async def test_without_a_valid_refresh_token_a_new_login_is_required(server: Guarded) -> None:
    async with client(server, Person()):
        pass
    server.tokens.clear()
    server.refreshable.clear()
    async with client(server) as dial:
        assert "it needs a login" in (dial.servers["docs"].error or "")
    async with client(server, Person()) as dial:
        assert dial.servers["docs"].state is ServerState.READY


async def test_a_failed_refresh_with_status_503_keeps_the_tokens(server: Guarded, home: Path) -> None:
    async with client(server, Person()):
        pass
    [file] = find_stored_logins(home)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires_at": 1.0}))
    server.answers["/token"] = (503, "down")
    async with client(server) as dial:
        assert "answers HTTP 503: try again later" in (dial.servers["docs"].error or "")
    server.answers.clear()
    async with client(server) as dial:
        assert dial.servers["docs"].state is ServerState.READY


async def test_more_scopes_are_requested_when_a_tool_needs_them(server: Guarded) -> None:
    person = Person()
    server.resource = {"scopes_supported": ["read"]}
    async with client(server, person) as dial:
        assert (await dial.call("admin", {})).success
    assert [request.scopes for request in person.asked] == [("read",), ("read", "admin")]


async def test_without_a_callback_more_scopes_are_requested_at_the_next_login(server: Guarded) -> None:
    server.resource = {"scopes_supported": ["read"]}
    async with client(server, Person()):
        pass
    async with client(server) as dial:
        result = await dial.call("admin", {})
        assert "it requires more scopes (admin): run `dial-chat servers login docs`" in (result.error or "")
        assert (await dial.call("echo", {})).success
    person = Person()
    async with client(server, person):
        assert [set(request.scopes) for request in person.asked] == [{"read", "admin"}]
    async with client(server) as dial:
        assert (await dial.call("admin", {})).success


async def test_scopes_outside_the_configuration_are_never_requested(server: Guarded) -> None:
    person = Person()
    server.resource = {"scopes_supported": ["read", "everything"]}
    async with client(server, person, scopes=["read"]) as dial:
        assert "does not name: admin" in ((await dial.call("admin", {})).error or "")
    assert [request.scopes for request in person.asked] == [("read",)]


async def test_a_login_does_not_count_towards_the_timeout_of_a_call(server: Guarded) -> None:
    class Slow(Person):
        async def __call__(self, request: Any) -> str:
            if self.asked:
                await anyio.sleep(5.5)
            return await super().__call__(request)

    async with client(server, Slow(), Limits(timeout=5, tool_timeout=5)) as dial:
        assert (await dial.call("admin", {})).success


async def test_authorized_calls_run_concurrently(server: Guarded) -> None:
    async with client(server, Person()) as dial:
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(dial.call, "together", {})
    assert server.together.broken is False


async def test_a_declined_login_is_requested_once(server: Guarded) -> None:
    person = Person(is_willing=False)
    async with client(server, person) as dial:
        assert dial.servers["docs"].error == "nobody logged in"
    assert len(person.asked) == 1


async def test_a_reconnecting_server_requests_an_expired_login_once(server: Guarded) -> None:
    person = Person()
    async with client(server, person) as dial:
        server.forgets, person.is_willing = True, False
        server.tokens.clear()
        server.refreshable.clear()
        assert not (await dial.call("echo", {})).success
        await until(lambda: dial.servers["docs"].state is ServerState.FAILED)
        assert dial.servers["docs"].error == "nobody logged in"
    assert len(person.asked) == 2


async def test_client_credentials_need_no_login_callback(server: Guarded) -> None:
    grant = "client_credentials"
    async with client(server, clientId="me", clientSecret="my-secret", grantType=grant) as dial:
        assert (await dial.call("echo", {})).success
    assert server.forms("/token")[0]["grant_type"] == "client_credentials"
    assert "/register" not in server.paths()


async def test_a_configured_client_is_not_registered(server: Guarded) -> None:
    async with client(server, Person(), clientId="me", clientSecret="my-secret") as dial:
        assert (await dial.call("echo", {})).success
    assert "/register" not in server.paths()
    assert server.forms("/authorize")[0]["client_id"] == "me"


async def test_a_client_secret_is_sent_only_to_its_first_authorization_server(server: Guarded) -> None:
    with guarded() as second:
        async with client(server, Person(), clientId="me", clientSecret="my-secret"):
            pass
        server.tokens.clear()
        server.refreshable.clear()
        server.resource = {"authorization_servers": [second.base]}
        async with client(server, Person(), clientId="me", clientSecret="my-secret") as dial:
            assert "its clientId belongs to" in (dial.servers["docs"].error or "")
        assert "/token" not in second.paths()


async def test_a_client_id_metadata_document_replaces_registration(server: Guarded) -> None:
    server.metadata = {"client_id_metadata_document_supported": True}
    document = "https://dial.example/client.json"
    async with client(server, Person(), clientMetadataUrl=document) as dial:
        assert dial.servers["docs"].state is ServerState.READY
    assert server.forms("/authorize")[0]["client_id"] == document
    assert "/register" not in server.paths()


async def test_an_embedding_program_may_supply_its_own_authentication(server: Guarded) -> None:
    server.tokens["mine"] = set()
    for token, error in (("mine", None), ("other", "HTTP 401 (Unauthorized)"), ("", "its login failed (KeyError)")):
        entry = {"url": server.url, "auth": Signing(token)}
        async with DialClient(servers={"docs": entry, "good": raw("Server")}) as dial:
            assert (error is None) == (dial.servers["docs"].state is ServerState.READY)
            assert (error or "") in (dial.servers["docs"].error or "")
            assert dial.servers["good"].state is ServerState.READY


class Signing(httpx2.Auth):
    """Authentication of an embedding program."""

    def __init__(self, token: str) -> None:
        self._tokens = {"token": token} if token else {}

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._tokens['token']}"
        yield request


async def test_a_server_with_the_sse_transport_can_require_a_login(server: Guarded) -> None:
    entry, person = {"url": server.url, "type": "sse"}, Person()
    async with DialClient(servers={"docs": entry}) as dial:
        assert "it needs a login: run" in (dial.servers["docs"].error or "")
    async with DialClient(servers={"docs": entry}, callbacks=Callbacks(login=person)) as dial:
        assert "HTTP 404" in (dial.servers["docs"].error or "")  # after the login: the server has no SSE stream
    assert len(person.asked) == 1


async def test_tokens_stored_by_another_process_are_used(server: Guarded) -> None:
    async with client(server, Person()) as dial:
        server.tokens.clear()
        server.refreshable.clear()
        async with client(server, Person()):
            pass
        assert (await dial.call("echo", {})).success


async def test_a_trusted_server_without_metadata_is_its_own_authorization_server(server: Guarded) -> None:
    server.answers = {WELL_KNOWN: (404, ""), "/.well-known/oauth-protected-resource/mcp": (404, "")}
    server.redirected = {"iss": ""}
    async with client(server, Person(), trustedOrigins=[server.base]) as dial:
        assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error
    [asked] = server.forms("/authorize")
    assert asked["code_challenge_method"] == "S256"


def format_record(record: logging.LogRecord) -> str:
    return record.getMessage() + str(record.exc_text) + str(record.exc_info)


async def test_no_secret_is_in_logs_errors_or_recordings(
    server: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dial_client")
    recording = tmp_path / "recorded.json"
    entry = {"url": server.url, "oauth": {"clientId": "me", "clientSecret": "my-secret"}}
    servers: dict[str, Any] = {"docs": entry}
    async with AsyncExitStack() as stack:
        dial = await stack.enter_async_context(
            DialClient(servers=servers, callbacks=Callbacks(login=Person()), record=recording)
        )
        server.answers["/token"] = (400, '{"error": "invalid_grant", "error_description": "{body}"}')
        server.tokens.clear()
        server.refreshable.clear()
        result = await dial.call("echo", {})
        outputs: Sequence[object] = (
            dial.servers["docs"],
            dial.notes,
            result,
            [format_record(r) for r in caplog.records],
        )
    assert "-secret" not in f"{outputs}{recording.read_text()}"

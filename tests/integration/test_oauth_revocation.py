"""The end of a login: its tokens are deleted here, and revoked at the authorization server (RFC 7009)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dial_client import DialClient
from dial_client.extend import LoginStore, MemoryLogins
from tests.inner import (
    Callbacks,
    SecretBox,
    SQLStore,
    StoredCredentials,
    TokenRecord,
    TokenStorage,
    read_server_mapping,
    revoke_tokens,
)
from tests.support.oauth_logins import Person, redirect_user_data
from tests.support.program import dial_chat, write_config
from tests.support.servers.oauth_server import Guarded, guarded

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        running.offer_revocation()
        yield running
        running.revoking.set()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return redirect_user_data(tmp_path, monkeypatch)


async def log_in(server: Guarded, logins: LoginStore, **oauth: Any) -> dict[str, Any]:
    """Log in, and return the entry of the server."""
    entry: dict[str, Any] = {"url": server.url} | ({"oauth": oauth} if oauth else {})
    async with DialClient(servers={"docs": entry}, callbacks=Callbacks(login=Person()), logins=logins) as dial:
        assert dial.servers["docs"].error is None
    return entry


async def log_out(entry: dict[str, Any], logins: LoginStore, seconds: float = 10.0) -> str:
    """Delete a login and revoke its tokens; return what stays valid."""
    settings = read_server_mapping("docs", entry)
    record = await TokenStorage(settings, logins).forget()
    assert record is not None
    return await revoke_tokens(settings, record, seconds)


async def test_the_refresh_token_is_revoked_with_the_client_that_was_registered(server: Guarded) -> None:
    logins = MemoryLogins()
    entry = await log_in(server, logins)
    assert await log_out(entry, logins) == ""
    [form] = server.forms("/revoke")
    assert form["token"].startswith("refresh-")
    assert (form["token_type_hint"], form["client_id"]) == ("refresh_token", *server.clients)
    assert server.refreshable == set()
    assert await TokenStorage(read_server_mapping("docs", entry), logins).load() == TokenRecord()


async def test_without_a_refresh_token_the_access_token_is_revoked(server: Guarded) -> None:
    server.granted = {"refresh_token": None}
    logins = MemoryLogins()
    entry = await log_in(server, logins)
    assert await log_out(entry, logins) == ""
    [form] = server.forms("/revoke")
    assert form["token"].startswith("token-")
    assert form["token_type_hint"] == "access_token"


async def test_a_configured_client_authenticates_with_its_secret(server: Guarded) -> None:
    logins = MemoryLogins()
    entry = await log_in(server, logins, clientId="me", clientSecret="my secret")
    assert await log_out(entry, logins) == ""
    [form] = server.forms("/revoke")
    assert form["authorization"] == f"Basic {base64.b64encode(b'me:my%20secret').decode()}"
    assert "client_secret" not in form


async def test_a_client_with_a_private_key_signs_the_revocation(server: Guarded) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    logins = MemoryLogins()
    entry = await log_in(
        server, logins, grantType="client_credentials", clientId="me", privateKey=key.decode(), issuer=server.base
    )
    assert await log_out(entry, logins) == ""
    [form] = server.forms("/revoke")
    assert form["client_assertion"].count(".") == 2
    assert form["client_assertion_type"].endswith(":jwt-bearer")


async def test_what_stays_valid_and_where_to_end_it_is_said(server: Guarded) -> None:
    ways = f"its tokens stay valid until they expire, or until you end the login at {server.base}"
    logins = MemoryLogins()
    entry = await log_in(server, logins)
    server.answers["/revoke"] = (503, "down")
    assert await log_out(entry, logins) == f"{ways} ({server.base}/revoke answers HTTP 503)"
    await log_in(server, logins)
    server.answers["/revoke"] = (400, '{"error": "invalid_client", "error_description": "who is {body}?"}')
    refused = await log_out(entry, logins)
    assert refused.startswith(f"{ways} ({server.base}/revoke answers invalid_client: who is token=…")
    assert "secret" not in refused
    server.metadata.clear()
    await log_in(server, logins)
    assert await log_out(entry, logins) == f"{ways} (it has no revocation endpoint)"


async def test_an_authorization_server_that_does_not_answer_is_not_waited_for(server: Guarded) -> None:
    server.revoking.clear()
    logins = MemoryLogins()
    entry = await log_in(server, logins)
    assert "does not answer within 0.1 seconds" in await log_out(entry, logins, 0.1)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:1/revoke", "sent to another origin"),
        ("http://169.254.169.254/revoke", "sent to another origin"),
        ("file:///etc/passwd", "no revocation endpoint"),
    ],
)
async def test_tokens_are_sent_to_no_other_origin(server: Guarded, endpoint: str, words: str) -> None:
    server.metadata["revocation_endpoint"] = endpoint
    logins = MemoryLogins()
    entry = await log_in(server, logins)
    assert words in await log_out(entry, logins)


async def test_a_trusted_origin_is_checked_like_any_other_address(server: Guarded) -> None:
    """The entry trusts one origin: the endpoint is of that, and redirects are not followed."""
    with guarded() as trusted:
        server.metadata["revocation_endpoint"] = f"{trusted.base}/revoke"
        trusted.answers["/revoke"] = (307, f"{server.base}/revoke")
        logins = MemoryLogins()
        entry = await log_in(server, logins, trustedOrigins=[trusted.base])
        assert "answers HTTP 307" in await log_out(entry, logins)
        assert len(trusted.forms("/revoke")) == 1
    assert server.forms("/revoke") == []


async def test_a_login_that_cannot_be_read_is_deleted_and_said(server: Guarded) -> None:
    class Broken(MemoryLogins):
        async def load(self, key: str) -> str | None:
            raise OSError(key)

    logins = Broken()
    settings = read_server_mapping("docs", {"url": server.url})
    await logins.save(TokenStorage(settings, logins).key, "{}")
    record = await TokenStorage(settings, logins).forget()
    assert record is not None
    assert "could not be read" in await revoke_tokens(settings, record)
    assert await TokenStorage(settings, logins).forget() is None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_logins_of_a_person_who_is_erased_are_revoked(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SecretBox.generate_key()
    monkeypatch.setenv("DIAL_CREDENTIALS_KEY", key)
    database = tmp_path / "town.db"
    async with aclosing(SQLStore(database)) as store:
        stored = StoredCredentials(store.credentials, SecretBox.from_text(key))
        entry = await log_in(server, stored.for_owner("anna"))
        await log_in(server, stored.for_owner("bob"))
        await stored.for_owner("anna").save("gone-1", '{"issuer": "https://auth.gone.example", "tokens": {}}')
    write_config(tmp_path, {"docs": entry | {"perUser": True}})
    ran = dial_chat(tmp_path, "db", "erase", "anna", "--yes", "--store", str(database))
    assert ran.returncode == 0, ran.stderr
    assert "logins revoked: 1" in ran.stdout
    assert (
        "gone-1: its tokens stay valid until they expire, or until you end the login at https://auth.gone" in ran.stderr
    )
    [form] = server.forms("/revoke")
    assert len(server.refreshable) == 1
    assert form["token"] not in server.refreshable
    ran = dial_chat(tmp_path, "credentials", "list", "--owner", "bob", "--store", str(database))
    login = ran.stdout.split()[0]
    ran = dial_chat(tmp_path, "credentials", "revoke", login, "--owner", "bob", "--store", str(database))
    assert server.refreshable == set()

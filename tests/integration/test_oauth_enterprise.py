"""Logins without registration: client metadata documents, and enterprise-managed authorization (ID-JAG)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, ServerState
from dial_client.extend import MemoryLogins
from tests.inner import Callbacks
from tests.support.oauth_logins import Person
from tests.support.servers.oauth_server import RESOURCE, Guarded, guarded

pytestmark = pytest.mark.anyio

DOCUMENT = "https://dial.example/client.json"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture
def provider() -> Iterator[Guarded]:
    """The identity provider of the company."""
    with guarded() as running:
        running.granted = {"issued_token_type": ID_JAG, "access_token": "the-id-jag-secret", "token_type": "N_A"}
        yield running


async def test_a_metadata_document_replaces_an_earlier_registration(server: Guarded) -> None:
    logins = MemoryLogins()
    for oauth in ({}, {"clientMetadataUrl": DOCUMENT}):
        server.metadata = {"client_id_metadata_document_supported": True}
        entry: dict[str, Any] = {"url": server.url, "oauth": oauth}
        async with DialClient(servers={"docs": entry}, callbacks=Callbacks(login=Person()), logins=logins) as dial:
            assert dial.servers["docs"].state is ServerState.READY
        server.tokens.clear()
        server.refreshable.clear()
    assert [form["client_id"] == DOCUMENT for form in server.forms("/authorize")] == [False, True]


async def test_a_server_without_metadata_documents_gets_a_registration(server: Guarded) -> None:
    entry = {"url": server.url, "oauth": {"clientMetadataUrl": DOCUMENT}}
    async with DialClient(servers={"docs": entry}, callbacks=Callbacks(login=Person())) as dial:
        assert dial.servers["docs"].state is ServerState.READY
    assert "/register" in server.paths()


@pytest.fixture
def id_token(tmp_path: Path) -> Path:
    file = tmp_path / "id_token"
    file.write_text("the-id-token-secret\n")
    return file


def entry_of(server: Guarded, provider: Guarded, id_token: Path, **oauth: Any) -> dict[str, Any]:
    usual = {
        "grantType": "jwt-bearer",
        "issuer": server.base,
        "clientId": "me",
        "clientSecret": "my-secret",
        "identityProvider": f"{provider.base}/token",
        "identityFile": str(id_token),
        "identityClientId": "me-at-the-provider",
    }
    return {"url": server.url, "oauth": usual | oauth}


async def test_the_identity_of_the_company_logs_in_without_a_person(
    server: Guarded, provider: Guarded, id_token: Path
) -> None:
    server.resource = {"authorization_servers": ["http://127.0.0.1:9"]}
    logins = MemoryLogins()
    entry = entry_of(server, provider, id_token, scopes=["read"], identityClientSecret="other-secret")
    for _ in range(2):
        async with DialClient(servers={"docs": entry}, logins=logins) as dial:
            assert (await dial.call("echo", {})).success, dial.servers["docs"].error
    [exchange] = provider.forms("/token")
    assert exchange["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert (exchange["subject_token"], exchange["requested_token_type"]) == ("the-id-token-secret", ID_JAG)
    assert (exchange["audience"], exchange["resource"], exchange["scope"]) == (server.base, server.url, "read")
    assert (exchange["client_id"], exchange["client_secret"]) == ("me-at-the-provider", "other-secret")
    [grant] = server.forms("/token")
    assert grant["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert grant["assertion"] == "the-id-jag-secret"
    assert RESOURCE not in server.paths()  # the server does not choose who gets the assertion


async def test_an_expired_token_is_replaced_with_a_new_assertion(
    server: Guarded, provider: Guarded, id_token: Path
) -> None:
    async with DialClient(servers={"docs": entry_of(server, provider, id_token)}) as dial:
        await anyio.Path(id_token).write_text("a-new-id-token")
        server.tokens.clear()
        assert (await dial.call("echo", {})).success
    assert [form["subject_token"] for form in provider.forms("/token")] == ["the-id-token-secret", "a-new-id-token"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (400, '{"error": "invalid_grant", "error_description": "{body}"}'),
            "gives no identity assertion: invalid_grant",
        ),
        ((200, '{"access_token": "x", "issued_token_type": "urn:ietf:params:oauth:token-type:jwt"}'), "no ID-JAG"),
        ((200, "[]"), "no ID-JAG"),
    ],
)
async def test_a_provider_that_gives_no_assertion_is_an_error(
    server: Guarded, provider: Guarded, id_token: Path, answer: tuple[int, str], words: str
) -> None:
    provider.answers["/token"] = answer
    async with DialClient(servers={"docs": entry_of(server, provider, id_token)}) as dial:
        error = dial.servers["docs"].error or ""
    assert words in error
    assert "secret" not in error
    assert server.forms("/token") == []


async def test_a_missing_id_token_is_an_error_that_names_its_file(
    server: Guarded, provider: Guarded, tmp_path: Path
) -> None:
    async with DialClient(servers={"docs": entry_of(server, provider, tmp_path / "none")}) as dial:
        assert "the ID token cannot be read from" in (dial.servers["docs"].error or "")


async def test_another_issuer_gets_no_assertion(server: Guarded, provider: Guarded, id_token: Path) -> None:
    server.metadata = {"issuer": "http://127.0.0.1:9"}
    async with DialClient(servers={"docs": entry_of(server, provider, id_token)}) as dial:
        assert "mismatch" in (dial.servers["docs"].error or "")
    assert provider.forms("/token") == []

"""Enterprise-managed authorization for each person of a service: the ID token of the login is exchanged (ID-JAG)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.inner import AccessPolicy, FirstOf, GroupScopes, IdentityProvider, OidcTokens, SQLStore, TokenAuthenticator
from tests.support.http_service import TOKEN, serve
from tests.support.openid_provider import CLIENT, OpenIdProvider, openid_provider
from tests.support.servers.oauth_server import Guarded, guarded

pytestmark = pytest.mark.anyio

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def issuer() -> Iterator[OpenIdProvider]:
    with openid_provider() as provider:
        yield provider


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture
def exchange() -> Iterator[Guarded]:
    """The endpoint of the company that exchanges ID tokens."""
    with guarded() as running:
        running.granted = {"issued_token_type": ID_JAG, "access_token": "the-id-jag", "token_type": "N_A"}
        yield running


async def call_echo(url: str, token: str) -> str:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60.0) as http:
        headers = {"Authorization": f"Bearer {token}"}
        return (await http.post("/tools/call", json={"name": "echo", "arguments": {}}, headers=headers)).text


async def wait_for_tools(url: str, token: str) -> None:
    """Wait until the person's session with the server has begun, which is offered later if it is slow."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60.0, headers=headers) as http:
        while "echo" not in (await http.get("/tools")).text:  # noqa: ASYNC110 - of another program
            await anyio.sleep(0.05)


async def test_the_id_token_of_each_person_and_of_nobody_else_is_exchanged_for_the_servers_of_that_person(
    tmp_path: Path, issuer: OpenIdProvider, server: Guarded, exchange: Guarded
) -> None:
    entry: dict[str, Any] = {
        "url": server.url,
        "perUser": True,
        "oauth": {
            "grantType": "jwt-bearer",
            "issuer": server.base,
            "clientId": "me",
            "clientSecret": "my-secret",
            "identityProvider": f"{exchange.base}/token",
        },
    }
    tokens = OidcTokens(IdentityProvider(issuer.url), [CLIENT, "another-program"], GroupScopes())
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(TokenAuthenticator(TOKEN), tokens))
    anna, bob, of_other = issuer.sign(sub="anna"), issuer.sign(sub="bob"), issuer.sign(sub="eve", aud="another-program")
    async with serve(
        [], {"docs": entry}, store=SQLStore(tmp_path / "a.db"), policy=policy, single_user=False, allow=["*"]
    ) as service:
        for token in (anna, bob):
            await wait_for_tools(service.url, token)
        answers = [await call_echo(service.url, token) for token in (anna, bob, anna, of_other, TOKEN)]
    assert ['"success":true' in answer for answer in answers] == [True, True, True, False, False]
    assert [form["subject_token"] for form in exchange.forms("/token")] == [anna, bob]
    assert {form["assertion"] for form in server.forms("/token")} == {"the-id-jag"}
    assert not any(token in answer for token in (anna, bob) for answer in answers)

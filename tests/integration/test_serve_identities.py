"""Persons of a service whom an OpenID provider has signed tokens for, or whom a proxy names."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dial_client import DialClient
from dial_client.serve import create_app
from dial_client.testing import ScriptedProvider
from tests.inner import (
    AccessPolicy,
    ConfigError,
    FirstOf,
    GroupScopes,
    HttpError,
    IdentityProvider,
    OidcLogin,
    OidcTokens,
    Proxies,
    ProxyUsers,
    TokenAuthenticator,
)
from tests.support.http_service import TOKEN, serve
from tests.support.openid_provider import (
    CLIENT,
    CONFIGURATION,
    KEYS,
    OpenIdProvider,
    first_values,
    make_key,
    openid_provider,
    to_jwk,
)

pytestmark = pytest.mark.anyio

ADMINS = GroupScopes({"*": ("read", "chat"), "admins": ("admin",)})
LOOPBACK = (ipaddress.ip_network("127.0.0.1"),)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def issuer() -> Iterator[OpenIdProvider]:
    with openid_provider() as provider:
        yield provider


@asynccontextmanager
async def open_service(
    issuer: OpenIdProvider, claim: str = "groups", public_url: str = "", **refetch: float
) -> AsyncIterator[str]:
    provider = IdentityProvider(issuer.url, **refetch)
    tokens = OidcTokens(provider, [CLIENT], ADMINS, claim)
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(TokenAuthenticator(TOKEN), tokens))
    login = OidcLogin(provider, CLIENT, public_url) if public_url else None
    async with serve(["Hello."], policy=policy, single_user=False, login=login) as service:
        yield service.url


async def get(url: str, token: str = "", headers: Mapping[str, str] | list[tuple[str, str]] | None = None) -> Any:
    sent = [*(headers.items() if isinstance(headers, Mapping) else headers or [])]
    sent += [("Authorization", f"Bearer {token}")] if token else []
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        return await http.get(url, headers=sent)


async def test_a_token_of_the_provider_names_its_person_and_what_the_groups_may_do(issuer: OpenIdProvider) -> None:
    async with open_service(issuer) as url:
        staff = await get(f"{url}/me", issuer.sign(preferred_username="anna"))
        admin = await get(f"{url}/me", issuer.sign(sub="1", groups=["admins", "staff"]))
        refused = await get(f"{url}/audit", issuer.sign())
        operator = await get(f"{url}/me", TOKEN)
    where = issuer.url.removeprefix("http://")
    assert staff.json() == {"name": f"17@{where}", "shown_name": "anna", "scopes": ["chat", "read"]}
    assert (admin.json()["name"], admin.json()["scopes"]) == (f"1@{where}", ["admin", "chat", "read"])
    assert (refused.status_code, refused.headers["www-authenticate"]) == (
        403,
        'Bearer error="insufficient_scope", scope="admin"',
    )
    assert operator.json()["name"] == ""
    assert issuer.requests == [CONFIGURATION, KEYS]


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("realm_access.roles", {"groups": None, "realm_access": {"roles": ["admins"]}}),
        ("https://example.com/groups", {"groups": None, "https://example.com/groups": ["admins", 7]}),
    ],
)
async def test_groups_stand_in_the_claim_that_the_provider_uses(
    issuer: OpenIdProvider, claim: str, claims: dict[str, Any]
) -> None:
    async with open_service(issuer, claim=claim) as url:
        answered = await get(f"{url}/me", issuer.sign(**claims))
    assert "admin" in answered.json()["scopes"]


def forge(issuer: OpenIdProvider) -> dict[str, str]:
    """Return tokens that must not be accepted, by what is wrong with them."""
    public = make_key("first").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    unsigned = jwt.encode({"iss": issuer.url, "aud": CLIENT, "sub": "17", "exp": time.time() + 60}, "", "none")
    head, body, signature = issuer.sign().split(".")
    as_secret = jwt.utils.base64url_encode(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "first"}).encode()).decode()
    by_public_key = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    mac = by_public_key.sign(f"{as_secret}.{body}".encode(), public.encode())
    return {
        "expired": issuer.sign(exp=int(time.time()) - 60),
        "not valid yet": issuer.sign(nbf=int(time.time()) + 600),
        "of another issuer": issuer.sign(iss="https://login.example.com"),
        "for another service": issuer.sign(aud="mail"),
        "without audience": issuer.sign(aud=None),
        "without end": issuer.sign(exp=None),
        "without subject": issuer.sign(sub=None),
        "of nobody": issuer.sign(sub=""),
        "with a subject that cannot be shown": issuer.sign(sub="a\nb"),
        "signed by somebody": issuer.sign(key=make_key("second")),
        "signed with a key that the provider has not": issuer.sign(key_id="second"),
        "not signed": unsigned,
        "signed with the public key as a secret": f"{as_secret}.{body}.{jwt.utils.base64url_encode(mac).decode()}",
        "changed": f"{head}.{jwt.utils.base64url_encode(b'{}').decode()}.{signature}",
        "no token": "x.y.z",
        "empty parts": "..",
        "a token of another kind": "dial_00000000_" + "A" * 43,
    }


async def test_no_token_is_accepted_that_the_provider_has_not_signed_for_this_service_and_this_time(
    issuer: OpenIdProvider,
) -> None:
    forged = forge(issuer)
    async with open_service(issuer) as url:
        answers = {name: await get(f"{url}/me", token) for name, token in forged.items()}
        genuine = await get(f"{url}/me", issuer.sign())
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(forged, 401)
    assert "has expired" in answers["expired"].json()["error"]["message"]
    assert genuine.status_code == 200
    assert issuer.requests == [CONFIGURATION, KEYS], "an invented key id must not cause further requests"


async def test_a_new_key_of_the_provider_is_found(issuer: OpenIdProvider) -> None:
    tokens = OidcTokens(IdentityProvider(issuer.url, refetch_seconds=0.0), [CLIENT], ADMINS)
    before = await tokens.authenticate({"authorization": f"Bearer {issuer.sign()}"})
    new = make_key("second")
    issuer.documents[KEYS] = {"keys": [to_jwk(new, "second"), {"kty": "oct", "k": "AAAA", "kid": "third"}, 5]}
    after = await tokens.authenticate({"authorization": f"Bearer {issuer.sign(key=new, key_id='second')}"})
    assert before == after


async def test_without_the_provider_requests_are_told_when_to_come_again_and_known_keys_stay(
    issuer: OpenIdProvider,
) -> None:
    configuration = issuer.documents.pop(CONFIGURATION)
    async with open_service(issuer, refetch_seconds=0.0) as url:
        early = await get(f"{url}/me", issuer.sign())
        issuer.documents[CONFIGURATION] = configuration | {"issuer": "http://127.0.0.1/another"}
        deceived = await get(f"{url}/me", issuer.sign())
        issuer.documents[CONFIGURATION] = configuration
        in_time = await get(f"{url}/me", issuer.sign())
        issuer.documents.clear()
        late = await get(f"{url}/me", issuer.sign())
    assert (early.status_code, early.headers["retry-after"]) == (503, "5")
    assert deceived.status_code == 503
    assert (in_time.status_code, late.status_code) == (200, 200)


@pytest.mark.parametrize("url", ["http://login.example.com", "login", "https://a@login.example.com", "https://[a"])
def test_a_provider_without_tls_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the URL of an OpenID provider"):
        IdentityProvider(url)


def test_a_provider_without_an_audience_is_refused() -> None:
    with pytest.raises(ConfigError, match="any audience"):
        OidcTokens(IdentityProvider("https://login.example.com"), [], ADMINS)


async def test_clients_of_the_mcp_endpoint_learn_the_provider(issuer: OpenIdProvider) -> None:
    resource = "https://chat.example.com/mcp"
    tokens = OidcTokens(IdentityProvider(issuer.url), [], ADMINS, resource=resource)
    person = await tokens.authenticate({"authorization": f"Bearer {issuer.sign(aud=resource)}"})
    assert tokens.metadata is not None
    assert tokens.metadata.to_dict()["authorization_servers"] == [issuer.url]
    assert getattr(person, "name", "").startswith("17@")


async def test_requests_that_come_while_the_provider_is_away_ask_it_once(issuer: OpenIdProvider) -> None:
    issuer.documents.pop(CONFIGURATION)
    provider, refused = IdentityProvider(issuer.url), list[int]()

    async def verify() -> None:
        try:
            await provider.verify(issuer.sign(), [CLIENT])
        except HttpError as error:
            refused.append(error.status)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(verify)
    assert refused == [503] * 20
    assert issuer.requests == [CONFIGURATION]


PUBLIC = "https://chat.example.com/chat"


async def begin_login(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Begin a login, and return the query with which the provider is asked. The client has the cookie."""
    begun = await http.get(f"{url}/login")
    assert begun.status_code == 303
    cookie = begun.headers["set-cookie"]
    assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/chat/login"} <= set(cookie.split("; "))
    # The client would not send a cookie of HTTPS over HTTP, nor one for the sub-path that a proxy removes.
    name, _, value = cookie.partition(";")[0].partition("=")
    http.headers["cookie"] = f"{name}={value}"
    return first_values(urlsplit(begun.headers["location"]).query)


def connect() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, verify=False, timeout=60)


async def test_a_login_gives_the_page_a_token_that_only_its_browser_gets(issuer: OpenIdProvider) -> None:
    async with open_service(issuer, public_url=PUBLIC) as url, connect() as http:
        query = await begin_login(http, url)
        back = issuer.authorize(query).removeprefix(f"{PUBLIC}/login/callback")
        finished = await http.get(f"{url}/login/callback{back}")
        place, _, token = finished.headers["location"].partition("#token=")
        me = await get(f"{url}/me", token)
        again = await http.get(f"{url}/login/callback{back}")
    assert (finished.status_code, place) == (303, f"{PUBLIC}/")
    assert me.json()["shown_name"] == "anna"
    kept = next(text for text in finished.headers.get_list("set-cookie") if text.startswith("dial_refresh="))
    assert {"dial_refresh=again", "HttpOnly", "Secure", "SameSite=strict", "Path=/chat/login"} <= set(kept.split("; "))
    assert again.status_code == 403, "a code is redeemed once"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"state": "x"}, 400),
        ({"state": None}, 400),
        ({"iss": "https://login.example.com"}, 400),
        ({"code": "x"}, 403),
        ({"code": None, "error": "access_denied"}, 403),
    ],
)
async def test_a_login_that_was_not_begun_in_this_browser_or_not_granted_ends_without_a_token(
    issuer: OpenIdProvider, change: dict[str, str | None], status: int
) -> None:
    async with open_service(issuer, public_url=PUBLIC) as url, connect() as http:
        query = await begin_login(http, url)
        sent = first_values(issuer.authorize(query).partition("?")[2]) | change
        params = {name: value for name, value in sent.items() if value is not None}
        finished = await http.get(f"{url}/login/callback", params=params)
        del http.headers["cookie"]
        foreign = await http.get(f"{url}/login/callback{issuer.authorize(query).partition('callback')[2]}")
    assert (finished.status_code, foreign.status_code) == (status, 400)
    assert "location" not in finished.headers


async def test_a_token_of_another_login_is_not_taken_for_this_one(issuer: OpenIdProvider) -> None:
    async with open_service(issuer, public_url=PUBLIC) as url, connect() as http:
        query = await begin_login(http, url)
        back = issuer.authorize(query | {"nonce": "of another login"}).partition("callback")[2]
        finished = await http.get(f"{url}/login/callback{back}")
    assert finished.status_code == 403


async def test_an_expired_token_is_renewed_by_the_refresh_token_until_the_provider_ends_the_login(
    issuer: OpenIdProvider,
) -> None:
    cookie = {"cookie": "dial_refresh=again"}
    async with open_service(issuer, public_url=PUBLIC) as url, connect() as http:
        renewed = await http.post(f"{url}/login/refresh", headers=cookie)
        me = await get(f"{url}/me", renewed.json()["token"])
        without = await http.post(f"{url}/login/refresh")
        foreign = await http.post(f"{url}/login/refresh", headers={**cookie, "origin": "https://evil.example"})
        ended = await http.post(f"{url}/login/logout", headers=cookie)
        issuer.refreshes = False
        refused = await http.post(f"{url}/login/refresh", headers=cookie)
    assert me.status_code == 200
    for answer in (without, refused):
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "login_needed")
    assert foreign.status_code == 403
    assert 'dial_refresh=""' in ended.headers["set-cookie"]


async def test_without_a_login_the_page_is_told_to_ask_for_a_token(issuer: OpenIdProvider) -> None:
    async with open_service(issuer) as url, connect() as http:
        refused = await http.post(f"{url}/login/refresh")
    assert refused.json().get("error", {}).get("code") != "login_needed"


def test_a_login_over_a_network_without_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the URL of this service"):
        OidcLogin(IdentityProvider("https://login.example.com"), CLIENT, "http://chat.example.com")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Forwarded-User": "anna@example.org"}, (200, "anna@example.org", ["chat", "read"])),
        ({"X-Forwarded-User": "bob", "X-Forwarded-Groups": "staff, admins"}, (200, "bob", ["admin", "chat", "read"])),
        ({}, (401, None, None)),
        ({"X-Forwarded-User": ""}, (401, None, None)),
        ({"X-Forwarded-User": "x" * 201}, (401, None, None)),
        ([("X-Forwarded-User", "mallory"), ("X-Forwarded-User", "anna")], (401, None, None)),
        (
            [("X-Forwarded-User", "bob"), ("X-Forwarded-Groups", "admins"), ("X-Forwarded-Groups", "staff")],
            (200, "bob", ["chat", "read"]),
        ),
    ],
)
async def test_a_proxy_names_the_person_once(headers: Any, expected: tuple[int, str | None, list[str] | None]) -> None:
    users = ProxyUsers(ADMINS)
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(users, TokenAuthenticator(TOKEN)))
    proxies = Proxies(LOOPBACK, users.header_names)
    async with serve([], policy=policy, single_user=False, proxies=proxies) as service:
        answered = await get(f"{service.url}/me", headers=headers)
    shown = answered.json()
    assert (answered.status_code, shown.get("name"), shown.get("scopes")) == expected


async def test_a_client_that_is_no_proxy_cannot_name_a_person() -> None:
    users = ProxyUsers(ADMINS)
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(users, TokenAuthenticator(TOKEN)))
    proxies = Proxies((ipaddress.ip_network("192.0.2.1"),), users.header_names)
    claimed = {"X-Forwarded-User": "anna", "X-Forwarded-For": "192.0.2.1"}
    async with serve([], policy=policy, single_user=False, proxies=proxies) as service:
        refused = await get(f"{service.url}/me", headers=claimed)
        operator = await get(f"{service.url}/me", TOKEN, headers=claimed)
    assert refused.status_code == 401
    assert operator.json()["name"] == ""


async def test_clients_of_mcp_find_the_provider_whose_tokens_the_whole_service_takes(issuer: OpenIdProvider) -> None:
    resource = "https://chat.example.com/mcp"
    tokens = OidcTokens(IdentityProvider(issuer.url), [CLIENT], ADMINS, resource=resource)
    web = create_app(
        DialClient(ScriptedProvider([])), None, token=None, authenticator=FirstOf(TokenAuthenticator(TOKEN), tokens)
    )
    async with (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(web), base_url="http://127.0.0.1") as http,
        web.lifespan(),
    ):
        refused = await http.post("/mcp", json={})
        _, _, metadata = refused.headers["www-authenticate"].partition("resource_metadata=")
        document = (await http.get(urlsplit(metadata.strip('"')).path)).json()
    assert (document["resource"], document["authorization_servers"]) == (resource, [issuer.url])

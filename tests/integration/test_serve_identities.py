"""Persons of a service whom an OpenID provider has signed tokens for, or whom a proxy names."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.inner import (
    AccessPolicy,
    ConfigError,
    FirstOf,
    GroupScopes,
    OidcTokens,
    Proxies,
    ProxyUsers,
    TokenAuthenticator,
)
from tests.support.http_service import TOKEN, serve
from tests.support.json_service import JsonService, json_service

pytestmark = pytest.mark.anyio

AUDIENCE = "dial"
ADMINS = GroupScopes({"*": ("read", "chat"), "admins": ("admin",)})
KEYS = "/keys"
CONFIGURATION = "/realm/.well-known/openid-configuration"
LOOPBACK = (ipaddress.ip_network("127.0.0.1"),)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def private_key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


def to_jwk(key: RSAPrivateKey, key_id: str) -> dict[str, Any]:
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"}


@dataclass
class Issuer:
    """An OpenID provider on loopback."""

    service: JsonService
    documents: dict[str, Any]
    key: RSAPrivateKey

    @property
    def url(self) -> str:
        return f"{self.service.url}/realm"

    def sign(self, *, key: Any = None, key_id: str = "first", algorithm: str = "RS256", **claims: Any) -> str:
        """Return a token; a claim that is None is left out."""
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "17", "exp": int(time.time()) + 60, "groups": ["staff"]}
        kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(kept, self.key if key is None else key, algorithm, {"kid": key_id})


@pytest.fixture
def issuer(private_key: RSAPrivateKey) -> Iterator[Issuer]:
    documents: dict[str, Any] = {KEYS: {"keys": [to_jwk(private_key, "first")]}}
    with json_service(documents) as service:
        documents[CONFIGURATION] = {"issuer": f"{service.url}/realm", "jwks_uri": f"{service.url}{KEYS}"}
        yield Issuer(service, documents, private_key)


@asynccontextmanager
async def open_service(issuer: Issuer, scopes: GroupScopes = ADMINS, claim: str = "groups") -> AsyncIterator[str]:
    tokens = OidcTokens(issuer.url, [AUDIENCE], scopes, claim)
    policy = AccessPolicy(TOKEN, authenticator=FirstOf(TokenAuthenticator(TOKEN), tokens))
    async with serve(["Hello."], policy=policy, single_user=False) as service:
        yield service.url


async def get(url: str, token: str = "", headers: Mapping[str, str] | list[tuple[str, str]] | None = None) -> Any:
    sent = [*(headers.items() if isinstance(headers, Mapping) else headers or [])]
    sent += [("Authorization", f"Bearer {token}")] if token else []
    async with httpx2.AsyncClient(trust_env=False, verify=False) as http:
        return await http.get(url, headers=sent)


async def test_a_token_of_the_provider_names_its_person_and_what_the_groups_may_do(issuer: Issuer) -> None:
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
    assert issuer.service.requests == [CONFIGURATION, KEYS]


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("realm_access.roles", {"groups": None, "realm_access": {"roles": ["admins"]}}),
        ("https://example.com/groups", {"groups": None, "https://example.com/groups": ["admins", 7]}),
    ],
)
async def test_groups_stand_in_the_claim_that_the_provider_uses(
    issuer: Issuer, claim: str, claims: dict[str, Any]
) -> None:
    async with open_service(issuer, claim=claim) as url:
        answered = await get(f"{url}/me", issuer.sign(**claims))
    assert "admin" in answered.json()["scopes"]


def forge(issuer: Issuer) -> dict[str, str]:
    """Return tokens that must not be accepted, by what is wrong with them."""
    public = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    unsigned = jwt.encode({"iss": issuer.url, "aud": AUDIENCE, "sub": "17", "exp": time.time() + 60}, "", "none")
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
        "signed by somebody": issuer.sign(key=generate_private_key(65537, 2048)),
        "signed with a key that the provider has not": issuer.sign(key_id="second"),
        "not signed": unsigned,
        "signed with the public key as a secret": f"{as_secret}.{body}.{jwt.utils.base64url_encode(mac).decode()}",
        "changed": f"{head}.{jwt.utils.base64url_encode(b'{}').decode()}.{signature}",
        "no token": "x.y.z",
        "empty parts": "..",
        "a token of another kind": "dial_00000000_" + "A" * 43,
    }


async def test_no_token_is_accepted_that_the_provider_has_not_signed_for_this_service_and_this_time(
    issuer: Issuer,
) -> None:
    forged = forge(issuer)
    async with open_service(issuer) as url:
        answers = {name: await get(f"{url}/me", token) for name, token in forged.items()}
        genuine = await get(f"{url}/me", issuer.sign())
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(forged, 401)
    assert "has expired" in answers["expired"].json()["error"]["message"]
    assert genuine.status_code == 200
    assert issuer.service.requests == [CONFIGURATION, KEYS], "an invented key id must not cause further requests"


async def test_a_new_key_of_the_provider_is_found(issuer: Issuer) -> None:
    tokens = OidcTokens(issuer.url, [AUDIENCE], ADMINS, refetch_seconds=0.0)
    before = await tokens.authenticate({"authorization": f"Bearer {issuer.sign()}"})
    new = generate_private_key(65537, 2048)
    issuer.documents[KEYS] = {"keys": [to_jwk(new, "second"), {"kty": "oct", "k": "AAAA", "kid": "third"}, 5]}
    after = await tokens.authenticate({"authorization": f"Bearer {issuer.sign(key=new, key_id='second')}"})
    assert before == after


async def test_without_the_provider_requests_are_told_when_to_come_again_and_known_keys_stay(issuer: Issuer) -> None:
    configuration = issuer.documents.pop(CONFIGURATION)
    async with open_service(issuer) as url:
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


@pytest.mark.parametrize(
    ("url", "audiences"),
    [("http://login.example.com", ["dial"]), ("login", ["dial"]), ("https://a@login.example.com", ["dial"])],
)
def test_a_provider_without_tls_is_refused(url: str, audiences: list[str]) -> None:
    with pytest.raises(ConfigError, match="is not the URL of an OpenID provider"):
        OidcTokens(url, audiences, ADMINS)


def test_a_provider_without_an_audience_is_refused() -> None:
    with pytest.raises(ConfigError, match="any audience"):
        OidcTokens("https://login.example.com", [], ADMINS)


async def test_clients_of_the_mcp_endpoint_learn_the_provider(issuer: Issuer) -> None:
    resource = "https://chat.example.com/mcp"
    tokens = OidcTokens(issuer.url, [], ADMINS, resource=resource)
    person = await tokens.authenticate({"authorization": f"Bearer {issuer.sign(aud=resource)}"})
    assert tokens.metadata is not None
    assert tokens.metadata.to_dict()["authorization_servers"] == [issuer.url]
    assert getattr(person, "name", "").startswith("17@")


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

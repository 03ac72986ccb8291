"""Authorization servers that deviate from the specification, or forget, and still let people log in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dial_client import DialClient, ServerState
from dial_client.extend import MemoryLogins
from tests.inner import Callbacks, Login
from tests.support.oauth_logins import Person
from tests.support.servers.oauth_server import Guarded, guarded

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


def client(server: Guarded, login: Login | None = None, logins: Any = False, **oauth: Any) -> DialClient:
    entry = {"url": server.url} | ({"oauth": oauth} if oauth else {})
    return DialClient(servers={"docs": entry}, callbacks=Callbacks(login=login), logins=logins)


async def log_in(server: Guarded, **oauth: Any) -> str:
    """Log in, call a tool, and return the error of the server; empty if there is none."""
    async with client(server, Person(), **oauth) as dial:
        error = dial.servers["docs"].error or ""
        if not error:
            assert (await dial.call("echo", {})).success
        return error


@pytest.mark.parametrize("issuer", ["", "/"])
@pytest.mark.parametrize("named", ["", "/"])
async def test_the_last_slash_of_an_issuer_without_a_path_is_no_difference(
    server: Guarded, issuer: str, named: str
) -> None:
    server.metadata = {"issuer": server.base + issuer, "authorization_response_iss_parameter_supported": True}
    server.resource = {"authorization_servers": [server.base + named]}
    server.redirected = {"iss": server.base + issuer}
    assert await log_in(server) == ""
    assert await log_in(server, clientId="me", issuer=f"{server.base}/") == ""


@pytest.mark.parametrize(("issuer", "redirected"), [("", "/"), ("/", "")])
async def test_the_issuer_of_a_redirect_is_that_of_the_metadata_to_the_letter(
    server: Guarded, issuer: str, redirected: str
) -> None:
    server.metadata = {"issuer": server.base + issuer, "authorization_response_iss_parameter_supported": True}
    server.redirected = {"iss": server.base + redirected}
    assert "iss mismatch" in await log_in(server)


@pytest.mark.parametrize("place", ["metadata", "redirect"])
@pytest.mark.parametrize("change", ["http://127.0.0.1:9", "{base}/tenant", "{base}//", "{base}?", "https://127.0.0.1"])
async def test_another_host_port_or_path_of_an_issuer_is_refused(server: Guarded, change: str, place: str) -> None:
    issuer = change.format(base=server.base)
    if place == "metadata":
        server.metadata = {"issuer": issuer}
    else:
        server.redirected = {"iss": issuer}
    assert "mismatch" in await log_in(server)


async def test_the_path_of_an_issuer_keeps_its_last_slash(server: Guarded) -> None:
    server.resource = {"authorization_servers": [f"{server.base}/tenant"]}
    document = server.build_metadata() | {"issuer": f"{server.base}/tenant/"}
    server.answers["/.well-known/oauth-authorization-server/tenant"] = (200, json.dumps(document))
    assert "mismatch" in await log_in(server)


@pytest.mark.parametrize("methods", [None, []])
async def test_pkce_that_is_not_announced_is_used_if_the_user_says_so(server: Guarded, methods: Any) -> None:
    server.metadata = {"code_challenge_methods_supported": methods}
    error = await log_in(server)
    assert "does not announce PKCE" in error
    assert '"oauth": {"allowUnannouncedPkce": true}' in error
    assert await log_in(server, allowUnannouncedPkce=True) == ""
    assert await log_in(server, trustedOrigins=[server.base]) == ""
    assert {form["code_challenge_method"] for form in server.forms("/authorize")} == {"S256"}


async def test_pkce_without_s256_is_refused_whatever_the_user_says(server: Guarded) -> None:
    server.metadata = {"code_challenge_methods_supported": ["plain"]}
    error = await log_in(server, allowUnannouncedPkce=True, trustedOrigins=[server.base])
    assert "does not protect codes with PKCE (S256)" in error


OPTIONAL = ("registration_endpoint", "service_documentation", "op_policy_uri", "op_tos_uri", "revocation_endpoint")


@pytest.mark.parametrize("empty", ["", None, "no url", 7])
async def test_optional_members_of_metadata_that_are_not_valid_count_as_missing(server: Guarded, empty: Any) -> None:
    server.metadata = dict.fromkeys((*OPTIONAL, "introspection_endpoint"), empty) | {"scopes_supported": empty}
    server.metadata["registration_endpoint"] = f"{server.base}/register"
    server.nulls = True
    server.resource = {"jwks_uri": empty, "resource_documentation": empty, "scopes_supported": empty}
    assert await log_in(server) == ""
    server.metadata["registration_endpoint"] = empty
    assert await log_in(server) == ""


@pytest.mark.parametrize(
    "member",
    [
        {"expires_in": 3599.5},
        {"expires_in": "3600"},
        {"expires_in": "soon"},
        {"expires_in": ""},
        {"expires_in": 0},
        {"expires_in": -1},
        {"scope": ["read", "write"]},
        {"scope": None},
        {"scope": 7},
        {"token_type": None},
        {"token_type": ""},
        {"token_type": "bearer"},
        {"refresh_token": ""},
        {"refresh_token": None},
        {"refresh_token": 7},
    ],
    ids=str,
)
async def test_a_token_with_odd_members_is_used(server: Guarded, member: dict[str, Any]) -> None:
    server.granted = member
    assert await log_in(server) == ""
    assert len(server.forms("/token")) == 1


@pytest.mark.parametrize("member", [{"token_type": "DPoP"}, {"access_token": ""}, {"access_token": 7}], ids=str)
async def test_a_token_that_cannot_be_used_is_refused(server: Guarded, member: dict[str, Any]) -> None:
    server.granted = member
    assert "returns no usable token" in await log_in(server)


async def test_an_empty_refresh_token_keeps_the_old_one(server: Guarded) -> None:
    async with client(server, Person()) as dial:
        server.granted, server.keeps_refresh_tokens = {"refresh_token": ""}, True
        for _ in range(2):
            server.tokens.clear()
            assert (await dial.call("echo", {})).success
    [first, second] = [
        form["refresh_token"] for form in server.forms("/token") if form["grant_type"] == "refresh_token"
    ]
    assert first == second != ""


@pytest.mark.parametrize("status", [400, 401])
async def test_a_forgotten_client_is_registered_anew_when_its_code_is_refused(server: Guarded, status: int) -> None:
    logins, person = MemoryLogins(), Person()
    server.granted = {"refresh_token": None}
    async with client(server, Person(), logins):
        pass
    server.forget_clients()
    server.invalid_client_status = status
    async with client(server, person, logins) as dial:
        assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error
        assert (await dial.call("echo", {})).success
    assert [request.reason for request in person.asked] == ["", NEW_CLIENT]
    assert server.paths().count("/register") == 2


NEW_CLIENT = "the authorization server no longer knew this program, which is registered anew"


@pytest.mark.parametrize("status", [400, 401])
async def test_a_forgotten_client_is_registered_anew_when_its_refresh_is_refused(server: Guarded, status: int) -> None:
    logins, person = MemoryLogins(), Person()
    async with client(server, Person(), logins):
        pass
    server.forget_clients()
    server.invalid_client_status = status
    async with client(server, logins=logins) as dial:
        error = dial.servers["docs"].error or ""
        assert "it needs a login" in error
        assert "no longer knows this program" in error
    async with client(server, person, logins) as dial:
        assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error
    assert len(person.asked) == 1
    assert server.paths().count("/register") == 2


@pytest.mark.parametrize(
    "page",
    [
        (400, "<h1>Unknown client</h1>"),
        (401, '{"error": "invalid_client"}'),
        (403, "this client is not registered"),
        (302, "/error?error=invalid_client&state={state}"),
        (302, "{redirect_uri}?error=unauthorized_client&state={state}"),
    ],
    ids=str,
)
async def test_a_forgotten_client_is_registered_anew_before_the_user_sees_an_error_page(
    server: Guarded, page: tuple[int, str]
) -> None:
    logins, person = MemoryLogins(), Person()
    async with client(server, Person(), logins):
        pass
    server.forget_clients()
    server.refreshable.clear()
    server.unknown_client_page = page
    async with client(server, person, logins) as dial:
        assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error
    assert [request.reason for request in person.asked] == [NEW_CLIENT]
    assert server.paths().count("/register") == 2


async def test_a_client_is_registered_anew_once(server: Guarded) -> None:
    logins, person = MemoryLogins(), Person()
    async with client(server, Person(), logins):
        pass
    server.forget_clients()
    server.knows_nobody = True
    async with client(server, person, logins) as dial:
        assert "refuses the login: invalid_client" in (dial.servers["docs"].error or "")
    assert server.paths().count("/register") == 2


async def test_a_client_of_the_users_own_is_never_registered(server: Guarded) -> None:
    server.knows_nobody = True
    assert "refuses the login: invalid_client" in await log_in(server, clientId="me", clientSecret="my-secret")
    assert "/register" not in server.paths()


async def test_a_client_that_is_known_is_kept(server: Guarded) -> None:
    logins, person = MemoryLogins(), Person()
    async with client(server, Person(), logins):
        pass
    server.tokens.clear()
    server.refreshable.clear()
    async with client(server, person, logins):
        pass
    assert [request.reason for request in person.asked] == [""]
    assert server.paths().count("/register") == 1


async def test_the_redirect_uri_of_an_entry_is_used_or_refused(server: Guarded) -> None:
    assert await log_in(server, redirectUri=Person.redirect_uri) == ""
    error = await log_in(server, redirectUri="http://localhost:7777/oauth/callback")
    assert 'its "redirectUri" is http://localhost:7777/oauth/callback' in error
    assert "this program is redirected to http://127.0.0.1:3000/callback" in error

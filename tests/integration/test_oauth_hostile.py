"""Hostile authorization: misdirected or endless logins end with an error, and no other host gets a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dial_client import DialClient, ServerState
from tests.inner import Callbacks, LoginFailed, UrlPolicy, to_browser_url
from tests.support.oauth_logins import Person, redirect_user_data
from tests.support.servers.launch import raw
from tests.support.servers.oauth_server import RESOURCE, WELL_KNOWN, Guarded, guarded

pytestmark = pytest.mark.anyio

Odd = Callable[[Guarded, Guarded], None]


def elsewhere(server: Guarded, attacker: Guarded) -> None:
    server.metadata = {"token_endpoint": f"{attacker.base}/token"}


def without_pkce(server: Guarded, attacker: Guarded) -> None:
    server.metadata = {"code_challenge_methods_supported": None}


def plain_pkce(server: Guarded, attacker: Guarded) -> None:
    server.metadata = {"code_challenge_methods_supported": ["plain"]}


def other_issuer(server: Guarded, attacker: Guarded) -> None:
    server.metadata = {"issuer": attacker.base}


def without_issuer(server: Guarded, attacker: Guarded) -> None:
    server.metadata = {"authorization_response_iss_parameter_supported": True}
    server.redirected = {"iss": ""}


def without_metadata(server: Guarded, attacker: Guarded) -> None:
    server.answers = {WELL_KNOWN: (404, ""), RESOURCE: (404, "")}


def mixed_up(server: Guarded, attacker: Guarded) -> None:
    server.redirected = {"iss": attacker.base}


def other_state(server: Guarded, attacker: Guarded) -> None:
    server.redirected = {"state": "forged"}


def denies(server: Guarded, attacker: Guarded) -> None:
    server.redirected = {"error": "access_denied", "error_description": "\x1b[2Jgo away"}


def other_resource(server: Guarded, attacker: Guarded) -> None:
    server.resource = {"resource": attacker.url}


def cloud_metadata(server: Guarded, attacker: Guarded) -> None:
    server.challenge = 'resource_metadata="http://169.254.169.254/latest/meta-data/"'


def broken_address(server: Guarded, attacker: Guarded) -> None:
    server.challenge = 'resource_metadata="http://[::1/"'


def a_file(server: Guarded, attacker: Guarded) -> None:
    server.challenge = 'resource_metadata="file:///etc/passwd"'


def script(server: Guarded, attacker: Guarded) -> None:
    server.metadata = {"authorization_endpoint": "javascript:alert(1)"}


def redirects(server: Guarded, attacker: Guarded) -> None:
    server.answers[RESOURCE] = (307, f"{attacker.base}{RESOURCE}")
    server.answers[WELL_KNOWN] = (307, f"{attacker.base}{WELL_KNOWN}")


def huge(server: Guarded, attacker: Guarded) -> None:
    server.answers[WELL_KNOWN] = (200, " " * 2_000_000)


def babbles(server: Guarded, attacker: Guarded) -> None:
    server.answers["/token"] = (
        400,
        json.dumps({"error": "no", "error_description": "{body}" + "\x1b[31m" + "x" * 9000}),
    )


def gives_nothing(server: Guarded, attacker: Guarded) -> None:
    server.answers["/token"] = (200, '{"refresh_token": "refresh-secret"}')


def gives_a_header(server: Guarded, attacker: Guarded) -> None:
    server.answers["/token"] = (200, json.dumps({"access_token": "a\r\nX-Evil: 1", "token_type": "Bearer"}))


def never_content(server: Guarded, attacker: Guarded) -> None:
    server.answers["/token"] = (200, json.dumps({"access_token": "unknown", "token_type": "Bearer"}))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return redirect_user_data(tmp_path, monkeypatch)


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (elsewhere, "wants codes or tokens sent to another origin"),
        (without_pkce, "does not announce PKCE (S256); if you know"),
        (plain_pkce, "does not protect codes with PKCE"),
        (other_issuer, "issuer mismatch"),
        (without_issuer, "names no issuer (iss)"),
        (without_metadata, "does not announce PKCE (S256); if you know"),
        (mixed_up, "iss mismatch"),
        (other_state, "belongs to another login"),
        (denies, "the login was refused: access_denied: go away"),
        (other_resource, "does not match"),
        (cloud_metadata, "leads into a private network: http://169.254.169.254/latest/meta-data/"),
        (broken_address, "the login cannot be understood"),
        (a_file, "leads to an invalid web address"),
        (script, "does not say how to log in"),
        (redirects, "does not announce PKCE"),
        (huge, "answers with more than 1,048,576 bytes"),
        (babbles, "refuses the login: no"),
        (gives_nothing, "returns no usable token"),
        (gives_a_header, "returns no usable token"),
        (never_content, "the server rejects the token"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_misdirected_login_ends_with_an_error(server: Guarded, odd: Odd, words: str) -> None:
    person = Person()
    with guarded() as attacker:
        odd(server, attacker)
        async with DialClient(
            servers={"docs": {"url": server.url}, "good": raw("Server")}, callbacks=Callbacks(login=person)
        ) as dial:
            status = dial.servers["docs"]
            assert (await dial.call("echo", {"text": "hi"})).success
        assert attacker.seen == []
    assert status.state is ServerState.FAILED
    assert words in (status.error or "")
    assert "secret" not in (status.error or "")
    assert "\x1b" not in (status.error or "")
    assert len(person.asked) <= 1


async def test_the_number_of_requests_for_more_scopes_is_limited(server: Guarded) -> None:
    person = Person()
    server.endless = lambda count: f"more-{count}"
    async with DialClient(servers={"docs": {"url": server.url}}, callbacks=Callbacks(login=person)) as dial:
        errors = [(await dial.call("admin", {})).error or "" for _ in range(10)]
        assert all("requires more scopes again and again" in error for error in errors)
        assert (await dial.call("echo", {})).success
    assert len(person.asked) <= 6


async def test_the_user_can_trust_another_origin(server: Guarded) -> None:
    with guarded() as attacker:
        server.metadata = {"token_endpoint": f"{attacker.base}/token"}
        attacker.codes, attacker.tokens, attacker.clients = server.codes, server.tokens, server.clients
        entry = {"url": server.url, "oauth": {"trustedOrigins": [attacker.base]}}
        async with DialClient(servers={"docs": entry}, callbacks=Callbacks(login=Person())) as dial:
            assert dial.servers["docs"].state is ServerState.READY, dial.servers["docs"].error


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://10.0.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://0.0.0.0/",
        "https://100.64.0.1/",
        "http://8.8.8.8/",
        "ftp://8.8.8.8/",
        "https://user@8.8.8.8/",
        "https:///nowhere",
    ],
)
async def test_a_public_server_may_only_lead_to_public_https_addresses(url: str) -> None:
    with pytest.raises(LoginFailed):
        await UrlPolicy("https://1.1.1.1/mcp").resolve_allowed(url)


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("https://1.1.1.1/mcp", "https://8.8.8.8/"),
        ("http://10.0.0.1/mcp", "http://10.0.0.2/"),
        ("http://127.0.0.1/mcp", "http://127.0.0.1:99/"),
        ("http://127.0.0.1/mcp", "https://10.0.0.1/"),
    ],
)
async def test_a_server_may_lead_to_addresses_that_are_no_more_internal_than_its_own(server: str, url: str) -> None:
    assert await UrlPolicy(server).resolve_allowed(url)


async def test_the_user_can_trust_a_private_origin() -> None:
    assert await UrlPolicy("https://1.1.1.1/mcp", ("https://10.0.0.1",)).resolve_allowed("https://10.0.0.1/authorize")


def test_a_browser_url_has_no_shell_metacharacters() -> None:
    url = to_browser_url("https://a.example/x?a=$(touch /tmp/x)&b=`id`;\"'\\|<>\x1b[2J\n^")
    assert not set(url) & set("$()`;\"'\\|<>\x1b\n^ ")
    assert url.startswith("https://a.example/x?a=")


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://user:pass@a.example/", "data:x"])
def test_only_http_urls_are_opened_in_the_browser(url: str) -> None:
    with pytest.raises(LoginFailed):
        to_browser_url(url)

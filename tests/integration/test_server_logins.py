"""OAuth logins to servers through the HTTP API: start, redirect URI, and refused redirects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import pytest

from dial_client import ServerState
from tests.support.http_service import HttpService, serve
from tests.support.oauth_logins import find_stored_logins, redirect_user_data
from tests.support.servers.oauth_server import Guarded, guarded

pytestmark = [pytest.mark.anyio, pytest.mark.once, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

NAME = "<b>my docs"
CALLBACK = "/oauth/callback"


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return redirect_user_data(tmp_path, monkeypatch)


@asynccontextmanager
async def service_of(server: Guarded) -> AsyncIterator[tuple[HttpService, str]]:
    """Run the service, and yield it with the path of the server's login."""
    async with serve(["Hello."], {NAME: {"url": server.url}}) as service:
        with anyio.fail_after(30):
            await service.dial.ready()
        yield service, f"/servers/{NAME}/login"


def body(service: HttpService, path: str = CALLBACK) -> dict[str, str]:
    return {"redirect_uri": service.url + path}


def browser(service: HttpService, cookies: httpx2.Cookies | None = None) -> httpx2.AsyncClient:
    """Return an HTTP client without the token, with the cookies of the page."""
    cookies = service.http.cookies if cookies is None else cookies
    return httpx2.AsyncClient(trust_env=False, verify=False, follow_redirects=True, cookies=cookies, timeout=30)


async def test_a_login_on_the_page_makes_the_server_ready(server: Guarded, home: Path) -> None:
    async with service_of(server) as (service, path):
        [status] = (await service.json("GET", "/servers"))["servers"]
        assert (status["state"], status["needs_login"]) == ("failed", True)
        asked = await service.json("POST", path, json=body(service))
        assert asked["host"] == server.base
        async with browser(service) as tab:
            page = await tab.get(asked["url"])
        assert page.status_code == 200, page.text
        assert "You are logged in to &lt;b&gt;my docs" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert service.dial.servers[NAME].state is ServerState.READY
        [status] = (await service.json("GET", "/servers"))["servers"]
        assert status["needs_login"] is False
        assert (await service.json("POST", path, json=body(service)))["url"] is None
    assert len(find_stored_logins(home)) == 1


async def test_a_redirect_is_accepted_once_from_its_browser_and_for_its_login(server: Guarded) -> None:
    async with service_of(server) as (service, path):
        asked = await service.json("POST", path, json=body(service))
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as tab:
            redirect = (await tab.get(asked["url"])).headers["location"]
        query = parse_qs(urlsplit(redirect).query)
        forged = f"{service.url}{CALLBACK}?{urlencode({'code': 'x', 'state': 'y' * 43})}"
        async with browser(service, httpx2.Cookies()) as stranger:
            assert (await stranger.get(redirect)).status_code == 400
            assert (await stranger.get(f"{service.url}{CALLBACK}")).status_code == 400
        assert "/token" not in server.paths()
        async with browser(service) as tab:
            assert (await tab.get(forged)).status_code == 400
            assert (await tab.get(redirect)).status_code == 200
            assert "There is no such login" in (await tab.get(redirect)).text
        assert [form["code"] for form in server.forms("/token")] == query["code"]


@pytest.mark.parametrize(
    ("redirected", "problem"),
    [
        ({"error": "access_denied", "error_description": "<i>no"}, "the login was refused: access_denied: &lt;i&gt;no"),
        ({"iss": "http://127.0.0.1:1"}, "iss mismatch"),
    ],
)
async def test_a_failed_login_shows_the_reason(server: Guarded, redirected: dict[str, str], problem: str) -> None:
    server.redirected = redirected
    server.metadata = {"authorization_response_iss_parameter_supported": True}
    async with service_of(server) as (service, path):
        asked = await service.json("POST", path, json=body(service))
        async with browser(service) as tab:
            page = await tab.get(asked["url"])
        assert page.status_code == 400
        assert problem in page.text
        assert service.dial.servers[NAME].state is ServerState.FAILED


async def test_a_second_login_to_a_server_replaces_the_first_one(server: Guarded) -> None:
    async with service_of(server) as (service, path):
        first = await service.json("POST", path, json=body(service))
        second = await service.json("POST", path, json=body(service))
        async with browser(service) as tab:
            assert (await tab.get(first["url"])).status_code == 400
            assert (await tab.get(second["url"])).status_code == 200


async def test_logins_to_two_servers_run_concurrently_in_a_browser(server: Guarded) -> None:
    with guarded() as second:
        async with serve(["Hello."], {"one": {"url": server.url}, "two": {"url": second.url}}) as service:
            await service.dial.ready()
            paths = [f"/servers/{name}/login" for name in ("one", "two")]
            begun = [await service.json("POST", path, json=body(service)) for path in paths]
            async with browser(service) as tab:
                assert [(await tab.get(asked["url"])).status_code for asked in begun] == [200, 200]


async def test_only_the_callback_of_this_service_is_a_redirect_uri(server: Guarded) -> None:
    async with service_of(server) as (service, path):
        for uri in (
            "http://evil.example/oauth/callback",
            "http://[",
            f"javascript://{urlsplit(service.url).netloc}/oauth/callback",
            f"{service.url}/conversations",
            f"{service.url}{CALLBACK}?next=/",
            7,
        ):
            await service.json("POST", path, 400, json={"redirect_uri": uri})
        await service.json("POST", "/servers/nobody/login", 400, json=body(service))
        async with httpx2.AsyncClient(base_url=service.url, trust_env=False, verify=False, timeout=60) as stranger:
            assert (await stranger.post(path, json=body(service))).status_code == 401
    assert "/register" not in server.paths()

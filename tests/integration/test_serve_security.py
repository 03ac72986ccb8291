"""Access control of the service: host, origin, token, and limits of requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream

from tests.inner import AccessPolicy, StaticFiles, build_policy
from tests.inner import security_is_loopback as is_loopback
from tests.integration.test_conversation_routes import Maths, chat
from tests.support.http_service import TOKEN, HttpService, join_text, read_events, serve

pytestmark = pytest.mark.anyio

WAITS = {"tool_calls": [{"name": "wait", "arguments": {}}]}
GUARDED = [
    "/conversations",
    "/servers",
    "/tools",
    "/approvals",
    "/questions",
    "/v1/models",
    "/nothing",
    "/assets",
    "/prompts",
    "/resources",
    "/skills",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def open_stranger(server: HttpService) -> httpx2.AsyncClient:
    """Return a client without the token."""
    return httpx2.AsyncClient(base_url=server.url, timeout=60, trust_env=False, verify=False)


async def status(server: HttpService, path: str = "/servers", method: str = "GET", **headers: str) -> int:
    async with open_stranger(server) as stranger:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await stranger.request(method, path, headers=sent)).status_code


@pytest.mark.parametrize("path", GUARDED)
async def test_nothing_is_served_without_the_token(path: str) -> None:
    async with serve([]) as server:
        assert await status(server, path) == 401
        assert await status(server, path, "POST") == 401
        assert await status(server, path, Authorization=f"Bearer {TOKEN}") != 401


@pytest.mark.parametrize(
    "shown", ["", "Bearer", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"]
)
async def test_a_wrong_token_is_refused(shown: str) -> None:
    async with serve([]) as server, open_stranger(server) as stranger:
        answer = await stranger.get("/servers", headers={b"Authorization": shown.encode()})
    assert answer.status_code == 401
    has_token = shown.startswith("Bearer ")
    assert answer.headers["www-authenticate"] == ('Bearer error="invalid_token"' if has_token else "Bearer")
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert TOKEN not in answer.text


async def test_a_token_in_the_url_is_not_accepted() -> None:
    async with serve([]) as server:
        assert await status(server, f"/servers?token={TOKEN}") == 401


async def test_the_health_route_needs_no_token_and_reveals_nothing_else() -> None:
    async with serve([]) as server, open_stranger(server) as stranger:
        answer = await stranger.get("/healthz", headers={"Host": "10.0.0.7:9000", "Origin": "http://evil.test"})
    assert (answer.status_code, answer.text) == (200, '{"status":"ok"}')
    assert "server" not in answer.headers
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host",
    ["evil.test", "evil.test:80", "127.0.0.1.evil.test", "localhost@evil.test", "10.0.0.7", "[::2]", "[", "", "é"],
)
async def test_an_unknown_host_name_is_refused(host: str) -> None:
    async with serve([]) as server, open_stranger(server) as stranger:
        headers = {b"Host": host.encode(), b"Authorization": f"Bearer {TOKEN}".encode()}
        for path in ("/servers", "/"):
            assert (await stranger.get(path, headers=headers)).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:8000"])
async def test_loopback_host_names_are_accepted(host: str) -> None:
    async with serve([]) as server:
        assert await status(server, Host=host, Authorization=f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    ("bound", "allowed", "host", "right"),
    [
        ("0.0.0.0", (), "192.168.1.7", True),
        ("::", (), "[2001:db8::1]", True),
        ("0.0.0.0", (), "my-machine", False),
        ("0.0.0.0", ("My-Machine",), "my-machine:8000", True),
        ("192.168.1.7", (), "192.168.1.7", True),
        ("192.168.1.7", (), "192.168.1.8", False),
        ("my-machine", (), "MY-machine", True),
    ],
)
async def test_the_bound_address_decides_which_host_names_are_accepted(
    bound: str, allowed: tuple[str, ...], host: str, right: bool
) -> None:
    async with serve([], policy=build_policy(bound, None, allowed)) as server:
        assert await status(server, Host=host) == (200 if right else 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_requests_of_other_origins_are_refused(headers: dict[str, str]) -> None:
    async with serve([], policy=AccessPolicy(None)) as server:
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            assert await status(server, "/conversations", method, **headers) == 403


async def test_requests_of_the_own_page_are_accepted() -> None:
    async with serve([]) as server:
        own = {"Origin": server.url, "Sec_Fetch_Site": "same-origin", "Authorization": f"Bearer {TOKEN}"}
        assert await status(server, "/conversations", "POST", **own) == 201


async def test_a_link_on_another_site_may_lead_to_the_page() -> None:
    async with serve([]) as server:
        assert await status(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate") == 200
        assert await status(server, "/", Origin="http://evil.test") == 403


async def test_the_page_is_served_with_a_strict_policy_and_without_the_token() -> None:
    async with serve([]) as server, open_stranger(server) as stranger:
        index = await stranger.get("/")
        script = await stranger.get("/assets/app.js")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    for answer in (index, script):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert TOKEN not in answer.text


@pytest.mark.parametrize(
    "name",
    ["..%2fapp.py", "..%2f..%2fclient.py", "%2e%2e/door.py", "nothing.js", "index.html/..%2f..%2fapp.py", ".", "%00"],
)
async def test_only_files_of_the_page_are_served(name: str) -> None:
    async with serve([]) as server:
        assert await status(server, f"/assets/{name}") in (401, 404)


async def test_only_page_files_found_at_start_are_served(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / "notes.txt").write_text("not for the web")
    assert list(StaticFiles(tmp_path)._files) == ["index.html"]
    assert list(StaticFiles(tmp_path / "nowhere")._files) == []


def test_the_script_of_the_page_is_joined_again_only_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "app.js").write_text('import { word } from "./word.js";\nconsole.log(word);\n')
    (tmp_path / "word.js").write_text('export const word = "old";\n')
    files = StaticFiles(tmp_path)
    first = files._read("bundle.js")
    assert b'const word = "old";' in first.plain
    assert files._read("bundle.js") is first
    (tmp_path / "word.js").write_text('export const word = "new";\n')
    assert b'const word = "new";' in files._read("bundle.js").plain


async def test_a_page_of_an_earlier_release_gets_no_second_script_that_does_not_fit() -> None:
    async with serve([]) as server:
        for script, later in (("bundle.js", "later_bundle.js"), ("shared_bundle.js", "shared_later_bundle.js")):
            text = (await server.http.get(f"/assets/{script}")).text
            [address] = re.findall(rf'import\("\./({later}\?\w+)"\)', text)
            assert await status(server, f"/assets/{address}") == 200
            assert await status(server, f"/assets/{later}?{'0' * 32}") == 404
            assert await status(server, f"/assets/{later}") == 200, "for readers"


async def test_responses_are_not_cached() -> None:
    async with serve([]) as server:
        assert (await server.http.get("/servers")).headers["cache-control"] == "no-store"


async def test_a_too_large_body_is_not_read() -> None:
    async with serve([], policy=AccessPolicy(None, max_body=100)) as server:

        async def pieces() -> Any:
            for _ in range(3):
                yield b"x" * 50

        too_large = await server.json("POST", "/conversations", 413, content=b"x" * 101)
        found = await server.json("POST", "/conversations", 413, content=pieces())
        await server.json("POST", "/conversations", 201, content=b'{"title": "' + b"x" * 80 + b'"}')
    assert too_large["error"]["code"] == found["error"]["code"] == "request_too_large"


async def raw(server: HttpService, text: str) -> SocketStream:
    host, _, port = server.url.removeprefix("http://").partition(":")
    stream = await anyio.connect_tcp(host, int(port))
    await stream.send(text.encode())
    return stream


async def rest(stream: SocketStream) -> bytes:
    received = b""
    try:
        while True:
            received += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        await stream.aclose()
        return received


async def test_an_incomplete_body_times_out() -> None:
    async with serve([], policy=AccessPolicy(None, body_timeout=0.0)) as server:
        head = "POST /conversations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
        assert b"408 Request Timeout" in await rest(await raw(server, head))


@pytest.mark.parametrize(
    "head", ["", "GET / HTTP/1.1\r\nHo", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / H"]
)
async def test_an_incomplete_request_head_times_out(head: str) -> None:
    async with serve([], head_timeout=1 if "healthz" in head else 0) as server:
        received = await rest(await raw(server, head))
    assert b"200 OK" in received if "healthz" in head else received == b""


async def test_an_endless_request_head_is_refused() -> None:
    async with serve([]) as server:
        received = await rest(await raw(server, "GET / HTTP/1.1\r\nX: " + "x" * 100_000))
    assert b" 400 " in received


async def test_websocket_upgrades_are_refused() -> None:
    async with serve([], policy=AccessPolicy(None)) as server:
        head = "GET /servers HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
        assert b"101" not in (await rest(await raw(server, head))).splitlines()[0]


async def test_a_turn_above_the_limit_and_its_queue_is_refused_with_status_429() -> None:
    maths = Maths()
    async with serve(
        [WAITS, "Done.", "Waited.", "Hello."], {"maths": maths.server}, max_turns=1, allow=["*"]
    ) as server:
        first, waiting, second = [await server.conversation() for _ in range(3)]
        async with anyio.create_task_group() as group:
            group.start_soon(chat, server, first)
            await maths.gate.begun.wait()
            async with server.http.stream("POST", f"{waiting}/chat", json={"text": "Hi"}) as queued:
                answer = await server.http.post(f"{second}/chat", json={"text": "Hi"})
                asked = {"messages": [{"role": "user", "content": "Hi"}]}
                await server.json("POST", "/v1/chat/completions", 429, json=asked)
                maths.gate.open.set()
                assert join_text([event async for event in read_events(queued)]) == "Waited."
        assert (await chat(server, second))[-2].name == "done"
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["error"]["code"] == "too_many_turns"


async def test_an_internal_error_is_reported_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    async with serve([]) as server:
        server.store.list = None  # type: ignore[method-assign,assignment]  # causes an internal error
        answer = await server.json("GET", "/conversations", 500)
    assert answer["error"] == {
        "message": "an unexpected error occurred",
        "type": "server_error",
        "param": None,
        "code": "unexpected",
    }
    assert not re.search(r"Traceback|NoneType", caplog.text)


@pytest.mark.parametrize(
    ("host", "is_near"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_addresses_are_recognized(host: str, is_near: bool) -> None:
    assert is_loopback(host) is is_near


async def test_the_diagram_frame_has_no_origin_and_can_load_only_its_scripts() -> None:
    async with serve([]) as server, open_stranger(server) as stranger:
        frame = await stranger.get("/assets/diagram_frame.html")
        script = await stranger.get("/assets/diagram_frame.js", headers={"Origin": "null"})
    policy = frame.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'self';")
    assert "allow-same-origin" not in policy
    assert (script.status_code, script.headers["cross-origin-resource-policy"]) == (200, "cross-origin")
    async with serve([]) as server:
        for path in ("/assets/app.js", "/", "/conversations"):
            assert await status(server, path, Origin="null", Authorization=f"Bearer {TOKEN}") == 403


async def test_files_of_the_page_are_compressed_and_cached_by_etag() -> None:
    async with serve([]) as server, open_stranger(server) as stranger:
        first = await stranger.get("/assets/app.js", headers={"Accept-Encoding": "gzip"})
        plain = await stranger.get("/assets/app.js", headers={"Accept-Encoding": "identity"})
        again = await stranger.get("/assets/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (first.headers["content-encoding"], first.content) == ("gzip", plain.content)
    assert "content-encoding" not in plain.headers
    assert (again.status_code, again.content) == (304, b"")

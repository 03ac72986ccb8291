"""HTTP servers: responses, headers, errors and cancellation; an error affects only its own request."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.inner import (
    FailureTolerantClient,
    ServerError,
    ServerGone,
    ServerSettings,
    ServerState,
    Transport,
    streamable_http,
)
from tests.support.program import LONG
from tests.support.servers.launch import call_for_text, connection, connections, raw, state, until, web, web_server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def sdk_http() -> Iterator[str]:
    with web_server("sdk.py", "http") as address:
        yield f"{address}/mcp"


@pytest.fixture(scope="module")
def raw_http() -> Iterator[str]:
    with web_server("raw_http.py", "Handler") as address:
        yield f"{address}/mcp"


async def test_streamable_http_works_with_large_results(sdk_http: str) -> None:
    async with connection(web(sdk_http)) as server:
        assert server.status.protocol_version == "2026-07-28"
        assert await call_for_text(server, text="hello") == "hello"
        assert len(await call_for_text(server, "big", size=5_000_000)) == 5_000_000


async def test_json_responses_work_and_configured_headers_are_sent(raw_http: str) -> None:
    async with connection(web(raw_http, headers={"Authorization": "Bearer abc"})) as server:
        assert server.status.protocol_version == "2025-11-25"
        assert await call_for_text(server, "token") == "Bearer abc"
        assert len(await call_for_text(server, "huge")) == 5_000_000


@pytest.mark.parametrize("transport", [Transport.SSE, Transport.HTTP])
async def test_the_sse_transport_is_used_if_configured_or_detected(transport: Transport) -> None:
    with web_server("sdk.py", "sse") as address:
        async with connection(web(f"{address}/sse", transport=transport)) as server:
            assert state(server) is ServerState.READY, server.status.error
            assert await call_for_text(server, text="hello") == "hello"
            with pytest.raises(ServerGone), anyio.fail_after(LONG):
                await server.call("die", {})
            assert state(server) is ServerState.RESTARTING


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("401", "it needs a login: run `dial-chat servers login it`"),
        ("403", "HTTP 403 (Forbidden)"),
        ("404", "HTTP 404 (Not Found): there is nothing at this URL"),
        ("405", "HTTP 405 (Method Not Allowed)"),
        ("500", "HTTP 500 (Internal Server Error)"),
        ("799", "HTTP 799"),
        ("LoginPage", "the URL leads to a web page"),
        ("Cuts", "the connection broke: Server disconnected"),
    ],
)
async def test_a_url_without_a_server_is_an_error_with_the_reason(behaviour: str, error: str) -> None:
    with web_server("raw_http.py", behaviour) as address:
        async with connection(web(f"{address}/mcp?key=secret")) as server:
            assert state(server) is ServerState.FAILED
            assert error in (server.status.error or "")
            assert "secret" not in (server.status.error or "")


async def test_a_port_without_a_listener_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with connection(web(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")) as server:
            assert (server.status.error or "").startswith("the server cannot be reached")


@pytest.mark.parametrize("tool", ["cut", "half"])
async def test_a_network_fault_fails_only_its_call(raw_http: str, tool: str) -> None:
    async with connections({"web": web(raw_http), "local": raw()}) as servers:
        with pytest.raises(ServerGone, match="the connection broke"):
            await call_for_text(servers["web"], tool)
        assert await call_for_text(servers["web"], a=1) == '{"a": 1}'
        assert await call_for_text(servers["local"], a=2) == '{"a": 2}'


async def test_a_killed_http_server_does_not_affect_other_servers() -> None:
    with web_server("sdk.py", "http") as address:
        async with connections({"web": web(f"{address}/mcp"), "local": raw()}) as servers:
            with pytest.raises(ServerGone):
                await call_for_text(servers["web"], "die")
            with pytest.raises(ServerGone, match=r"cannot be reached|connection broke"):
                await call_for_text(servers["web"], text="hello")
            assert await call_for_text(servers["local"], a=2) == '{"a": 2}'


async def test_a_call_refused_by_every_session_fails_after_one_new_session(raw_http: str) -> None:
    async with connection(web(raw_http)) as server:
        with pytest.raises(ServerError, match="HTTP 404"):
            await call_for_text(server, "forget")
        assert (state(server), server.status.restarts) == (ServerState.READY, 1)
        assert await call_for_text(server, a=1) == '{"a": 1}'


async def test_a_message_beyond_the_limit_fails_its_call(raw_http: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connection(web(raw_http)) as server:
        monkeypatch.setattr(streamable_http, "MAX_MESSAGE_BYTES", 1_000_000)
        with pytest.raises(ServerError, match="more than 1,000,000 bytes"):
            await call_for_text(server, "huge")
        assert await call_for_text(server, a=1) == '{"a": 1}'


async def test_progress_and_cancellation_work_over_http() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def progress(now: float, total: float | None, message: str | None) -> None:
        heard.append((now, total, message))

    with web_server("sdk.py", "http") as address:
        async with connection(web(f"{address}/mcp")) as server:
            async with anyio.create_task_group() as group:
                group.start_soon(server.call, "slow", {}, progress)
                await until(lambda: heard)
                group.cancel_scope.cancel()
            assert heard == [(1.0, 4.0, "a quarter")]
            assert await call_for_text(server, "what_was_stopped") == "slow"


async def test_a_tool_announced_over_http_is_offered() -> None:
    with web_server("sdk.py", "http") as address:
        async with connection(web(f"{address}/mcp")) as server:
            before = server.revision
            await call_for_text(server, "grow")
            await until(lambda: server.revision > before)
            assert "grown" in server.status.tools


async def test_closing_does_not_wait_for_a_slow_session_termination() -> None:
    with web_server("raw_http.py", "SlowGoodbye") as address, anyio.fail_after(LONG):
        async with connection(web(f"{address}/mcp")) as server:
            assert state(server) is ServerState.READY


async def test_the_error_for_a_rejected_token_names_the_headers() -> None:
    with web_server("raw_http.py", "401") as address:
        async with connection(web(f"{address}/mcp", headers={"authorization": "Bearer abc"})) as server:
            assert "is there a valid token in `headers`?" in (server.status.error or "")
            assert "abc" not in (server.status.error or "")


def test_certificates_are_read_once_in_a_process_and_only_for_https(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reads: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *given: reads.append(given))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))

    def open_client(scheme: str) -> None:
        FailureTolerantClient(ServerSettings("it", Transport.HTTP, url=f"{scheme}://a.test/mcp"), None)

    open_client("http")
    assert reads == []
    open_client("https")
    open_client("https")
    assert len(reads) == 1

"""Redirects of HTTP servers: followed within the origin; no message or token is sent to another origin."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.inner import ServerState, Transport
from tests.support.servers.launch import call_for_text, connection, state, web, web_server

pytestmark = pytest.mark.anyio

TOKEN = {"Authorization": "Bearer planted-token"}


# The SDK leaves response streams of sessions to the garbage collector, and trio warns about that (mcp 2.3).
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("answers_at", ["/json", "/stream"])
@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed(status: int, answers_at: str, tmp_path: Path) -> None:
    with web_server("raw_http.py", "Moves", "0", str(tmp_path / "seen")) as address:
        async with connection(web(f"{address}/{status}?to={answers_at}", headers=TOKEN)) as server:
            assert state(server) is ServerState.READY, server.status.error
            assert await call_for_text(server, a=1) == '{"a": 1}'
    seen = (tmp_path / "seen").read_text().splitlines()
    assert set(seen) == {f"/{status} Bearer planted-token", f"{answers_at} Bearer planted-token"}


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_to_another_origin_is_refused_and_gets_no_token(status: int, tmp_path: Path) -> None:
    with (
        web_server("raw_http.py", "Moves", "0", str(tmp_path / "seen")) as target,
        web_server("raw_http.py", "Moves") as address,
    ):
        async with connection(web(f"{address}/{status}?to={quote(f'{target}/json')}", headers=TOKEN)) as server:
            assert state(server) is ServerState.FAILED
            assert "not followed" in (server.status.error or "")
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_changes_the_method_is_refused(status: int, tmp_path: Path) -> None:
    with web_server("raw_http.py", "Moves", "0", str(tmp_path / "seen")) as address:
        async with connection(web(f"{address}/{status}?to=/json", headers=TOKEN)) as server:
            assert state(server) is ServerState.FAILED
            assert "not followed" in (server.status.error or "")
    assert {line.split()[0] for line in (tmp_path / "seen").read_text().splitlines()} == {f"/{status}"}


async def test_a_redirecting_sse_server_fails_with_the_reason() -> None:
    with web_server("raw_http.py", "OldMoves") as address:
        async with connection(web(f"{address}/sse", transport=Transport.SSE, startup_timeout=30)) as server:
            assert "the server answered HTTP 302 (Found)" in (server.status.error or "")

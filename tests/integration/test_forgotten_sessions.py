"""HTTP servers that restart or are unreachable for a while: new sessions are opened, and no call runs twice."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.inner import (
    BackgroundTasks,
    ClientCapabilities,
    Connection,
    Protocol,
    ServerGone,
    ServerState,
    restart_policy,
)
from tests.support.servers.launch import call_for_text, state, until, web, web_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the pauses between restarts to a hundredth of a second."""
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(restart_policy, "MAX_PAUSE", 0.01)


async def test_a_server_without_sessions_may_be_restarted_between_two_calls() -> None:
    assert await restarts_between_two_calls(Protocol.MODERN) == 0


# The SDK leaves response streams of sessions to the garbage collector, and trio warns about that (mcp 2.3).
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_server_with_sessions_may_be_restarted_between_two_calls() -> None:
    assert await restarts_between_two_calls(Protocol.LEGACY) == 1


async def restarts_between_two_calls(protocol: Protocol) -> int:
    with web_server("sdk.py", "http") as address:
        port = address.rpartition(":")[2]
        background_tasks = await BackgroundTasks.open()
        server = Connection("it", web(f"{address}/mcp", protocol=protocol), ClientCapabilities())
        server.start(background_tasks)
        await server.wait_settled()
        assert await call_for_text(server, text="one") == "one"
    with web_server("sdk.py", "http", port):
        assert await call_for_text(server, text="two") == "two"
        assert state(server) is ServerState.READY
        server.stop()
        await server.wait_ended()
    await background_tasks.aclose()
    return server.status.restarts


@pytest.mark.parametrize("behaviour", ["Sessions", "OlderSessions"])
async def test_a_call_with_an_expired_session_runs_once(tmp_path: Path, behaviour: str) -> None:
    calls = tmp_path / "calls"
    with web_server("raw_http.py", behaviour, "0", str(calls)) as address:
        port = address.rpartition(":")[2]
        background_tasks = await BackgroundTasks.open()
        server = Connection("it", web(f"{address}/mcp"), ClientCapabilities())
        server.start(background_tasks)
        await server.wait_settled()
        assert await call_for_text(server, a=1) == '{"a": 1}'
    with web_server("raw_http.py", behaviour, port, str(calls)):
        results: list[str] = []

        async def call(number: int) -> None:
            results.append(await call_for_text(server, a=number))

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(call, number)
        assert sorted(results) == [f'{{"a": {number}}}' for number in range(5)]
        assert server.status.restarts == 1
        assert (server.status.error or "").startswith("the server no longer knows the session")
        server.stop()
        await server.wait_ended()
    await background_tasks.aclose()
    assert calls.read_text().count("echo") == 6


@pytest.mark.usefixtures("hurried")
async def test_a_call_waits_for_an_unreachable_http_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_policy, "MAX_DEATHS", 1_000_000)
    results: list[str] = []
    with web_server("raw_http.py", "Sessions", "0", str(tmp_path / "calls")) as address:
        port = address.rpartition(":")[2]
        background_tasks = await BackgroundTasks.open()
        server = Connection("it", web(f"{address}/mcp"), ClientCapabilities())
        server.start(background_tasks)
        await server.wait_settled()

    async def call() -> None:
        results.append(await call_for_text(server, a=1))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await until(lambda: server.status.restarts > 3)
        assert (state(server), bool(server.status.tools)) == (ServerState.RESTARTING, True)
        with web_server("raw_http.py", "Sessions", port, str(tmp_path / "calls")):
            await until(lambda: results)
            server.stop()
            await server.wait_ended()
    await background_tasks.aclose()
    assert results == ['{"a": 1}']


@pytest.mark.usefixtures("hurried")
async def test_a_failed_http_server_reconnects_and_offers_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_policy, "UNREACHABLE_PAUSES", (0.01,) * 1_000)
    with web_server("raw_http.py", "Sessions", "0", str(tmp_path / "calls")) as address:
        port = address.rpartition(":")[2]
        background_tasks = await BackgroundTasks.open()
        server = Connection("it", web(f"{address}/mcp"), ClientCapabilities())
        server.start(background_tasks)
        await server.wait_settled()
        assert state(server) is ServerState.READY
    with pytest.raises(ServerGone, match="cannot be reached"):
        await call_for_text(server)
    await until(lambda: state(server) is ServerState.FAILED)
    assert server.tools == ()
    with web_server("raw_http.py", "Sessions", port, str(tmp_path / "calls")):
        await until(lambda: state(server) is ServerState.READY)
        assert await call_for_text(server, a=1) == '{"a": 1}'
        server.stop()
        await server.wait_ended()
    await background_tasks.aclose()

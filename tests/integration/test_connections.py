"""Server connections: a failing or misbehaving server affects neither other servers nor the caller."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from tests.inner import (
    BackgroundTasks,
    ClientCapabilities,
    Connection,
    Protocol,
    ServerError,
    ServerGone,
    ServerManager,
    ServerState,
    ServerStatus,
    Target,
)
from tests.support.program import LONG
from tests.support.servers.launch import (
    call_for_text,
    connection,
    connections,
    python_script,
    raw,
    read_requests,
    script,
    state,
    until,
)

pytestmark = pytest.mark.anyio


def in_process() -> MCPServer:
    server = MCPServer("here", instructions="Be kind.", version="3")

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.tool()
    async def grow(context: Context) -> str:
        server.add_tool(lambda: "new", name="grown", description="It is new.")
        await context.notify_tools_changed()
        return "done"

    @server.tool()
    async def hang() -> None:
        await anyio.sleep_forever()

    return server


# Starting


def test_importing_the_server_manager_loads_no_sdk() -> None:
    code = (
        "import sys; import dial_client.servers.server_manager\n"
        "print({'mcp', 'mcp_types', 'pydantic', 'httpx2'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LONG)
    assert run.stdout == "set()\n"


async def test_all_servers_start_concurrently(tmp_path: Path) -> None:
    entry = raw("WaitsForOthers", "--folder", tmp_path, "--count", 3)
    async with connections({"a": entry, "b": entry, "c": entry}) as servers:
        assert [state(server) for server in servers.values()] == [ServerState.READY] * 3


async def test_the_status_of_a_ready_server_is_complete() -> None:
    async with connection(raw()) as server:
        assert server.status == ServerStatus(
            name="it",
            state=ServerState.READY,
            protocol_version="2025-11-25",
            tools=("echo",),
            instructions="Hi.",
            server_name="raw",
            server_version="1",
        )
        assert server.status.to_dict()["state"] == "ready"
        assert [tool.description for tool in server.tools] == ["Says it again."]
    assert (server.status.tools, server.tools) == ((), ())


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (raw("ExitsAtOnce"), "the server ended with exit code 3; it last said: the database is missing"),
        (raw(command="no-such-server"), "the command 'no-such-server' was not found"),
        (raw(cwd="/no/such"), "the folder '/no/such' (cwd) does not exist"),
        (raw(command="true", args=()), "the server ended with exit code 0 and said nothing"),
        (raw(command="cat", args=()), "the server answered with an error: Method not found"),
        (raw(command="echo", args=("hello",)), "the server ended with exit code 0 and said nothing"),
        (script("missing.py"), "can't open file"),
        (raw("Hangs", startup_timeout=5), "not ready within 5 seconds; it last said: still thinking"),
    ],
)
async def test_a_server_that_does_not_start_has_an_error_and_other_servers_work(entry: Target, error: str) -> None:
    async with connections({"bad": entry, "good": raw()}) as servers:
        assert error in (servers["bad"].status.error or "")
        assert state(servers["bad"]) is ServerState.FAILED
        assert await call_for_text(servers["good"], a=1) == '{"a": 1}'
        with pytest.raises(ServerGone) as caught:
            await servers["bad"].call("echo", {})
        assert error in caught.value.problem


async def test_a_failure_is_reported_before_a_server_that_ignores_signals_has_ended() -> None:
    states: list[ServerState] = []
    background_tasks = await BackgroundTasks.open()
    server = Connection("it", raw("Refuses"), ClientCapabilities(lambda _, status: states.append(status.state)))
    server.start(background_tasks)
    with anyio.fail_after(LONG):
        await server.wait_settled()
    assert states == [ServerState.FAILED]
    with anyio.move_on_after(0) as moment:
        await server.wait_ended()
    assert moment.cancelled_caught, "it is still running"
    server.stop()
    await server.wait_ended()
    await background_tasks.aclose()


@pytest.mark.once
@pytest.mark.skipif(shutil.which("git") is None, reason="its server needs git")
async def test_published_git_and_time_servers_work(tmp_path: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(tmp_path)])
    programs = Path(sys.executable).parent  # not the forks that come first in PATH
    git = raw(command=str(programs / "mcp-server-git"), args=("--repository", str(tmp_path)))
    clock = raw(command=str(programs / "mcp-server-time"), args=("--local-timezone", "UTC"))
    async with connections({"git": git, "clock": clock}) as servers:
        assert "No commits yet" in await call_for_text(servers["git"], "git_status", repo_path=str(tmp_path))
        assert '"timezone": "UTC"' in await call_for_text(servers["clock"], "get_current_time", timezone="UTC")


async def test_a_disabled_server_is_never_started() -> None:
    async with connection(raw(command="no-such-server", enabled=False)) as server:
        assert state(server) is ServerState.DISABLED
        with pytest.raises(ServerGone, match="it is disabled"):
            await server.call("echo", {})


@pytest.mark.parametrize(
    ("protocol", "era"),
    [(Protocol.AUTO, "2026-07-28"), (Protocol.MODERN, "2026-07-28"), (Protocol.LEGACY, "2025-11-25")],
)
async def test_the_protocol_version_is_the_newest_unless_a_version_is_requested(protocol: Protocol, era: str) -> None:
    async with connection(python_script("sdk.py", "stdio", protocol=protocol)) as server:
        assert server.status.protocol_version == era
        assert await call_for_text(server, text="hello") == "hello"


async def test_a_server_without_a_handshake_may_omit_fields_with_defaults() -> None:
    async with connection(raw(protocol=Protocol.MODERN)) as server:
        assert server.status.tools == ("echo",)
        assert await call_for_text(server, a=1) == '{"a": 1}'


async def test_a_server_in_this_process_needs_no_settings() -> None:
    async with connection(in_process()) as server:
        assert (server.settings, server.status.protocol_version) == (None, "2026-07-28")
        assert (server.status.server_name, server.status.instructions) == ("here", "Be kind.")
        assert await call_for_text(server, text="hello") == "hello"


async def test_every_change_of_state_is_reported() -> None:
    changes: list[tuple[str, ServerState]] = []
    async with connections({"a": raw(), "b": raw("ExitsAtOnce")}, lambda name, s: changes.append((name, s.state))):
        pass
    assert sorted(changes) == [("a", ServerState.READY), ("a", ServerState.STOPPED), ("b", ServerState.FAILED)]


async def test_logs_of_the_sdk_are_suppressed(caplog: pytest.LogCaptureFixture) -> None:
    async with connections({"a": raw("Chatty"), "b": raw("DiesInCall"), "c": raw("BadTools")}) as servers:
        with pytest.raises(ServerGone):
            await call_for_text(servers["b"])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    logging.getLogger("client").warning("of the user's own")
    assert caplog.messages[-1] == "of the user's own"


# Stopping


async def test_servers_can_be_closed_in_a_different_task_than_they_were_started_in() -> None:
    background_tasks = await BackgroundTasks.open()
    servers = ServerManager({"child": raw(), "here": in_process()})
    async with anyio.create_task_group() as group:
        group.start_soon(_start, servers, background_tasks)
    async with anyio.create_task_group() as group:
        group.start_soon(servers.aclose)
    async with anyio.create_task_group() as group:
        group.start_soon(background_tasks.aclose)
    assert [state(server) for server in servers.values()] == [ServerState.STOPPED] * 2


async def _start(servers: ServerManager, background_tasks: BackgroundTasks) -> None:
    servers.start(background_tasks)
    await servers.wait_settled()


@pytest.mark.parametrize("target", [raw("Hangs"), raw("Server"), in_process()], ids=["starting", "ready", "here"])
async def test_closing_immediately_and_twice_is_allowed(target: Target) -> None:
    background_tasks = await BackgroundTasks.open()
    servers = ServerManager({"it": target})
    servers.start(background_tasks)
    await anyio.wait_all_tasks_blocked()
    await servers.aclose()
    await servers.aclose()
    await background_tasks.aclose()
    assert state(servers["it"]) is ServerState.STOPPED


async def test_closing_a_server_that_was_never_started_does_not_wait() -> None:
    with anyio.fail_after(LONG):
        await ServerManager({"it": raw()}).aclose()


@pytest.mark.parametrize("how", ["stopped", "background tasks closed"])
@pytest.mark.parametrize("open_target", [lambda: python_script("sdk.py", "stdio"), in_process], ids=["child", "here"])
async def test_a_running_call_fails_when_its_server_ends(open_target: Callable[[], Target], how: str) -> None:
    target = open_target()
    failed: list[ServerGone] = []
    background_tasks = await BackgroundTasks.open()
    server = Connection("it", target, ClientCapabilities())
    server.start(background_tasks)

    async def calls() -> None:
        with pytest.raises(ServerGone, match="it was stopped") as caught:
            await server.call("slow" if server.settings else "hang", {})
        failed.append(caught.value)

    with anyio.fail_after(LONG):
        await server.wait_settled()
        async with anyio.create_task_group() as group:
            group.start_soon(calls)
            await anyio.wait_all_tasks_blocked()
            if how == "stopped":
                server.stop()
            else:
                await background_tasks.aclose()
        await server.wait_ended()
        await background_tasks.aclose()
    assert (len(failed), state(server)) == (1, ServerState.STOPPED)


# Calling


async def test_calls_from_several_tasks_run_concurrently() -> None:
    results: list[str] = []

    async def calls(server: Connection, number: int) -> None:
        results.append(await call_for_text(server, n=number))

    async with connection(raw()) as server, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(calls, server, number)
    assert sorted(results) == sorted(f'{{"n": {number}}}' for number in range(20))


async def test_a_call_whose_server_exits_fails_with_the_servers_last_output() -> None:
    async with connections({"mortal": raw("DiesInCall"), "other": raw()}) as servers:
        for _ in range(2):
            with pytest.raises(ServerGone, match=r"lost.*: the server ended by SIGKILL; it last said: out of cheese"):
                await call_for_text(servers["mortal"])
            assert "out of cheese" in (servers["mortal"].status.error or "")
            assert await call_for_text(servers["other"], a=1) == '{"a": 1}'


async def test_cancelling_a_call_tells_the_server_and_keeps_the_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    heard = anyio.Event()

    async def progress(now: float, total: float | None, message: str | None) -> None:
        assert (now, total, message) == (1, 4, "a quarter")
        heard.set()

    async with connection(raw("NeverAnswers", "--log", log)) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(server.call, "echo", {}, progress)
            await heard.wait()
            group.cancel_scope.cancel()
        await until(lambda: read_requests(log)[-1] == "notifications/cancelled")
        assert state(server) is ServerState.READY


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        ('{"id": ID, "error": {"code": -32602, "message": "No such thing"}}', r"No such thing \(-32602\)"),
        ('{"jsonrpc": "2.0", "id": ID, "error": "no"}', "not valid JSON-RPC: no"),
        ('{"jsonrpc": "2.0", "id": ID, "result": 5}', "not valid JSON-RPC"),
        ('{"id": ID, "result": {"content": [], "isError": "?"}}', "not valid MCP: isError"),
        ('{"id": ID, "error": {"code": -32000, "message": "Connection closed"}}', "closed"),
    ],
)
async def test_an_invalid_response_is_an_error_with_a_description(say: str, problem: str) -> None:
    async with connection(raw("BadAnswers")) as server:
        with pytest.raises(ServerError, match=problem):
            await call_for_text(server, say=say)
        assert state(server) is ServerState.READY


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('{"content": [{"type": "video", "data": "abc"}]}', '{"type": "video", "data": "abc"}'),
        ('{"content": [{"type": "text", "text": 1}, {"type": "text", "text": "b"}]}', '{"type": "text", "text": 1}b'),
        ('{"structuredContent": [1, 2]}', "[1, 2]"),
        ('{"content": "plain"}', "plain"),
        ("{}", ""),
    ],
)
async def test_an_invalid_result_is_repaired(result: str, text: str) -> None:
    async with connection(raw("BadAnswers")) as server:
        assert await call_for_text(server, say=f'{{"jsonrpc": "2.0", "id": ID, "result": {result}}}') == text


async def test_a_result_without_its_declared_structured_content_is_returned_unchanged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connection(raw("BrokenOutput", "--log", log)) as server:
        assert await call_for_text(server, a=1) == '{"a": 1}'
    assert read_requests(log).count("tools/list") == 1, "nothing is listed again to judge it"


async def test_a_tool_that_the_server_does_not_list_is_not_called(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connection(raw("Server", "--log", log)) as server:
        with pytest.raises(ServerError, match="it has no tool 'other'"):
            await server.call("other", {})
    assert read_requests(log).count("tools/list") == 1
    assert "tools/call" not in read_requests(log)


# Listing


@pytest.mark.parametrize(
    ("behaviour", "tools", "note"),
    [
        ("Pages", ("tool0", "tool1", "tool2"), ""),
        ("Circle", ("echo",), "its list of tools has no end; 2 pages were read"),
        ("BadTools", ("no_schema", "empty", "echo", "odd"), "a malformed tool is left out: text"),
        ("NoTools", (), ""),
    ],
)
async def test_malformed_and_paged_tool_lists_are_read(behaviour: str, tools: tuple[str, ...], note: str) -> None:
    async with connection(raw(behaviour)) as server:
        assert server.status.tools == tools
        assert note in "\n".join(server.status.notes)
        if tools:
            assert (await server.call(tools[0], {})).is_error is False


@pytest.mark.parametrize(
    ("target", "tool", "era"),
    [
        (lambda: raw("Grows"), "echo", "2025-11-25"),
        (lambda: python_script("sdk.py", "stdio"), "grow", "2026-07-28"),
        (in_process, "grow", "2026-07-28"),
    ],
    ids=["legacy", "modern", "here"],
)
async def test_a_tool_announced_during_a_call_is_offered_after_the_call(
    target: Callable[[], Any], tool: str, era: str
) -> None:
    async with connection(target()) as server:
        before = (server.revision, len(server.tools))
        assert server.status.protocol_version == era
        await server.call(tool, {})
        await until(lambda: server.revision > before[0])
        assert len(server.tools) == before[1] + 1


async def test_waiting_for_tools_returns_the_announced_tools() -> None:
    async with connections({"it": raw("Grows")}) as servers:
        await call_for_text(servers["it"])
        await anyio.wait_all_tasks_blocked()
        await servers.wait_for_tools()
        assert servers["it"].status.tools == ("echo", "tool1")


async def test_tools_of_a_server_that_announces_changes_endlessly_are_listed_less_and_less_often(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    async with connection(raw("Announces", "--log", log)) as server:
        revision = server.revision
        await until(lambda: read_requests(log).count("tools/list") > 3)
        assert server.revision == revision

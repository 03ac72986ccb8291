"""Servers that exit are restarted, and only the call that was running fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import dial_client.servers.connection
import dial_client.servers.server_manager
from dial_client import DialClient, Message
from dial_client.testing import ScriptedProvider
from tests.inner import (
    MAX_DEATHS,
    BackgroundTasks,
    ClientCapabilities,
    Connection,
    Exit,
    ExitKind,
    ServerError,
    ServerGone,
    ServerManager,
    ServerState,
    ServerStatus,
    restart_policy,
)
from tests.support.program import LONG
from tests.support.servers.launch import (
    call_for_text,
    connection,
    connections,
    is_alive,
    raw,
    read_requests,
    state,
    until,
)

pytestmark = pytest.mark.anyio

DIED = Exit(ExitKind.DIED, "it died")
GONE = Exit(ExitKind.UNREACHABLE, "nobody is there")
kill_9 = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


class StatusLog(list[ServerStatus]):
    """A list of all reported server statuses, with a method that waits for a state."""

    def __call__(self, _: str, status: ServerStatus) -> None:
        self.append(status)

    @property
    def states(self) -> list[ServerState]:
        return [status.state for status in self]

    async def of(self, state: ServerState, times: int = 1) -> None:
        await until(lambda: self.states.count(state) >= times)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the pauses between restarts to a hundredth of a second."""
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(restart_policy, "MAX_PAUSE", 0.01)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every pause after the first longer than any test."""
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE", 100 * LONG)
    monkeypatch.setattr(restart_policy, "MAX_PAUSE", 100 * LONG)


def count_starts(folder: Path) -> int:
    return len(list(folder.iterdir()))


async def pid_of(server: Connection) -> int:
    return int(json.loads(await call_for_text(server))["pid"])


# Calls


@kill_9
async def test_an_exit_fails_the_running_call_and_no_later_call(tmp_path: Path) -> None:
    statuses = StatusLog()
    async with connections({"mortal": raw("DiesOnce", "--folder", tmp_path), "other": raw()}, statuses) as servers:
        mortal = servers["mortal"]
        with pytest.raises(ServerGone, match=r"the call was lost, and may have had its effect: .* by SIGKILL"):
            await call_for_text(mortal, a=1)
        assert await call_for_text(mortal, a=2) == '{"a": 2}'
        assert await call_for_text(servers["other"], a=3) == '{"a": 3}'
        assert (state(mortal), mortal.status.restarts) == (ServerState.READY, 1)
        assert mortal.status.error == "the server ended by SIGKILL; it last said: out of cheese"
    mine = [status.state for status in statuses if status.name == "mortal"]
    assert mine == [ServerState.READY, ServerState.RESTARTING, ServerState.READY, ServerState.STOPPED]


@kill_9
async def test_a_server_that_is_killed_between_calls_is_restarted_at_once() -> None:
    statuses = StatusLog()
    async with connections({"it": raw("ShowsItself")}, statuses) as servers:
        server, revision = servers["it"], servers["it"].revision
        pid = await pid_of(server)
        os.kill(pid, signal.SIGKILL)
        await statuses.of(ServerState.RESTARTING)
        assert server.status.tools == ("echo",)
        assert await pid_of(server) != pid
        assert {status.tools for status in statuses} == {("echo",)}
        assert server.revision == revision, "the same tools are the same prompt"


@kill_9
@pytest.mark.parametrize(
    ("hints", "trusted", "is_repeated"),
    [
        ('{"readOnlyHint": true}', True, True),
        ('{"readOnlyHint": false, "idempotentHint": true}', True, True),
        ('{"readOnlyHint": true}', False, False),
        ('{"idempotentHint": true}', False, False),
        ("{}", True, False),
    ],
)
async def test_a_lost_call_is_repeated_only_if_the_tool_is_idempotent_and_trusted(
    tmp_path: Path, hints: str, trusted: bool, is_repeated: bool
) -> None:
    (tmp_path / "count_starts").mkdir()
    options = ("--folder", tmp_path / "count_starts", "--hints", hints, "--log", tmp_path / "log")
    async with connection(raw("DiesOnce", *options, trusted=trusted)) as server:
        if is_repeated:
            assert await call_for_text(server, a=1) == '{"a": 1}'
        else:
            with pytest.raises(ServerGone, match="out of cheese"):
                await call_for_text(server, a=1)
            assert await call_for_text(server, a=2) == '{"a": 2}'
    assert read_requests(tmp_path / "log").count("tools/call") == 2


@kill_9
async def test_a_call_that_makes_the_server_exit_is_repeated_once(tmp_path: Path) -> None:
    options = ("--hints", '{"readOnlyHint": true}', "--log", tmp_path / "log")
    async with connection(raw("DiesInCall", *options, trusted=True)) as server:
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        assert read_requests(tmp_path / "log").count("tools/call") == 2


@kill_9
async def test_a_tool_that_was_removed_by_the_restart_is_not_called(tmp_path: Path) -> None:
    statuses = StatusLog()
    async with connections({"it": raw("ComesBackOther", "--folder", tmp_path)}, statuses) as servers:
        with pytest.raises(ServerGone):
            await call_for_text(servers["it"])
        with pytest.raises(ServerError, match="it has no tool 'echo' any more"):
            await call_for_text(servers["it"])
        assert await call_for_text(servers["it"], "tool2", a=1) == '{"a": 1}'


@kill_9
async def test_a_restarted_legacy_server_is_not_probed_again(tmp_path: Path) -> None:
    (tmp_path / "count_starts").mkdir()
    async with connection(raw("DiesOnce", "--folder", tmp_path / "count_starts", "--log", tmp_path / "log")) as server:
        with pytest.raises(ServerGone):
            await call_for_text(server)
        assert await call_for_text(server, a=1) == '{"a": 1}'
    methods = read_requests(tmp_path / "log")
    assert (methods.count("server/discover"), methods.count("initialize")) == (1, 2)


@kill_9
async def test_tools_of_a_restarted_server_are_offered_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dial_client.servers.connection, dial_client.servers.server_manager):
        monkeypatch.setattr(module, "FRESH_SECONDS", LONG)
    args = ["-W", "ignore", str(Path(__file__).parents[1] / "support" / "servers" / "raw.py"), "ComesBackOther"]
    servers = {"it": {"command": sys.executable, "args": [*args, "--folder", str(tmp_path)]}}
    call = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    again = {"tool_calls": [{"name": "tool2", "arguments": {"a": 1}}]}
    async with DialClient(ScriptedProvider([call, again, "Done."]), servers=servers) as dial:
        turn = await dial.run([Message.user("Go on.")])
        assert dial.servers["it"].restarts == 1
    assert [note for note in turn.notes if "'it' died and is restarted: the server ended by SIGKILL" in note]
    first, second = (done.result for done in turn.tool_calls)
    assert "the call was lost" in (first.error or "")
    assert (second.success, second.content) == (True, '{"a": 1}')


# End of restarts


async def test_a_server_that_always_exits_is_stopped_and_other_servers_work(hurried: None, tmp_path: Path) -> None:
    statuses = StatusLog()
    async with connections({"bad": raw("DiesWhenReady", "--folder", tmp_path), "good": raw()}, statuses) as servers:
        while state(servers["bad"]) is not ServerState.FAILED:
            assert await call_for_text(servers["good"], a=1) == '{"a": 1}'
        error = servers["bad"].status.error or ""
        assert "given up after 5 deaths within a minute: the server ended with exit code 4" in error
        assert "it last said: is full (before that: Traceback: / the disk)" in error
        assert servers["bad"].tools == ()
        assert servers["bad"].status.restarts == MAX_DEATHS - 1
        with pytest.raises(ServerGone, match="given up after 5 deaths"):
            await call_for_text(servers["bad"])
        assert await call_for_text(servers["good"], a=1) == '{"a": 1}'
    assert count_starts(tmp_path) == MAX_DEATHS


@kill_9
async def test_a_server_that_cannot_be_restarted_fails_with_the_reason(hurried: None, tmp_path: Path) -> None:
    async with connection(raw("LivesOnce", "--folder", tmp_path)) as server:
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        with pytest.raises(ServerGone, match=r"given up after 5 deaths .* it last said: the port is taken"):
            await call_for_text(server)
    assert count_starts(tmp_path) == MAX_DEATHS


@kill_9
async def test_a_restart_with_a_missing_command_is_not_retried(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    async with connection(raw("DiesInCall", command=str(program))) as server:
        shutil.move(program, tmp_path / "elsewhere")
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        await until(lambda: state(server) is ServerState.FAILED)
        assert "there is no file" in (server.status.error or "")
        assert (server.status.restarts, server.tools) == (1, ())


async def test_an_unexpected_error_of_a_start_is_a_failure_with_the_reason() -> None:
    numbers: Any = (5,)
    async with connection(raw()) as healthy, connection(replace(raw(), args=numbers)) as failed:
        await until(lambda: state(failed) is ServerState.FAILED)
        assert failed.status.error == "it failed with an unexpected AttributeError; the log has the traceback"
        await until(lambda: state(healthy) is ServerState.READY)


async def test_a_server_that_was_never_ready_is_started_once(tmp_path: Path) -> None:
    (tmp_path / "a life before").touch()
    async with connection(raw("LivesOnce", "--folder", tmp_path)) as server:
        await server.wait_ended()
        assert (state(server), server.status.restarts) == (ServerState.FAILED, 0)
    assert count_starts(tmp_path) == 2


# Closing


@kill_9
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("how", ["stopped", "background tasks closed"])
async def test_closing_ends_a_pause_and_the_calls_that_wait_for_the_restart(tmp_path: Path, how: str) -> None:
    failed: list[str] = []
    background_tasks = await BackgroundTasks.open()
    servers = ServerManager({"it": raw("LivesOnce", "--folder", tmp_path)})
    servers.start(background_tasks)
    await servers.wait_settled()

    async def call() -> None:
        with pytest.raises(ServerGone) as caught:
            await servers["it"].call("echo", {})
        failed.append(caught.value.problem)

    with anyio.fail_after(LONG):
        await call()
        await until(lambda: "the port is taken" in (servers["it"].status.error or ""))
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with anyio.move_on_after(0) as cancelled:  # a call that waits for a restart can be cancelled
                await servers["it"].call("echo", {})
            await anyio.wait_all_tasks_blocked()
            if how == "background tasks closed":
                await background_tasks.aclose()
            await servers.aclose()
        await background_tasks.aclose()
    assert cancelled.cancelled_caught
    assert failed[1:] == ["it was stopped"]
    assert (state(servers["it"]), servers["it"].tools) == (ServerState.STOPPED, ())


@kill_9
async def test_a_waiting_call_fails_at_once_if_its_server_is_stopped() -> None:
    background_tasks = await BackgroundTasks.open()
    server = Connection("it", raw("ClosesItsPipes"), ClientCapabilities())
    server.start(background_tasks)
    await server.wait_settled()

    async def call() -> None:
        with pytest.raises(ServerGone, match="it was stopped"):
            await call_for_text(server, which="input")
        with anyio.move_on_after(0) as moment:
            await server.wait_ended()
        assert moment.cancelled_caught, "it is still running"

    with pytest.raises(ServerGone, match="closed its output"):
        await call_for_text(server, which="output")
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        server.stop()
    await server.wait_ended()
    await background_tasks.aclose()


@kill_9
async def test_stopping_a_server_ends_its_restart(tmp_path: Path) -> None:
    background_tasks = await BackgroundTasks.open()
    settings = raw("LivesOnce", "--folder", tmp_path, "--hangs", startup_timeout=100 * LONG)
    server = Connection("it", settings, ClientCapabilities())
    server.start(background_tasks)
    await server.wait_settled()
    with anyio.fail_after(LONG):
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        await until(lambda: server.status.stderr == ("the port is taken",))
        server.stop()
        await server.wait_ended()
        await background_tasks.aclose()
    assert (state(server), count_starts(tmp_path)) == (ServerState.STOPPED, 2)


@kill_9
async def test_a_hanging_restart_and_its_waiting_calls_time_out(tmp_path: Path) -> None:
    async with connection(raw("LivesOnce", "--folder", tmp_path, "--hangs")) as server:
        server.startup_timeout = 0.5
        for problem in ("out of cheese", r"it is being restarted: (not ready within 0.5 seconds|.*SIGKILL)"):
            with pytest.raises(ServerGone, match=problem):
                await call_for_text(server)
        await until(lambda: "not ready within 0.5 seconds" in (server.status.error or ""))


@kill_9
@pytest.mark.usefixtures("hurried")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
async def test_many_restarts_leave_no_process_and_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_policy, "MAX_DEATHS", 10)
    async with connection(raw("ShowsItself")) as server:
        pids = [await pid_of(server)]
        before = open_files()
        for _ in range(8):
            os.kill(pids[-1], signal.SIGKILL)
            await until(lambda: server.status.restarts == len(pids) and state(server) is ServerState.READY)
            pids.append(await pid_of(server))
        assert open_files() == before
        assert [pid for pid in pids if is_alive(pid)] == pids[-1:]
    assert not is_alive(pids[-1])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

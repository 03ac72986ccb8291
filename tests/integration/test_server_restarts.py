"""Servers that die are started again, and nobody but the call they died in notices."""

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
from dial_client import DialClient, Message, ScriptedProvider
from dial_client.errors import ServerError, ServerGone
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers import restart_policy, session
from dial_client.servers.connection import Connection
from dial_client.servers.restart_policy import MAX_DEATHS, Exit, ExitKind
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import ServerState, ServerStatus
from tests.support.program import LONG
from tests.support.servers.launch import (
    asked,
    call_for_text,
    connection,
    connections,
    is_alive,
    raw,
    state,
    until,
)

pytestmark = pytest.mark.anyio

DIED = Exit(ExitKind.DIED, "it died")
GONE = Exit(ExitKind.UNREACHABLE, "nobody is there")
kill_9 = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


class Told(list[ServerStatus]):
    """Keeps what it is told of servers, and wakes those who wait for something of it."""

    def __call__(self, _: str, status: ServerStatus) -> None:
        self.append(status)

    @property
    def states(self) -> list[ServerState]:
        return [status.state for status in self]

    async def of(self, state: ServerState, times: int = 1) -> None:
        await until(lambda: self.states.count(state) >= times)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold pauses to a hundredth of a second."""
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(restart_policy, "MAX_PAUSE", 0.01)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every pause but the first last longer than any test."""
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE", 100 * LONG)
    monkeypatch.setattr(restart_policy, "MAX_PAUSE", 100 * LONG)


def lives(folder: Path) -> int:
    return len(list(folder.iterdir()))


async def pid_of(server: Connection) -> int:
    return int(json.loads(await call_for_text(server))["pid"])


# Calls


@kill_9
async def test_a_death_fails_the_running_call_and_no_later_call(tmp_path: Path) -> None:
    statuses = Told()
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
    statuses = Told()
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
async def test_a_lost_call_is_repeated_only_where_that_is_safe(
    tmp_path: Path, hints: str, trusted: bool, is_repeated: bool
) -> None:
    (tmp_path / "lives").mkdir()
    options = ("--folder", tmp_path / "lives", "--hints", hints, "--log", tmp_path / "log")
    async with connection(raw("DiesOnce", *options, trusted=trusted)) as server:
        if is_repeated:
            assert await call_for_text(server, a=1) == '{"a": 1}'
        else:
            with pytest.raises(ServerGone, match="out of cheese"):
                await call_for_text(server, a=1)
            assert await call_for_text(server, a=2) == '{"a": 2}'
    assert asked(tmp_path / "log").count("tools/call") == 2


@kill_9
async def test_a_call_that_kills_is_repeated_once(tmp_path: Path) -> None:
    options = ("--hints", '{"readOnlyHint": true}', "--log", tmp_path / "log")
    async with connection(raw("DiesInCall", *options, trusted=True)) as server:
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        assert asked(tmp_path / "log").count("tools/call") == 2


@kill_9
async def test_a_tool_that_is_gone_after_the_restart_is_not_called(tmp_path: Path) -> None:
    statuses = Told()
    async with connections({"it": raw("ComesBackOther", "--folder", tmp_path)}, statuses) as servers:
        with pytest.raises(ServerGone):
            await call_for_text(servers["it"])
        with pytest.raises(ServerError, match="it has no tool 'echo' any more"):
            await call_for_text(servers["it"])
        assert await call_for_text(servers["it"], "tool2", a=1) == '{"a": 1}'


@kill_9
async def test_a_server_of_the_older_protocol_version_is_not_asked_for_the_newer_version_again(tmp_path: Path) -> None:
    (tmp_path / "lives").mkdir()
    async with connection(raw("DiesOnce", "--folder", tmp_path / "lives", "--log", tmp_path / "log")) as server:
        with pytest.raises(ServerGone):
            await call_for_text(server)
        assert await call_for_text(server, a=1) == '{"a": 1}'
    methods = asked(tmp_path / "log")
    assert (methods.count("server/discover"), methods.count("initialize")) == (1, 2)


@kill_9
async def test_what_a_server_comes_back_with_is_on_offer_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dial_client.servers.connection, dial_client.servers.server_manager):
        monkeypatch.setattr(module, "FRESH_SECONDS", LONG)
    args = ["-W", "ignore", str(Path(__file__).parents[1] / "support" / "servers" / "raw.py"), "ComesBackOther"]
    servers = {"it": {"command": sys.executable, "args": [*args, "--folder", str(tmp_path)]}}
    call = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    again = {"tool_calls": [{"name": "tool2", "arguments": {"a": 1}}]}
    async with DialClient(servers, ScriptedProvider([call, again, "Done."])) as dial:
        turn = await dial.run([Message.user("Go on.")])
        assert dial.servers["it"].restarts == 1
    assert [note for note in turn.notes if "'it' died and was restarted: the server ended by SIGKILL" in note]
    first, second = (done.result for done in turn.tool_calls)
    assert "the call was lost" in (first.error or "")
    assert (second.success, second.content) == (True, '{"a": 1}')


# Giving up


async def test_a_server_that_always_dies_is_given_up_and_working_servers_answer(hurried: None, tmp_path: Path) -> None:
    statuses = Told()
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
    assert lives(tmp_path) == MAX_DEATHS


@kill_9
async def test_a_server_that_cannot_be_started_again_is_given_up_with_its_reason(hurried: None, tmp_path: Path) -> None:
    async with connection(raw("LivesOnce", "--folder", tmp_path)) as server:
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        with pytest.raises(ServerGone, match=r"given up after 5 deaths .* it last said: the port is taken"):
            await call_for_text(server)
    assert lives(tmp_path) == MAX_DEATHS


@kill_9
async def test_a_command_that_has_vanished_is_not_tried_again(tmp_path: Path) -> None:
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


async def test_a_start_that_fails_in_an_unknown_way_is_a_failure_with_its_reason() -> None:
    numbers: Any = (5,)
    async with connection(raw()) as healthy, connection(replace(raw(), args=numbers)) as failed:
        await until(lambda: state(failed) is ServerState.FAILED)
        assert failed.status.error == "it failed in an unexpected way, by AttributeError; the log has more"
        await until(lambda: state(healthy) is ServerState.READY)


async def test_a_server_that_was_never_ready_is_started_once(tmp_path: Path) -> None:
    (tmp_path / "a life before").touch()
    async with connection(raw("LivesOnce", "--folder", tmp_path)) as server:
        await server.wait_ended()
        assert (state(server), server.status.restarts) == (ServerState.FAILED, 0)
    assert lives(tmp_path) == 2


# Leaving


@kill_9
@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("how", ["stopped", "its nursery closed"])
async def test_leaving_does_not_wait_for_a_pause_and_ends_the_calls_that_do(tmp_path: Path, how: str) -> None:
    failed: list[str] = []
    nursery = await BackgroundTasks.open()
    servers = ServerManager({"it": raw("LivesOnce", "--folder", tmp_path)})
    servers.start(nursery)
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
            with anyio.move_on_after(0) as cancelled:  # a call that waits for a restart is cancelled like any other
                await servers["it"].call("echo", {})
            await anyio.wait_all_tasks_blocked()
            if how == "its nursery closed":
                await nursery.aclose()
            await servers.aclose()
        await nursery.aclose()
    assert cancelled.cancelled_caught
    assert failed[1:] == ["it was stopped"]
    assert (state(servers["it"]), servers["it"].tools) == (ServerState.STOPPED, ())


@kill_9
async def test_a_call_that_waits_does_not_wait_for_the_end_of_a_server_that_will_not_leave() -> None:
    nursery = await BackgroundTasks.open()
    server = Connection("it", raw("ClosesItsPipes"))
    server.start(nursery)
    await server.wait_settled()

    async def call() -> None:
        with pytest.raises(ServerGone, match="it was stopped"):
            await call_for_text(server, which="input")
        assert not server._supervisor.has_ended

    with pytest.raises(ServerGone, match="closed its output"):
        await call_for_text(server, which="output")
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        server.stop()
    await server.wait_ended()
    await nursery.aclose()


@kill_9
async def test_leaving_in_the_midst_of_a_restart_ends_it(tmp_path: Path) -> None:
    nursery = await BackgroundTasks.open()
    server = Connection("it", raw("LivesOnce", "--folder", tmp_path, "--hangs", startup_timeout=100 * LONG))
    server.start(nursery)
    await server.wait_settled()
    with anyio.fail_after(LONG):
        with pytest.raises(ServerGone, match="out of cheese"):
            await call_for_text(server)
        await until(lambda: server.status.stderr == ("the port is taken",))
        server.stop()
        await server.wait_ended()
        await nursery.aclose()
    assert (state(server), lives(tmp_path)) == (ServerState.STOPPED, 2)


@kill_9
async def test_a_restart_that_hangs_ends_and_so_do_the_calls_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connection(raw("LivesOnce", "--folder", tmp_path, "--hangs")) as server:
        for module in (session, dial_client.servers.connection):
            monkeypatch.setattr(module, "startup_seconds", lambda _: 0.5)
        for problem in ("out of cheese", r"it is being restarted: (not ready within 0.5 seconds|.*SIGKILL)"):
            with pytest.raises(ServerGone, match=problem):
                await call_for_text(server)
        await until(lambda: "not ready within 0.5 seconds" in (server.status.error or ""))


@kill_9
@pytest.mark.usefixtures("hurried")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
async def test_many_lives_leave_no_process_and_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

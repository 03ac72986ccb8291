"""Ctrl-C, SIGTERM and SIGHUP: an orderly end, without remaining processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from tests.inner import process_runner
from tests.support.program import LONG, dial_chat, entry, environment, started, write_config
from tests.support.servers.launch import is_alive

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals of this kind")

HANG = {"text": "I begin", "chunk_size": 3, "hang": True}


def call(name: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": {}}]}


def read_until(process: subprocess.Popen[str], kind: str) -> list[dict[str, Any]]:
    """Read the program's events up to the first event of a kind."""
    events: list[dict[str, Any]] = []
    assert process.stdout is not None
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == kind:
            return events
    assert process.stderr is not None
    raise AssertionError(f"no {kind}: {events} {process.stderr.read()}")


def have_ended(*pids: int) -> bool:
    """Wait for stopped processes to end, which another process reaps; return whether all have ended."""
    end = time.monotonic() + LONG
    while any(is_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(is_alive(pid) for pid in pids)


def pids_of_calls(events: list[dict[str, Any]]) -> list[int]:
    return [int(event["result"]["content"]) for event in events if event["type"] == "tool_call_finished"]


def test_the_first_interrupt_ends_the_turn_and_keeps_the_text_so_far(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANG])
    with started(tmp_path, "--output", "jsonl", "Say hi", DIAL_TEST_FRESH="1") as process:
        read_until(process, "text_delta")
        process.send_signal(signal.SIGINT)
        events = read_until(process, "finished")
        assert process.wait(LONG) == 130
    assert events[-1]["turn"]["stop_reason"] == "cancelled"
    [conversation] = json.loads(dial_chat(tmp_path, "conversations", "--all", "--json").stdout)
    shown = json.loads(dial_chat(tmp_path, "conversations", "show", conversation["id"], "--json").stdout)
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"]
    assert "I begin".startswith(shown["messages"][1]["content"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("behaviour", ["Stubborn", "LeavesChild"])
def test_no_process_remains_after_a_signal(tmp_path: Path, number: signal.Signals, behaviour: str) -> None:
    servers = {"bad": entry(behaviour, autoApprove=["*"])}
    write_config(tmp_path, servers, [call("echo"), HANG])
    with started(tmp_path, "--output", "jsonl", "Say hi") as process:
        pids = pids_of_calls(read_until(process, "text_delta"))
        assert len(pids) == 1
        process.send_signal(number)
        assert process.wait(LONG) == 130
    assert have_ended(*pids)


def test_an_interrupt_while_servers_start_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    waits = entry("WaitsForOthers", "--folder", str(folder), "--count", "2")
    write_config(tmp_path, {"waits": waits}, ["Hello."])
    with started(tmp_path, "--output", "jsonl", "Say hi") as process:
        end = time.monotonic() + LONG
        while not list(folder.iterdir()) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130
    assert have_ended(*(int(path.name) for path in folder.iterdir()))


def test_a_signal_during_a_call_notifies_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = {"mute": entry("NeverAnswers", "--log", str(log), autoApprove=["*"])}
    write_config(tmp_path, servers, [call("echo")])
    with started(tmp_path, "--output", "jsonl", "Say hi") as process:
        read_until(process, "tool_call_started")
        end = time.monotonic() + LONG
        while "tools/call" not in log.read_text() and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        events = read_until(process, "finished")
        assert process.wait(LONG) == 130
    turn = events[-1]["turn"]
    assert turn["stop_reason"] == "cancelled"
    assert [message["role"] for message in turn["messages"]] == ["user", "assistant", "tool"]
    assert turn["messages"][2]["content"].startswith("Interrupted")
    assert "notifications/cancelled" in log.read_text()


def test_a_killed_host_leaves_a_valid_conversation_and_no_server_that_watches_its_input(tmp_path: Path) -> None:
    servers = {"good": entry("ShowsItself", autoApprove=["*"])}
    write_config(tmp_path, servers, [call("echo"), HANG])
    with started(tmp_path, "--output", "jsonl", "Say hi") as process:
        events = read_until(process, "text_delta")
        [finished] = [event for event in events if event["type"] == "tool_call_finished"]
        process.kill()
        process.wait(LONG)
    assert have_ended(json.loads(finished["result"]["content"])["pid"])
    write_config(tmp_path, {}, ["Here I am again."])
    ran = dial_chat(tmp_path, "--continue", "And now?")
    assert (ran.returncode, ran.stdout) == (0, "Here I am again.\n")


def test_a_closed_output_pipe_causes_no_traceback(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [{"text": "word " * 200_000, "chunk_size": 10_000}])
    with started(tmp_path, "Say hi") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(LONG)
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


@pytest.mark.anyio
async def test_a_program_that_was_started_by_nohup_outlives_its_terminal() -> None:
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupts = process_runner.Interrupts()
        async with anyio.create_task_group() as group:
            group.start_soon(interrupts.listen)
            await wait_all_tasks_blocked()
            with interrupts.scope():
                os.kill(os.getpid(), signal.SIGHUP)
                os.kill(os.getpid(), signal.SIGINT)  # comes after it, and ends only this context
                await anyio.sleep_forever()
            assert not interrupts.leaving.cancel_called
            group.cancel_scope.cancel()
    finally:
        signal.signal(signal.SIGHUP, ignored)


LOADED_UNDER_INTERRUPT = """
import signal, sys
from dial_client.cli import main

class Field:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            del sys.argv[1]
            if sys.argv.pop(1) == "class":
                type("Data", (), {"field": Field()})
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("place", ["module", "class"])  # Python 3.11 wraps what is raised while a class is made
@pytest.mark.parametrize("module", ["cli.commands.program_commands", "servers.restart_policy"])
def test_an_interrupt_while_the_program_is_loaded_ends_it_without_a_traceback(
    tmp_path: Path, module: str, place: str
) -> None:
    words = [sys.executable, "-c", LOADED_UNDER_INTERRUPT, f"dial_client.{module}", place, "tools"]
    ran = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")

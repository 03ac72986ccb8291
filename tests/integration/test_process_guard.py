"""The process guard: a killed host leaves no servers running, even if they ignore the end of their input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.inner import ProcessGuard, ServerProcess, guard
from tests.support.program import LONG
from tests.support.servers.launch import is_alive, raw, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

HOST = """
import sys, anyio
from dial_client import DialClient
from dial_client.servers.transports.server_process import guard
from tests.support.servers.launch import raw

async def main():
    servers = {"stubborn": raw("Stubborn"), "launcher": raw("LeavesChild"), "polite": raw()}
    async with DialClient(servers=servers) as dial:
        pids = [(await dial.call(name, {})).content for name in ("stubborn__echo", "launcher__echo")]
        print(*pids, guard.pid, flush=True)
        await anyio.sleep(100)

anyio.run(main)
"""


@contextmanager
def host(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a host with a server that ignores signals and a server with a child; yield the host and all process ids."""
    (tmp_path / "host.py").write_text(HOST)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(tmp_path / "host.py")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, [int(word) for word in process.stdout.readline().split()]
        finally:
            process.kill()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_servers_and_their_children_end_when_the_host_is_killed(tmp_path: Path) -> None:
    with host(tmp_path) as (process, pids):
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        process.send_signal(signal.SIGKILL)
        await until(lambda: not any(map(is_alive, pids)))


@pytest.mark.anyio
async def test_the_guard_runs_as_long_as_servers_run() -> None:
    process = ServerProcess(raw("Stubborn"))
    shell = guard.pid
    assert shell is not None
    assert is_alive(shell)
    await process.stop()
    process.close()
    assert guard.pid is None
    await until(lambda: not is_alive(shell))


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in its own process group, and kill it afterwards."""
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_killed_guard_is_replaced_and_the_new_guard_watches_all_servers() -> None:
    own = ProcessGuard()
    with sleeper() as first, sleeper() as second:
        own.watch(first.pid)
        shell = own.pid
        assert shell is not None
        os.kill(shell, signal.SIGKILL)
        os.waitid(os.P_PID, shell, os.WEXITED | os.WNOWAIT)
        own.watch(second.pid)
        own.close()
        assert (first.wait(LONG), second.wait(LONG)) == (-signal.SIGTERM, -signal.SIGTERM)


def test_a_forgotten_process_group_is_not_signalled() -> None:
    own = ProcessGuard()
    with sleeper() as ended, sleeper() as guarded:
        own.watch(ended.pid)
        own.watch(guarded.pid)
        own.forget(ended.pid)
        own.close()
        assert guarded.wait(LONG) == -signal.SIGTERM
        assert ended.poll() is None

"""Many calls over many servers that die, hang and change: ``python -m benchmarks.soak [--calls N] [--seed N]``.

The run has eight servers of both protocols, over stdio, over HTTP and in this process, and eight calls at a time. It
reports as errors: leaked tasks, open files, processes and threads, memory that keeps growing, a server that does not
recover, and a wrong answer. The number of calls limits the run, not time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from dial_client import DialClient, Limits, ServerState
from dial_client.servers import restart_policy

SCRIPT = [sys.executable, "-I", "-S", str(Path(__file__).with_name("soak_server.py"))]
WORKERS = 8
WEIGHTS = {"add": 90, "hang": 3, "change": 4, "kill": 3}
"""The weights of the actions, in percent. A server in this process cannot be killed: it gets another call instead."""
CANCEL_AFTER = 0.02
"""Seconds until a call that never ends is cancelled; about half of these calls run into `TOOL_TIMEOUT` instead."""
TOOL_TIMEOUT = 2.0
SETTLE_SECONDS = 15.0
"""Seconds for tasks and processes to end before resources are counted."""
CALM = 10
"""Equal counts in a row that count as settled."""
MAX_GROWTH = 12.0
"""Megabytes by which the program may grow after the warm-up: memory that the allocator keeps for reuse."""


@dataclass(frozen=True)
class Usage:
    """The resources that the program uses at one moment."""

    tasks: int
    files: int
    processes: int
    threads: int
    memory: float
    """Megabytes in main memory."""

    def __str__(self) -> str:
        return (
            f"{self.tasks:3} tasks, {self.files:3} files, {self.processes:2} processes, {self.threads} threads, "
            f"{self.memory:6.1f} MB"
        )


_POOLS = ("asyncio_", "AnyIO worker thread")
"""Name prefixes of the event loop's pooled threads, whose number is limited."""


def measure() -> Usage:
    """Count the resources in use (Linux: in /proc)."""
    gc.collect()
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    tasks, threads = (
        len(asyncio.all_tasks()),
        sum(not thread.name.startswith(_POOLS) for thread in threading.enumerate()),
    )
    return Usage(tasks, len(list(Path("/proc/self/fd").iterdir())), len(list(_children())), threads, memory)


def _children() -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            yield int(stat.parent.name)


class HttpServer:
    """An HTTP server process, which is restarted on the same port after it was killed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.process, self.port = self._run()

    def _run(self, *port: str) -> tuple[subprocess.Popen[bytes], int]:
        command = [*SCRIPT, self._name, "http", *port]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    def kill(self) -> None:
        """Kill the process, and start it again."""
        self.close()
        self.process, _ = self._run(str(self.port))

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()


def create_in_process_server(name: str) -> MCPServer:
    """Return a server in this process."""
    server = MCPServer(name, log_level="CRITICAL")
    extra = f"extra_{name}"

    def add(a: int, b: int) -> str:
        return str(a + b)

    async def hang() -> None:
        await anyio.sleep_forever()

    async def change(context: Context) -> str:
        if any(tool.name == extra for tool in await server.list_tools()):
            server.remove_tool(extra)
        else:
            server.add_tool(lambda: "extra", name=extra)
        await context.notify_tools_changed()
        return "changed"

    for tool in (add, hang, change):
        server.add_tool(tool, name=f"{tool.__name__}_{name}")
    return server


@dataclass
class Soak:
    """One run."""

    dial: DialClient
    webs: Mapping[str, HttpServer]
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    async def run_calls(self, count: int) -> None:
        """Make `count` calls, `WORKERS` at a time."""
        numbers = iter(range(count))

        actions: dict[str, Callable[[str, int], Awaitable[object]]] = {
            "add": self.add,
            "hang": self.hang,
            "change": self.change,
            "kill": self.kill,
        }

        async def work() -> None:
            for number in numbers:
                server = self.chance.choice(sorted(self.dial.servers))
                action = self.chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
                await actions[action](server, number)

        async with anyio.create_task_group() as group:
            for _ in range(WORKERS):
                group.start_soon(work)

    async def add(self, server: str, number: int) -> bool:
        """Add two numbers; return True if the call succeeded."""
        result = await self.dial.call(f"add_{server}", {"a": number, "b": 1})
        self.counts["answered" if result.success else "lost"] += 1
        if result.success and result.content != str(number + 1):
            self.problems.append(f"{server} answered {result.content!r} to {number} + 1")
        return result.success

    async def hang(self, server: str, number: int) -> None:
        """Make a call that never ends."""
        self.counts["hung"] += 1
        with anyio.move_on_after(CANCEL_AFTER if number % 2 else 100 * TOOL_TIMEOUT):
            await self.dial.call(f"hang_{server}", {})

    async def change(self, server: str, _: int) -> None:
        """Change the tools of a server."""
        self.counts["changed"] += 1
        await self.dial.call(f"change_{server}", {})

    async def kill(self, server: str, number: int) -> None:
        """Kill a server in any state."""
        if server in self.webs:
            self.webs[server].kill()
            self.counts["killed"] += 1
        elif f"pid_{server}" in self.dial.tool_name_client_map:
            result = await self.dial.call(f"pid_{server}", {})
            if result.success:
                os.kill(int(str(result.content)), signal.SIGKILL)
                self.counts["killed"] += 1
        await self.add(server, number)

    async def wait_all_answer(self) -> None:
        """Wait until every server answers again, at most `SETTLE_SECONDS` for each."""
        for server in self.dial.servers:
            with anyio.move_on_after(SETTLE_SECONDS) as scope:
                while not await self.add(server, 1):  # noqa: ASYNC110 (other processes have to change)
                    await anyio.sleep(0.1)
            if scope.cancelled_caught:
                self.problems.append(f"{server} does not recover: {self.dial.servers[server].error}")


async def wait_settled(is_calm: Callable[[Usage], bool] = lambda _: True) -> Usage:
    """Return the usage once `is_calm` accepts it and it stays the same, after `SETTLE_SECONDS` at the latest."""
    in_row, last = 0, measure()
    with anyio.move_on_after(SETTLE_SECONDS):
        while in_row < CALM:
            await anyio.sleep(0.2)
            before, last = last, measure()
            is_same = (before.tasks, before.files) == (last.tasks, last.files)
            in_row = in_row + 1 if is_same and is_calm(last) else 0
    return last


@contextmanager
def servers() -> Iterator[tuple[dict[str, Any], dict[str, HttpServer]]]:
    """Yield the entries of all eight servers, and the HTTP servers among them."""
    with ExitStack() as stack:
        webs = {name: HttpServer(name) for name in ("webold", "webnew")}
        for web in webs.values():
            stack.callback(web.close)
        protocols = {"old": "legacy", "new": "2026-07-28"}
        child = {"command": SCRIPT[0], "autoApprove": ["*"]}
        entries: dict[str, Any] = {
            f"{age}{number}": child | {"args": [*SCRIPT[1:], f"{age}{number}", "stdio"], "protocol": protocol}
            for age, protocol in protocols.items()
            for number in (1, 2)
        }
        for name, web in webs.items():
            entries[name] = {"url": f"http://127.0.0.1:{web.port}/mcp", "protocol": protocols[name[3:]]}
        yield entries | {name: create_in_process_server(name) for name in ("here1", "here2")}, webs


async def soak(calls: int, seed: int) -> dict[str, Any]:
    """Run the soak, and return its measurements."""
    # The client must restart a server as often as it is killed.
    restart_policy.MAX_DEATHS, restart_policy.FIRST_PAUSE, restart_policy.MAX_PAUSE = calls, 0.05, 0.1
    started_at = time.monotonic()
    with servers() as (entries, webs):
        start = measure()
        async with DialClient(servers=entries, limits=Limits(tool_timeout=TOOL_TIMEOUT)) as dial:
            run = Soak(dial, webs, random.Random(seed))
            await run.run_calls(calls // 5)
            await run.wait_all_answer()
            warm = await wait_settled()
            await run.run_calls(calls - calls // 5)
            await run.wait_all_answer()
            end = await wait_settled(lambda now: not _leaks(warm, now))
            failed = [name for name, server in dial.servers.items() if server.state is not ServerState.READY]
            restarts = sum(server.restarts for server in dial.servers.values())
        closed = await wait_settled(lambda now: not _leaks(start, now, memory=False))
    moments = {"at the start": start, "after the warm-up": warm, "at the end": end, "when closed": closed}
    leaks = _leaks(warm, end) + [f"when closed: {leak}" for leak in _leaks(start, closed, memory=False)]
    problems = [*run.problems, *(f"{name} is not ready" for name in failed), *leaks]
    return {
        "moments": moments,
        "counts": dict(run.counts) | {"restarts": restarts},
        "seconds": time.monotonic() - started_at,
        "problems": problems,
    }


def _leaks(before: Usage, after: Usage, *, memory: bool = True) -> list[str]:
    counts = {name: getattr(after, name) - getattr(before, name) for name in ("tasks", "files", "processes", "threads")}
    leaks = [f"{count} more {name}" for name, count in counts.items() if count > 0]
    if memory and after.memory - before.memory > MAX_GROWTH:
        leaks.append(f"{after.memory - before.memory:.1f} MB more")
    return leaks


def main() -> None:
    """Run the soak with the options of the command line; the exit code is 1 if there is a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not Path("/proc/self/fd").is_dir():
        print("resources can be counted on Linux only")
        return
    result = asyncio.run(soak(options.calls, options.seed))
    print(f"{options.calls:,} calls in {result['seconds']:.0f} s, seed {options.seed}: {json.dumps(result['counts'])}")
    for moment, usage in result["moments"].items():
        print(f"{moment:18} {usage}")
    for problem in result["problems"]:
        print(f"PROBLEM: {problem}")
    sys.exit(1 if result["problems"] else 0)


if __name__ == "__main__":
    main()

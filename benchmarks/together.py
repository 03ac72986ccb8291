"""Connects real servers one by one and all at once: ``python -m benchmarks.together [--samples N]``.

Connecting all servers may take at most `MOST` times the time of the slowest server alone or, with few processors, of
their processor time divided by the number of processors.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dial_client import DialClient, ServerState

NPM = Path(__file__).parent.parent / "build" / "npm" / "node_modules" / ".bin"
MOST = 1.3


def real_servers(folder: Path) -> dict[str, Any]:
    """Return the entries of the installed servers; `folder` is a git repository that they may use."""
    commands: Mapping[str, list[str]] = {
        "time": ["mcp-server-time", "--local-timezone", "UTC"],
        "git": ["mcp-server-git", "--repository", str(folder)],
        "fetch": ["mcp-server-fetch", "--ignore-robots-txt"],
        "everything": ["mcp-server-everything"],
        "filesystem": ["mcp-server-filesystem", str(folder)],
        "memory": ["mcp-server-memory"],
        "sequential-thinking": ["mcp-server-sequential-thinking"],
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), str(NPM), os.environ.get("PATH", "")])
    env = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
    found = {name: shutil.which(command[0], path=path) for name, command in commands.items()}
    return {
        name: {"command": program, "args": commands[name][1:], "env": env} for name, program in found.items() if program
    }


async def connected(servers: dict[str, Any]) -> float:
    """Return the seconds until all servers are ready; closing is not measured."""
    started_at = time.perf_counter()
    async with DialClient(servers=servers) as dial:
        seconds = time.perf_counter() - started_at
        if {status.state for status in dial.servers.values()} != {ServerState.READY}:
            raise RuntimeError(f"not all are ready: {dial.notes}")
    return seconds


async def measured(servers: dict[str, Any], samples: int) -> dict[str, float]:
    """Return the median seconds for each server and for all together; the first sample is a warm-up."""
    groups = {name: {name: entry} for name, entry in servers.items()} | {"all": servers}
    seen: dict[str, list[float]] = {name: [] for name in groups}
    for number in range(samples + 1):
        for name, entries in groups.items():
            seconds = await connected(entries)
            if number:
                seen[name].append(seconds)
    return {name: statistics.median(times) for name, times in seen.items()}


def main() -> None:
    """Measure with the options of the command line; the exit code is 1 if all together take too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "-q", name], check=True)
        before = os.times()
        seen = asyncio.run(measured(real_servers(folder), options.samples))
        after = os.times()
    together = seen.pop("all")
    slowest = max(seen, key=lambda server: seen[server])
    for server, seconds in seen.items():
        print(f"{server:20} {seconds:6.2f} s alone")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    cpu /= 2 * (options.samples + 1)  # each server started alone, and with the others
    processors = os.cpu_count() or 1
    print(f"{'all':20} {together:6.2f} s, {together / seen[slowest]:.2f} x {slowest}, the slowest")
    print(f"{'their CPU time':20} {cpu:6.2f} s, on {processors} processors")
    sys.exit(1 if together > MOST * max(seen[slowest], cpu / processors) else 0)


if __name__ == "__main__":
    main()

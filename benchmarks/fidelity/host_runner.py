"""Runs an adapter in the Python of its host, with the standard library: ``PYTHON host_runner.py ADAPTER.py SETTINGS``.

The settings are JSON: ``{"base_url", "servers", "code", "search", "tools": [[SERVER, TOOL], …]}``. The first line of
output has the host's names of `tools`. Then each line of input is a command, answered by one line:

    {"call": [SERVER, TOOL, ARGUMENTS]}                             {"text"}
    {"ask": QUESTION, "patterns": [PATTERN, …], "first": true}      {"text", "seconds"}, or {"error", "seconds"}
    {"end": true}                                                   {"peak"}

`seconds` is the processor time of this process in a turn, `peak` its most memory in MB (0 where the system does not
tell). With `first` a new conversation begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any


async def main(adapter: str, settings: dict[str, Any]) -> None:
    """Open the host, and carry out the commands until the last."""
    # Standard output belongs to the answers alone: what hosts print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    tools = settings.pop("tools")
    history: Any = None
    async with runpy.run_path(adapter)["open_host"](**settings) as host:
        print(json.dumps([host.name(*tool) for tool in tools]), file=answers)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            if "end" in command:
                break
            if "call" in command:
                print(json.dumps({"text": await host.call(*command["call"])}), file=answers)
                continue
            answer: dict[str, Any] = {}
            started_at = time.process_time()
            try:
                before = None if command["first"] else history
                answer["text"], history = await host.ask(command["ask"], before, command["patterns"])
            except Exception as error:  # noqa: BLE001 - a host's failure is a finding
                answer["error"] = f"{type(error).__name__}: {error}"[:400]
            answer["seconds"] = time.process_time() - started_at
            print(json.dumps(answer), file=answers)
    print(json.dumps({"peak": read_peak()}), file=answers)


def read_peak() -> float:
    """Return the most memory that this process had, in MB; 0 where the system does not tell."""
    # Not `getrusage`: its value begins with that of the process that started this one.
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else ()
    return sum(int(line.split()[1]) * 1.024 / 1000 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))

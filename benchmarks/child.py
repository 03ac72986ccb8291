"""Runs one program and measures it: ``python child.py MARKER PROGRAM ARGUMENT…`` prints a line of JSON.

    {"answer_ms", "exit_ms", "cpu_ms", "peak_mb", "code"}

``answer_ms`` is the time until MARKER was read from the program's standard output (null if it was not). ``cpu_ms`` and
``peak_mb`` include the children that the program waited for; they are null without ``wait4`` (Windows). This is a
separate process with the standard library only, because on Linux a program's peak memory includes its parent's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any


def measured(marker: bytes, command: list[str]) -> dict[str, Any]:
    """Run the program to its end."""
    started_at = time.perf_counter()
    answer_ms = None
    output = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 65536):
            output += chunk
            if answer_ms is None and marker in output:
                answer_ms = (time.perf_counter() - started_at) * 1000
        cpu, peak = _waited(process)
    return {
        "answer_ms": answer_ms,
        "exit_ms": (time.perf_counter() - started_at) * 1000,
        "cpu_ms": cpu,
        "peak_mb": peak,
        "code": process.returncode,
    }


def _waited(process: subprocess.Popen[bytes]) -> tuple[float | None, float | None]:
    if sys.platform == "win32":
        process.wait()
        return None, None
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024  # kilobytes on other systems
    return (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss * unit / 1e6


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1].encode(), sys.argv[2:])))

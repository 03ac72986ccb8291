"""Runs one program and measures it: ``python child.py MARKER PROGRAM ARGUMENT…`` prints a line of JSON.

    {"answer_ms", "exit_ms", "cpu_ms", "peak_mb", "code"}

``answer_ms`` is the time until MARKER was read from its standard output (null if it never came). ``cpu_ms`` and
``peak_mb`` are those of the program with the children it waited for; null where there is no ``wait4`` (Windows).
A process of its own, the standard library only, because a program's peak counts from what its parent held (Linux).
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
    began = time.perf_counter()
    answered = None
    said = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 65536):
            said += chunk
            if answered is None and marker in said:
                answered = (time.perf_counter() - began) * 1000
        cpu, peak = _waited(process)
    return {
        "answer_ms": answered,
        "exit_ms": (time.perf_counter() - began) * 1000,
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
    unit = 1 if sys.platform == "darwin" else 1024  # kilobytes everywhere else
    return (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss * unit / 1e6


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1].encode(), sys.argv[2:])))

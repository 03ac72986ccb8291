"""Controls the process of a host: `adapter_runner` with an adapter, or any program that speaks the same lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def adapter_command(adapter: str, python: str) -> list[str]:
    """Return the command that runs an adapter in a Python."""
    # -P: modules of this package must not hide those of the host.
    return [python, "-P", "-W", "ignore", str(Path(__file__).with_name("adapter_runner.py")), adapter]


class HostProcess:
    """The process of a host. Commands may be sent while others wait for their answers."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environment),
            start_new_session=True,  # the servers end with it when it is killed
        )
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._last_id = 0
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether the process runs, and has not closed its output."""
        return not self._ended and self.process.poll() is None

    def send(self, **command: Any) -> int:
        """Send a command, and return its id."""
        self._last_id += 1
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"id": self._last_id, **command}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self._ended = True
        return self._last_id

    def wait(self, command_id: int, seconds: float) -> dict[str, Any]:
        """Return the answer to a command; without one, its error says that the time is over, or the process."""
        with self._changed:
            self._changed.wait_for(lambda: command_id in self._answers or self._ended, seconds)
            if command_id in self._answers:
                return self._answers.pop(command_id)
        return {"error": "the process ended" if self._ended else f"nothing came within {seconds:.0f} seconds"}

    def do(self, seconds: float, **command: Any) -> dict[str, Any]:
        """Send a command, and return its answer."""
        return self.wait(self.send(**command), seconds)

    def end(self, seconds: float = 10) -> None:
        """Close the input, and kill the process with all that it started if it does not end."""
        assert self.process.stdin is not None
        with suppress(OSError, subprocess.TimeoutExpired):
            self.process.stdin.close()
            self.process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                answer = json.loads(line)
                answer["at"] = time.perf_counter()
                self._answers[answer["id"]] = answer
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def processor_seconds(process_id: int) -> float:
    """Return the processor time of a process, of its descendants, and of those that have ended; Linux only."""
    parents: dict[int, list[int]] = {}
    ended: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = folder.joinpath("stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
            ended[int(folder.name)] = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [process_id]
    while waiting:
        each = waiting.pop()
        waiting += parents.get(each, [])
        try:
            # The clock of another process, as `clock_getcpuclockid` makes it: Python has no name for it.
            total += time.clock_gettime((~each << 3) | 2) + ended.get(each, 0.0)
        except OSError:
            continue
    return total

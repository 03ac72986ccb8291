"""Starts the process of the embedded model, waits until it is ready, and stops it."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import Process

from dial_client.messages.errors import ProviderError

# Seconds for a model to be ready: the weights are read from disk, and models may be large.
START_TIMEOUT = 120.0
# Seconds for the process to exit after its standard input was closed, and again after SIGTERM.
GRACE = 2.0
# Tokens of the context window. A larger window needs more memory from the start.
CONTEXT_TOKENS = 8192
# Maximum number of threads. More are not faster: memory bandwidth limits the speed.
MAX_THREADS = 8
_LINES = 8
_SERVER = Path(__file__).with_name("llama_server.py")


class ModelProcess:
    """The process of a running model. Create it with `start`."""

    def __init__(self, process: Process, errors: IO[bytes]) -> None:
        self.address = ""
        """``http://127.0.0.1:PORT``."""
        self.key = secrets.token_urlsafe(32)
        """The key that every request must carry: other users of this machine can reach the port, too."""
        self._process = process
        self._errors = errors
        self._stopped = False

    @classmethod
    async def start(cls, model: Path, template: Path | None, *, timeout: float = START_TIMEOUT) -> ModelProcess:
        """Start a model, and wait until it is ready.

        Args:
            model: The weights, a GGUF file.
            template: A chat template that replaces the file's own; None for the file's own.
            timeout: Seconds to wait until the model is ready.

        Raises:
            ProviderError: The model was not ready in time, or its process ended; the message has its error and its last
                log lines.
        """
        arguments = (_SERVER, model, template or "", CONTEXT_TOKENS, _count_threads())
        command = [sys.executable, "-P", *map(str, arguments)]
        # OpenMP's threads sleep while they wait for each other. Next to busy programs this is several times faster (8
        # tokens a second instead of 2); on an idle machine it is a fifth slower.
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
        # A file instead of a pipe, because a pipe would need a reader.
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        try:
            process = await anyio.open_process(
                command,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal must not reach the model's process
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
            )
        except BaseException:
            errors.close()
            raise
        model_process = cls(process, errors)
        try:
            await model_process._wait_until_ready(timeout)
        except BaseException:
            await model_process.stop()
            raise
        return model_process

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """True if the process is running and `stop` has not been called."""
        return not self._stopped and self._process.returncode is None

    async def wait_ended(self, within: float) -> bool:
        """Wait up to `within` seconds for the process to end; return True if it has ended."""
        with anyio.move_on_after(within):
            await self._process.wait()
        return self._process.returncode is not None

    def read_last_words(self) -> str:
        """Return the last log lines of the ended process, joined; its exit code if it has logged nothing."""
        return " | ".join(read_last_lines(self._errors)[-_LINES:]) or f"exit code {self._process.returncode}"

    async def stop(self) -> None:
        """Stop the process: close its input, wait, send SIGTERM, wait, send SIGKILL.

        The method is shielded from cancellation. A second call has no effect.
        """
        if self._stopped:
            return
        self._stopped = True
        with anyio.CancelScope(shield=True):
            assert self._process.stdin is not None
            await self._process.stdin.aclose()
            for send_signal in (self._process.terminate, self._process.kill):
                if await self.wait_ended(GRACE):
                    break
                with suppress(ProcessLookupError):
                    send_signal()
            await self._process.aclose()
            self._errors.close()

    async def _wait_until_ready(self, timeout: float) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        with anyio.move_on_after(timeout) as scope, suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stdin.send(f"{self.key}\n".encode())
            while not line.endswith(b"\n"):
                line += await stdout.receive()
        if scope.cancelled_caught:
            raise ProviderError(f"the embedded model was not ready within {timeout:g} s", code="timeout")
        if not line.endswith(b"\n"):
            await self.wait_ended(timeout)
            words = " | ".join(filter(None, (line.decode("utf-8", "replace"), self.read_last_words())))
            problem = f"the embedded model could not be started: {words}{find_remedy(words)}"
            raise ProviderError(problem, code="connection")
        self.address = line.decode().strip()


def read_last_lines(file: IO[bytes]) -> list[str]:
    """Return the last lines of a program's output that are not empty."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4_000))
    lines = file.read().decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def find_remedy(words: str) -> str:
    """Return the advice for a system library that the model's process did not find; empty for other errors."""
    missing = re.search(r"(lib[\w+-]+)\.so(\.\d+)?\S*: cannot open shared object file", words)
    if missing is None:
        return ""
    package = "".join(part.lstrip(".") for part in missing.groups(""))
    return (
        f"; install the system's library {missing[1]}.so{missing[2] or ''} (Debian, Ubuntu: apt-get install {package})"
    )


def _count_threads() -> int:
    """Return the number of threads that decode: the usable processors, less one if there are more than two."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable if usable <= 2 else usable - 1, MAX_THREADS)

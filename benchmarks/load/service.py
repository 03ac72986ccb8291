"""Processes of `dial-chat serve`: they are started, measured, killed, and started again."""

from __future__ import annotations

import json
import os
import re
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.load.postgres import find_free_port
from benchmarks.load.process_table import list_children

TOKEN = secrets.token_hex(16)
START_TIMEOUT = 60.0
MAX_TURNS = 2_000
PACE_MS = 20
CALL_DELAY = 0.05
_SERVER = Path(__file__).parents[1] / "stdio_server.py"


_NAMES = {"none": "no database", "sqlite": "SQLite", "postgres": "PostgreSQL", "durable": "`--durable`"}


def describe_service(service: str) -> str:
    """Return the words of docs/load.md for a service such as ``durable2``: its store, and its processes."""
    store, processes = service[:-1], service[-1]
    if processes != "1":
        return f"{_NAMES[store]}, {processes} processes"
    return "PostgreSQL, `--durable`" if store == "durable" else _NAMES[store]


class Process:
    """A process of the service.

    Args:
        folder: A folder for its configuration and the data of its user, which others may share.
        model_url: The model.
        arguments: Further arguments of ``dial-chat serve``.
    """

    def __init__(self, folder: Path, model_url: str, arguments: Sequence[str]) -> None:
        self.port = find_free_port()
        self._folder = folder
        self._log = folder / f"serve-{self.port}.log"
        names = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        home = {name: str(folder / name.lower()) for name in names} | {"HOME": str(folder)}
        self.environment = inherited | home | {"OPENAI_API_KEY": "none"}
        """The variables of the process, from its next start on."""
        options = ("--port", str(self.port), "--token", TOKEN, "--max-turns", str(MAX_TURNS), "-m", "chat:x")
        self._command = [sys.executable, "-m", "dial_client", "serve", "-c", str(folder / "servers.json"), *options]
        self._command += ["--base-url", model_url, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @staticmethod
    def write_configuration(folder: Path) -> None:
        """Write the configuration: one server on standard input and output, whose tool waits."""
        arguments = ["-I", "-S", str(_SERVER), "records", "--call-delay", str(CALL_DELAY)]
        arguments += ["--effects", str(folder / "effects.txt")]
        entry = {"command": sys.executable, "args": arguments, "autoApprove": ["*"]}
        (folder / "servers.json").write_text(json.dumps({"mcpServers": {"records": entry}}), encoding="utf-8")

    def start(self) -> None:
        """Start the process, without waiting for it."""
        # A connection takes a file, and clients keep theirs.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=self._folder
            )

    def wait_until_it_listens(self) -> None:
        """Wait until the process has said that it listens, since its last start."""
        deadline = time.monotonic() + START_TIMEOUT
        while self.read_log().count("listening on ") < self._starts:
            if time.monotonic() > deadline or not self.is_alive:
                raise RuntimeError(f"the service does not start: {self.read_log()[-2_000:]}")
            time.sleep(0.05)

    def read_log(self) -> str:
        """Return what the process has written."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def processor_seconds(self) -> float:
        """The processor time of the process so far, without its servers."""
        # The clock of another process, as `clock_getcpuclockid` makes it: Python has no name for it.
        return time.clock_gettime((~self.pid << 3) | 2)

    @property
    def memory_kb(self) -> int:
        """The memory that the process alone has, in kilobytes."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="utf-8")
        return sum(int(size) for size in re.findall(r"Private_\w+: +(\d+)", rollup))

    def find_servers(self) -> list[int]:
        """Return the ids of the processes of its MCP servers."""
        return list_children(self.pid)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self.is_alive:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Service:
    """Processes that are one service: they have the same configuration and database.

    Args:
        name: The name of the service in tables.
        folder: A folder of its own.
        model_url: The model.
        arguments: Further arguments of ``dial-chat serve``.
        processes: How many processes it has.
        database: The name of its database at the PostgreSQL server; empty for none.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        model_url: str,
        arguments: Sequence[str],
        *,
        processes: int = 1,
        database: str = "",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        Process.write_configuration(folder)
        self.name, self.folder, self.database = name, folder, database
        self.processes = [Process(folder, model_url, arguments) for _ in range(processes)]
        self.conversations: list[str] = []
        """The ids of conversations for turns."""

    def __enter__(self) -> Self:
        try:
            for process in self.processes:
                # One after the other: the first one creates the tables.
                process.start()
                process.wait_until_it_listens()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def kill(self) -> None:
        """Kill the processes."""
        for process in self.processes:
            process.kill()

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.close()

    @property
    def ports(self) -> list[int]:
        """The ports of the processes."""
        return [process.port for process in self.processes]

    @property
    def processor_seconds(self) -> float:
        """The processor time of all processes so far, without their servers."""
        return sum(process.processor_seconds for process in self.processes)

    @property
    def memory_kb(self) -> int:
        """The memory of all processes, in kilobytes."""
        return sum(process.memory_kb for process in self.processes)

    def read_effects(self) -> list[str]:
        """Return the texts of the calls that have had their effect."""
        file = self.folder / "effects.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def build_arguments(store: str, where: Any) -> list[str]:
    """Return the arguments for a kind of store: ``none``, ``sqlite``, ``postgres`` or ``durable``."""
    match store:
        case "none":
            return ["--no-save"]
        case "durable":
            return ["--store", str(where), "--durable"]
        case _:
            return ["--store", str(where)]

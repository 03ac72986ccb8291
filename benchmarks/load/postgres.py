"""A PostgreSQL server of its own, in a temporary folder: it can be stopped, and it counts the statements."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from benchmarks.load.process_table import list_children, read_processor_seconds

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top",
    "pg_stat_statements.max": "10000",
}


def find_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; None if there is none. Debian has them apart from others."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: int(path.parent.name))


def find_free_port() -> int:
    """Return a port on which nobody listens."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A server, from its creation to its end.

    Args:
        programs: The folder of its programs.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._temporary = TemporaryDirectory()
        self._folder = Path(self._temporary.name)
        self._data = self._folder / "data"
        # It refuses to run as root.
        self._user: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self._folder, "postgres")
        self.port = find_free_port()

    def __enter__(self) -> Self:
        self._run("initdb", "-D", str(self._data), "-U", "load", "-A", "trust", "--locale=C", "-E", "UTF8")
        self.start()
        self.sql("CREATE EXTENSION pg_stat_statements")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._temporary.cleanup()

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._programs / program), *arguments]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self._folder, **self._user)
        if ended.returncode:
            raise RuntimeError(f"{program}: {ended.stderr}")
        return str(ended.stdout)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = {"port": str(self.port), "unix_socket_directories": str(self._folder)} | SETTINGS
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-o", options, "-l", log, "-w", "-t", "60", "start")

    def stop(self) -> None:
        """Stop the server at once, as if its machine had failed: it recovers at its next start."""
        with suppress(RuntimeError):  # it is not running
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Execute a statement, and return its rows as text."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "load", "-d", database)
        return self._run("psql", *where, "-X", "-q", "-A", "-t", "-c", statement).strip()

    def create_database(self, name: str) -> str:
        """Create a database, and return its URL."""
        self.sql(f"CREATE DATABASE {name}")
        return f"postgresql://load@127.0.0.1:{self.port}/{name}"

    def count_statements(self, database: str) -> int:
        """Return how many statements were executed in a database so far; BEGIN and COMMIT count."""
        query = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
        return int(self.sql(f"{query} WHERE datname = '{database}'"))

    def count_connections(self, database: str) -> int:
        """Return how many connections a database has."""
        return int(self.sql(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"))

    def cut_connections(self) -> None:
        """Close all connections of clients."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    @property
    def processor_seconds(self) -> float:
        """The processor time of all its processes so far, with those that have ended."""
        first = int((self._data / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        return sum(read_processor_seconds(process) for process in (first, *list_children(first)))

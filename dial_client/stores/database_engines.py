"""Creates SQLAlchemy engines for SQLite files, which only their owner can read, and for PostgreSQL servers."""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import ConfigError, describe_system_error

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

MAX_SECONDS = 60.0
"""Timeout of an operation in seconds."""

_CONNECTIONS = 4
"""The most open connections; with SQLite each is a thread."""

_CONNECTING = 10.0
"""Timeout in seconds for opening a connection to a server."""

_SQLITE = "sqlite+aiosqlite"
_POSTGRES = "postgresql+asyncpg"

CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
}
"""The SQL expression for the time in seconds, by dialect; all machines use the database's clock."""


def create_engine(where: str | Path, patience: float) -> AsyncEngine:
    """Load the driver and return the engine; a SQLite file is opened at once, a server connects at its first use.

    Raises:
        ConfigError: The database cannot be used.
    """
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        url = URL.create(_SQLITE, database=str(where)) if isinstance(where, Path) else make_url(where)
        match url.get_backend_name():
            case "sqlite":
                return _create_sqlite_engine(url, patience)
            case "postgresql" | "postgres":
                return _create_postgres_engine(url, patience)
    except ModuleNotFoundError as error:
        raise ConfigError(f"the driver of this database is missing: {error.name}", hint=_INSTALL) from error
    except (SQLAlchemyError, ImportError) as error:
        raise ConfigError(_NOT_USABLE, hint=_EXPECTED) from error
    raise ConfigError(_NOT_USABLE, hint=_EXPECTED)


_INSTALL = "pip install 'dial-client[postgres]'"
_NOT_USABLE = "the address of the database is not supported"
_EXPECTED = 'for example "sqlite:////folder/file.db" or "postgresql://user@host/database"'


def _create_postgres_engine(url: URL, patience: float) -> AsyncEngine:
    from sqlalchemy.ext.asyncio import create_async_engine

    # A process that is suspended during a transaction must not block other processes for ever.
    waits = {
        "lock_timeout": patience,
        "statement_timeout": MAX_SECONDS,
        "idle_in_transaction_session_timeout": MAX_SECONDS,
    }
    settings = {name: f"{max(1, round(seconds * 1000))}ms" for name, seconds in waits.items()}
    return create_async_engine(
        url.set(drivername=_POSTGRES),
        hide_parameters=True,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"timeout": _CONNECTING, "server_settings": settings | {"application_name": "dial-client"}},
    )


def _create_sqlite_engine(url: URL, patience: float) -> AsyncEngine:
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    if url.database in (None, "", ":memory:"):
        raise ConfigError(
            "the address of the database names no file", hint="a MemoryStore keeps conversations in memory"
        )
    path = create_private_file(Path(url.database or ""))
    _switch_to_wal(path, patience)
    engine = create_async_engine(
        url.set(drivername=_SQLITE, database=str(path)),
        hide_parameters=True,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        connect_args={"timeout": patience},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # Otherwise the driver itself begins transactions, and only before some statements.
        connection.isolation_level = None
        # Text that another program wrote in another encoding than UTF-8 must not make all rows unreadable.
        connection.driver_connection.text_factory = _decode
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # In a transaction that reads first and writes later, SQLite does not wait for another writer: it fails at once.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


def _switch_to_wal(path: Path, patience: float) -> None:
    """Switch the file to WAL mode permanently, so that readers and a writer do not block each other.

    The switch is repeated because SQLite ignores the timeout here: if two processes switch the same new file at the
    same time, one of them fails at once because the file is locked.
    """
    import sqlite3

    deadline = time.monotonic() + patience
    with closing(sqlite3.connect(path, timeout=patience)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


def create_private_file(path: Path) -> Path:
    """Create the file if it does not exist, with mode 0600 regardless of the umask, and return its absolute path.

    SQLite's side files get the same mode. An existing file is not opened here, because closing it would release the
    locks that SQLite holds on it in this process.
    """
    try:
        path = path.expanduser().resolve()
        for folder in reversed([folder for folder in path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
            _restrict(folder, 0o700)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            _restrict(file, 0o600)
        if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
            raise ConfigError("this is not a file that can be read and written", path=str(path))
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"conversations cannot be kept here: {describe_system_error(error)}", path=str(path)
        ) from error
    return path


def _restrict(path: Path, mode: int) -> None:
    if sys.platform == "win32":
        return
    # The file may not exist. Its mode cannot be changed on some file systems, or if another user owns it.
    with suppress(FileNotFoundError, PermissionError):
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)

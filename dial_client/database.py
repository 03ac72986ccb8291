"""The database behind a store: opened with its first use, brought up to date, its faults told in words.

It knows of conversations only the tables they are kept in. SQLAlchemy is loaded when the database is opened, off the
event loop.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from dial_client.errors import ConfigError, DialError
from dial_client.logs import get_logger

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = get_logger(__name__)

T = TypeVar("T")

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE conversations (
            id VARCHAR(64) PRIMARY KEY,
            title TEXT NOT NULL,
            created_at VARCHAR(32) NOT NULL,
            updated_at VARCHAR(32) NOT NULL,
            message_count INTEGER NOT NULL
        )""",
        "CREATE INDEX conversations_by_update ON conversations (updated_at)",
        """CREATE TABLE messages (
            conversation_id VARCHAR(64) NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            created_at VARCHAR(32) NOT NULL,
            message TEXT NOT NULL,
            PRIMARY KEY (conversation_id, position)
        )""",
        "CREATE TABLE schema_version (version INTEGER NOT NULL)",
        "INSERT INTO schema_version (version) VALUES (0)",
    ),
)
"""The statements that make each version of the schema out of the one before; the first group makes version 1.

In SQL that every database takes. Times are ISO 8601 in UTC with microseconds, which sort as text. A message is JSON in
ASCII: what text columns refuse (NUL, lone surrogates) is escaped in it.
"""

MAX_SECONDS = 60.0
"""Seconds after which an operation is given up, whatever holds it."""

_CONNECTIONS = 4
"""Connections that may be open at once; with SQLite each is a thread."""

_SQLITE = "sqlite+aiosqlite"

_UNUSABLE = {
    "NOTADB": "this is not a database",
    "CORRUPT": "the database is damaged",
    "CANTOPEN": "the database cannot be opened",
    "READONLY": "the database cannot be written",
    "ERROR": "this is not a database of conversations",
}
_FAILED = {
    "BUSY": "another program keeps the database locked",
    "FULL": "the disk is full",
    "IOERR": "the disk cannot be read or written",
}


class Database:
    """One database; `dial_client.store.SQLStore` says what its arguments mean and what it promises."""

    def __init__(self, where: str | Path, *, patience: float) -> None:
        self._where = where
        self._patience = patience
        self._opening = anyio.Lock()
        self._engine: AsyncEngine | None = None

    async def open(self) -> AsyncEngine:
        """Load the driver, make what is missing, and bring the schema up to date; once it is open, do nothing.

        Raises:
            ConfigError: the database cannot be used, or a newer version of this program made it.
            DialError: it failed this time.
        """
        async with self._opening:
            if self._engine is None:
                self._engine = await self._opened()
            return self._engine

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]], *, writes: bool) -> T:
        """Carry `work` out in one transaction. Once begun it is finished, even if the caller is cancelled meanwhile.

        Raises:
            ConfigError: the database cannot be used.
            DialError: it failed this time; nothing that `work` did is stored.
        """
        try:
            with anyio.fail_after(MAX_SECONDS, shield=True):
                return await self._in_words(_transaction(await self.open(), work, writes=writes))
        except TimeoutError as error:
            raise DialError(f"the database gave no answer within {MAX_SECONDS:g} seconds") from error

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        with anyio.CancelScope(shield=True):
            async with self._opening:
                engine, self._engine = self._engine, None
                if engine is not None:
                    await engine.dispose()

    async def _opened(self) -> AsyncEngine:
        if anyio.get_cancelled_exc_class().__module__.startswith("trio"):
            raise ConfigError("a database needs asyncio", hint="under trio conversations are kept in a MemoryStore")
        began = time.monotonic()
        engine = await self._in_words(anyio.to_thread.run_sync(_engine, self._where, self._patience))
        try:
            await self._in_words(_bring_up_to_date(engine))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await engine.dispose()
            raise
        log.debug("database_opened", dialect=engine.dialect.name, seconds=round(time.monotonic() - began, 4))
        return engine

    async def _in_words(self, doing: Awaitable[T]) -> T:
        try:
            return await doing
        except _driver_errors() as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> DialError:
        cause = getattr(error, "orig", None) or error
        # Extended codes have more words: SQLITE_READONLY_DIRECTORY.
        kind = getattr(cause, "sqlite_errorname", "").removeprefix("SQLITE_").partition("_")[0]
        if problem := _UNUSABLE.get(kind):
            where = str(self._where) if isinstance(self._where, Path) else ""
            return ConfigError(f"{problem}: {cause}", hint="choose another file, or move this one away", path=where)
        said = str(cause).partition("\n")[0]
        return DialError(f"the database of conversations failed: {_FAILED.get(kind, type(cause).__name__)} ({said})")


def _driver_errors() -> tuple[type[Exception], ...]:
    import sqlite3

    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError, sqlite3.Error


async def _transaction(engine: AsyncEngine, work: Callable[[AsyncConnection], Awaitable[T]], *, writes: bool) -> T:
    async with engine.execution_options(writes=writes).begin() as connection:
        return await work(connection)


async def _bring_up_to_date(engine: AsyncEngine) -> None:
    async def version(connection: AsyncConnection) -> int:
        return await connection.run_sync(_version)

    async def migrate(connection: AsyncConnection) -> None:
        for statements in MIGRATIONS[await version(connection) :]:
            for statement in (*statements, "UPDATE schema_version SET version = version + 1"):
                await connection.exec_driver_sql(statement)

    found = await _transaction(engine, version, writes=False)
    if found > len(MIGRATIONS):
        raise ConfigError(
            f"the database was made by a newer version of this program (schema {found}, this one knows up to"
            f" {len(MIGRATIONS)})",
            hint="update dial-client",
            path=(engine.url.database or "") if engine.dialect.name == "sqlite" else "",
        )
    if found < len(MIGRATIONS):
        # Another program may have been faster: what is missing is looked up again behind the lock.
        await _transaction(engine, migrate, writes=True)


def _version(connection: Connection) -> int:
    from sqlalchemy import inspect, text

    if not inspect(connection).has_table("schema_version"):
        return 0
    return int(connection.execute(text("SELECT version FROM schema_version")).scalar_one())


def _engine(where: str | Path, patience: float) -> AsyncEngine:
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine

    try:
        url = URL.create(_SQLITE, database=str(where)) if isinstance(where, Path) else make_url(where)
        if url.get_backend_name() == "sqlite":
            return _sqlite(url, patience)
        return create_async_engine(url, hide_parameters=True, pool_size=_CONNECTIONS, pool_pre_ping=True)
    except (SQLAlchemyError, ImportError) as error:
        raise ConfigError(
            "this is no database that can be used", hint='for example "sqlite:////folder/file.db"'
        ) from error


def _sqlite(url: URL, patience: float) -> AsyncEngine:
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    if url.database in (None, "", ":memory:"):
        raise ConfigError("this database has no file", hint="a MemoryStore keeps conversations in memory")
    path = _private_file(Path(url.database or ""))
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
        # The driver would begin transactions by itself, and only before some statements.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later cannot wait for another writer: SQLite refuses it at once.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _switch_to_wal(path: Path, patience: float) -> None:
    """Let readers and a writer not wait for each other; the file remembers it.

    Two programs that switch the same new file at the same moment do not wait for each other, whatever the timeout says:
    one of them is told at once that the file is locked.
    """
    import sqlite3

    until = time.monotonic() + patience
    with closing(sqlite3.connect(path, timeout=patience)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return


def _private_file(path: Path) -> Path:
    """Make the file where there is none, for its owner only whatever the umask, and give its whole path.

    SQLite's side files take after it. An existing file is never opened here: closing it would drop the locks that
    SQLite holds on it in this process.
    """
    try:
        path = path.expanduser().resolve()
        for folder in reversed([folder for folder in path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
            _restrict(folder, 0o700)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        for own in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            _restrict(own, 0o600)
        if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
            raise ConfigError("this is not a file that can be read and written", path=str(path))
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"conversations cannot be kept here: {why}", path=str(path)) from error
    return path


def _restrict(path: Path, mode: int) -> None:
    if os.name != "posix":
        return
    # It may not be there, and on some file systems and for another's file it is not ours to say.
    with suppress(FileNotFoundError, PermissionError):
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)

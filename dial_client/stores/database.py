"""The database of a store: a SQLite file that only its owner can read, or a PostgreSQL server.

It is opened and migrated at its first use, and its errors are translated.

SQLAlchemy is imported in a worker thread when the database is opened.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from dial_client.messages.errors import ConfigError, DialError, StoreUnavailable, describe_system_error
from dial_client.runtime.logs import get_logger
from dial_client.settings.argument_types import describe_type
from dial_client.stores import migrations

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = get_logger(__name__)

T = TypeVar("T")

# Timeout of an operation in seconds.
MAX_SECONDS = 60.0

# Options of every engine. The size limits the open connections; with SQLite each is a thread.
_ENGINE: Mapping[str, Any] = {"hide_parameters": True, "pool_size": 4, "max_overflow": 0}

# Timeout in seconds for opening a connection to a server.
_CONNECTING = 10.0

# Timeout in seconds for the test of an open connection before its use.
PING_TIMEOUT = 5.0

# Seconds after which a connection is lost whose other end acknowledges nothing: a server that is off the network, not
# one that is slow. Options of TCP, as far as the system has them; the times in seconds, the last in milliseconds.
SILENCE = 15
_KEEPALIVE = {
    "TCP_KEEPIDLE": SILENCE // 3,
    "TCP_KEEPALIVE": SILENCE // 3,
    "TCP_KEEPINTVL": SILENCE // 3,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": SILENCE * 1000,
}

_SQLITE = "sqlite+aiosqlite"
_POSTGRES = "postgresql+asyncpg"

# The SQL expression for the time in seconds, by dialect; all machines use the database's clock.
CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
}

# The longest lease in seconds. A longer lease counts as expired, because another program must have written it.
MAX_LEASE_SECONDS = 86_400.0


_UNUSABLE = {
    # Names of SQLite's error codes
    "NOTADB": "this is not a database",
    "CORRUPT": "the database is damaged",
    "CANTOPEN": "the database cannot be opened",
    "READONLY": "the database cannot be written",
    "ERROR": "this is not a database of conversations",
    # Classes of PostgreSQL's SQLSTATE
    "28": "the database refused the login of this user",
    "3D": "there is no such database",
    "42": "this is not a database of conversations",
}
# Those of an open database that its operator mends while the program runs. Their texts have addresses and paths.
_MENDED = frozenset({"CANTOPEN", "READONLY", "28", "3D"})
_FAILED = {
    "BUSY": "another program keeps the database locked",
    "FULL": "the disk is full",
    "IOERR": "the disk cannot be read or written",
    "08": "the connection to the database broke",
    "25": "the database cannot be written",
    "53": "the database has run out of resources",
    "55": "another program keeps the database locked",
    "57": "the database is shutting down",
}


class Database:
    """A database; `SQLStore` documents its arguments and guarantees."""

    def __init__(self, where: str | Path, *, patience: float) -> None:
        self._where = where
        self._patience = patience
        self._opening = anyio.Lock()
        self._engine: AsyncEngine | None = None
        # Whether the last operation failed, which is logged once; and whether a write did: a full disk can be read.
        self._is_failing = self._has_lost_writes = False
        self.failures = 0
        """The number of operations that failed."""

    @property
    def is_failing(self) -> bool:
        """Whether the last operation failed."""
        return self._is_failing

    async def open(self) -> AsyncEngine:
        """Load the driver, create the database and migrate its schema; does nothing if the database is open.

        Raises:
            ConfigError: The database cannot be used, or a newer version of this program created it.
            DialError: The database failed.
        """
        if (engine := self._engine) is not None:
            return engine
        async with self._opening:
            if (engine := self._engine) is not None:
                return engine
            # A connection to SQLite that a cancelled caller leaves half open has a thread, which outlives the loop.
            is_sqlite = isinstance(self._where, Path) or self._where.startswith("sqlite")
            with anyio.CancelScope(shield=is_sqlite):
                self._engine = await self._open_engine()
            assert self._engine is not None
            return self._engine

    async def run(self, operation: Callable[[AsyncConnection], Awaitable[T]], *, writes: bool) -> T:
        """Run `operation` in one transaction, which is finished even if the caller is cancelled.

        If its connection to a server is lost before the COMMIT, the operation runs a second time from its beginning.

        Raises:
            ConfigError: The database cannot be used.
            DialError: The database failed, or did not answer in time; the transaction is rolled back.
        """
        try:
            with anyio.fail_after(MAX_SECONDS, shield=True):
                result = await self._translate_errors(_transaction(await self.open(), operation, writes=writes))
        except TimeoutError as error:
            timeout = StoreUnavailable(f"the database did not answer within {MAX_SECONDS:g} seconds")
            self._log_failure(timeout)
            raise timeout from error
        except DialError:
            self._has_lost_writes = self._has_lost_writes or writes
            raise
        if self._is_failing and (writes or not self._has_lost_writes):
            self._is_failing = self._has_lost_writes = False
            log.warning("database_works_again")
        return result

    async def find_versions(self) -> tuple[int, int]:
        """Return the version of the schema without migrating it, and the version that this program uses.

        The version of an empty database is 0. Raises as `open`.
        """
        async with self._open_unmigrated() as engine:
            return await self._translate_errors(_read_version(engine)), len(migrations.MIGRATIONS)

    async def find_damage(self) -> list[str]:
        """Return what SQLite finds wrong with its file; a server checks itself. Raises as `open`."""
        async with self._open_unmigrated() as engine:
            return await self._translate_errors(_transaction(engine, _check_file, writes=False))

    @asynccontextmanager
    async def _open_unmigrated(self) -> AsyncIterator[AsyncEngine]:
        engine = await self._translate_errors(anyio.to_thread.run_sync(create_engine, self._where, self._patience))
        try:
            yield engine
        finally:
            with anyio.CancelScope(shield=True):
                await engine.dispose()

    async def empty_log(self) -> None:
        """Have SQLite empty its log, which keeps what was deleted for as long as the file is open; raises as `run`."""
        engine = await self.open()
        if engine.dialect.name == "sqlite":
            await self._translate_errors(anyio.to_thread.run_sync(_empty_log, str(engine.url.database), self._patience))

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        with anyio.CancelScope(shield=True):
            async with self._opening:
                engine, self._engine = self._engine, None
                if engine is not None:
                    await engine.dispose()

    async def _open_engine(self) -> AsyncEngine:
        if anyio.get_cancelled_exc_class().__module__.startswith("trio"):
            raise ConfigError("a database needs asyncio", hint="under trio conversations are kept in a MemoryStore")
        began = time.monotonic()
        engine = await self._translate_errors(anyio.to_thread.run_sync(create_engine, self._where, self._patience))
        try:
            await self._translate_errors(_migrate_schema(engine))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await engine.dispose()
            raise
        log.debug("database_opened", dialect=engine.dialect.name, seconds=round(time.monotonic() - began, 4))
        return engine

    async def _translate_errors(self, pending: Awaitable[T]) -> T:
        import sqlite3

        from sqlalchemy.exc import SQLAlchemyError

        try:
            return await pending
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            failure = self._to_dial_error(error)
            self._log_failure(failure, error)
            raise failure from error

    def _log_failure(self, failure: DialError, cause: Exception | None = None) -> None:
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            detail = str(cause).partition("\n")[0] if isinstance(failure, StoreUnavailable) and cause else ""
            log.warning("database_failed", reason=str(failure), **({"detail": detail} if detail else {}))

    def _to_dial_error(self, error: Exception) -> DialError:
        from sqlalchemy.exc import StatementError

        cause: BaseException = (error.orig or error) if isinstance(error, StatementError) else error
        text = str(cause).partition("\n")[0]
        if isinstance(cause, OSError):
            # Without the address, which the error of the system names: this text reaches the clients of a service.
            return StoreUnavailable(f"the database of conversations cannot be reached ({type(cause).__name__})")
        kind = _find_error_class(cause)
        if problem := _UNUSABLE.get(kind):
            if self._engine is not None and kind in _MENDED:
                return StoreUnavailable(f"the database of conversations failed: {problem}")
            if isinstance(self._where, Path):
                hint, where = "choose another file, or move this one away", str(self._where)
                return ConfigError(f"{problem}: {cause}", hint=hint, path=where)
            return ConfigError(f"{problem}: {text}")
        return StoreUnavailable(
            f"the database of conversations failed: {_FAILED.get(kind, type(cause).__name__)} ({text})"
        )


def _find_error_class(cause: BaseException) -> str:
    """Return the name of SQLite's primary error code, or the class of PostgreSQL's SQLSTATE; empty for neither."""
    # asyncpg, or SQLAlchemy's adapter to it, sets `sqlstate`. An error of Python's module `sqlite3` itself, such as a
    # closed connection, has no name. Extended error codes have further words: SQLITE_READONLY_DIRECTORY.
    if sqlstate := getattr(cause, "sqlstate", None):
        return str(sqlstate)[:2]
    return str(getattr(cause, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]


async def _check_file(connection: AsyncConnection) -> list[str]:
    if connection.dialect.name != "sqlite":
        return []
    damage = [str(row[0]) for row in await connection.exec_driver_sql("PRAGMA quick_check") if row[0] != "ok"]
    orphans = (await connection.exec_driver_sql("PRAGMA foreign_key_check")).all()
    return damage + ([f"{len(orphans)} messages belong to no conversation"] if orphans else [])


async def _transaction(engine: AsyncEngine, operation: Callable[[AsyncConnection], Awaitable[T]], *, writes: bool) -> T:
    options: dict[str, Any] = {"writes": writes}
    if not writes and engine.dialect.name == "postgresql":
        # Each statement of such a transaction sees what is committed anyway: without it, BEGIN and COMMIT are saved.
        options["isolation_level"] = "AUTOCOMMIT"
    bound = engine.execution_options(**options)
    from sqlalchemy.exc import DBAPIError

    is_repeated = False
    while True:
        is_done = False
        try:
            async with bound.begin() as connection:
                result = await operation(connection)
                is_done = True
        except DBAPIError as error:
            # Once the operation is done, the COMMIT may have been carried out although its answer is lost. Before, the
            # server rolls back what a lost connection has done, so that an operation, also one that writes, runs again
            # on another connection from its beginning. Once only: a server that is away is the caller's to wait for.
            if is_done or is_repeated or not _has_lost_connection(error, engine):
                raise
            is_repeated = True
            log.debug("database_connection_lost", writes=writes)
        else:
            return result


def _has_lost_connection(error: DBAPIError, engine: AsyncEngine) -> bool:
    """Return True if a connection to a server was lost, and no statement has failed; a file has none to lose."""
    if engine.dialect.name != "postgresql":
        return False
    # Without an SQLSTATE the driver failed, not the server: the connection was closed, or is of no more use.
    sqlstate = str(getattr(error.orig, "sqlstate", "") or "")
    return error.connection_invalidated or not sqlstate or sqlstate.startswith(_LOST)


async def _migrate_schema(engine: AsyncEngine) -> None:
    known = len(migrations.MIGRATIONS)
    found = await _read_version(engine)
    if found > known:
        raise ConfigError(
            f"the database was made by a newer version of this program (schema {found}, this one knows up to {known})",
            hint="update dial-client",
            path=(engine.url.database or "") if engine.dialect.name == "sqlite" else "",
        )
    if found < known:
        # The version is read again under the lock, because another process may have migrated the schema meanwhile.
        await _transaction(engine, lambda connection: connection.run_sync(_migrate), writes=True)


def _migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
    for steps in migrations.MIGRATIONS[_read_version_sync(connection) :]:
        for step in (*steps, "UPDATE schema_version SET version = version + 1"):
            if callable(step):
                step(connection)
            else:
                connection.exec_driver_sql(step)


# The key of the advisory lock for migrations in PostgreSQL; in SQLite the transaction locks the file.
_MIGRATING = 0x6469616C


async def _read_version(engine: AsyncEngine) -> int:
    return await _transaction(engine, lambda connection: connection.run_sync(_read_version_sync), writes=False)


def _read_version_sync(connection: Connection) -> int:
    from sqlalchemy import inspect, text

    if not inspect(connection).has_table("schema_version"):
        return 0
    return int(connection.execute(text("SELECT version FROM schema_version")).scalar_one())


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


def check_address(where: Any) -> None:
    """Check, without loading a driver, that an argument can be the address of a database.

    Raises:
        ConfigError: It is a string, but not the URL of a supported database.
        TypeError: It is neither a path nor a string.
    """
    if isinstance(where, Path):
        return
    if not isinstance(where, str):
        raise TypeError(f"SQLStore takes a path or a URL, not {describe_type(where)}")
    scheme, separator, _ = where.partition("://")
    if not separator:
        raise ConfigError(_NOT_USABLE, hint=f"a file is SQLStore(Path({where!r})) or SQLStore.sqlite({where!r})")
    if scheme.partition("+")[0] not in ("sqlite", "postgresql", "postgres"):
        raise ConfigError(_NOT_USABLE, hint=_EXPECTED)


_INSTALL = "pip install 'dial-client[postgres]'"
_NOT_USABLE = "the address of the database is not supported"
_EXPECTED = 'for example "sqlite:////folder/file.db" or "postgresql://user@host/database"'


# The beginnings of the SQLSTATE of a lost connection: those of connections, and a server that shuts down or starts.
_LOST = ("08", "57P")
# The SQLSTATE of a write in a read-only transaction.
_READ_ONLY = "25006"


def _create_postgres_engine(url: URL, patience: float) -> AsyncEngine:
    from sqlalchemy import event
    from sqlalchemy.exc import InvalidatePoolError
    from sqlalchemy.ext.asyncio import create_async_engine

    # A process that is suspended during a transaction must not block other processes for ever.
    waits = {
        "lock_timeout": patience,
        "statement_timeout": MAX_SECONDS,
        "idle_in_transaction_session_timeout": MAX_SECONDS,
    }
    settings = {name: f"{max(1, round(seconds * 1000))}ms" for name, seconds in waits.items()}
    engine = create_async_engine(
        url.set(drivername=_POSTGRES),
        **_ENGINE,
        connect_args={"timeout": _CONNECTING, "server_settings": settings | {"application_name": "dial-client"}},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def watch_connection(connection: Any, _record: Any) -> None:
        transport = getattr(connection.driver_connection, "_transport", None)
        if transport is not None:
            notice_silence(transport.get_extra_info("socket"))

    @event.listens_for(engine.sync_engine, "checkout")
    def check_connection(connection: Any, record: Any, _fairy: Any) -> None:
        # SQLAlchemy's own test waits without end for a server that a failover has taken off the network.
        if not record.info:  # a new connection needs no test
            record.info["was_used"] = True
            return
        try:
            connection.run_async(lambda driver: driver.execute("SELECT 1", timeout=PING_TIMEOUT))
        except Exception as error:
            raise InvalidatePoolError from error

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave_standby(context: Any) -> None:
        # After a failover the old server may go on as a standby, which answers but cannot be written.
        if getattr(context.original_exception, "sqlstate", "") == _READ_ONLY:
            context.is_disconnect = True

    return engine


def notice_silence(connection: socket.socket) -> None:
    """Let a connection end whose other end acknowledges nothing for `SILENCE` seconds."""
    # A socket of the file system has none of these, and needs none.
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if (option := getattr(socket, name, None)) is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)


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
        url.set(drivername=_SQLITE, database=str(path)), **_ENGINE, connect_args={"timeout": patience}
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
        # What is deleted is overwritten: that is the default of Debian's SQLite, but not of Python's own builds.
        cursor.execute("PRAGMA secure_delete = ON")
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


def _empty_log(path: str, patience: float) -> None:
    """Write the log back into the file and make it empty, unless others read the file for longer than `patience`."""
    import sqlite3

    with closing(sqlite3.connect(path, timeout=patience)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


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


def build_clock_expression(connection: AsyncConnection) -> str:
    """Return the SQL expression for the current time of the database's clock, in seconds."""
    return CLOCKS[connection.dialect.name]

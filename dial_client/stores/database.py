"""The database of a store: opens and migrates it at its first use, and translates its errors.

SQLAlchemy is imported in a worker thread when the database is opened.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import anyio
import anyio.to_thread

from dial_client.messages.errors import ConfigError, DialError
from dial_client.runtime.logs import get_logger
from dial_client.stores import migrations
from dial_client.stores.database_engines import CLOCKS, MAX_SECONDS, create_engine

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = get_logger(__name__)

T = TypeVar("T")

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
_FAILED = {
    "BUSY": "another program keeps the database locked",
    "FULL": "the disk is full",
    "IOERR": "the disk cannot be read or written",
    "08": "the connection to the database broke",
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

    async def open(self) -> AsyncEngine:
        """Load the driver, create the database and migrate its schema; does nothing if the database is open.

        Raises:
            ConfigError: The database cannot be used, or a newer version of this program created it.
            DialError: The database failed.
        """
        if self._engine is not None:
            return self._engine
        async with self._opening:
            if self._engine is None:
                self._engine = await self._open_engine()
            return self._engine

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]], *, writes: bool) -> T:
        """Run `work` in one transaction, which is finished even if the caller is cancelled.

        Raises:
            ConfigError: The database cannot be used.
            DialError: The database failed, or did not answer in time; the transaction is rolled back.
        """
        try:
            with anyio.fail_after(MAX_SECONDS, shield=True):
                return await self._translate_errors(_transaction(await self.open(), work, writes=writes))
        except TimeoutError as error:
            raise DialError(f"the database did not answer within {MAX_SECONDS:g} seconds") from error

    async def find_version(self) -> int:
        """Return the version of the schema without migrating it; 0 for an empty database. Raises as `open`."""

        async def read(connection: AsyncConnection) -> int:
            return await connection.run_sync(_read_version)

        engine = await self._translate_errors(anyio.to_thread.run_sync(create_engine, self._where, self._patience))
        try:
            return await self._translate_errors(_transaction(engine, read, writes=False))
        finally:
            with anyio.CancelScope(shield=True):
                await engine.dispose()

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

    async def _translate_errors(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except _list_driver_errors() as error:
            raise self._to_dial_error(error) from error

    def _to_dial_error(self, error: Exception) -> DialError:
        cause = _find_cause(error)
        text = str(cause).partition("\n")[0]
        if isinstance(cause, OSError):
            return DialError(f"the database of conversations cannot be reached ({text or type(cause).__name__})")
        kind = _find_error_class(cause)
        if problem := _UNUSABLE.get(kind):
            if isinstance(self._where, Path):
                hint, where = "choose another file, or move this one away", str(self._where)
                return ConfigError(f"{problem}: {cause}", hint=hint, path=where)
            return ConfigError(f"{problem}: {text}")
        return DialError(f"the database of conversations failed: {_FAILED.get(kind, type(cause).__name__)} ({text})")


@runtime_checkable
class _PostgresError(Protocol):
    """An error of asyncpg, or of SQLAlchemy's adapter to it."""

    sqlstate: str | None


@runtime_checkable
class _SQLiteError(Protocol):
    """An error of SQLite; an error of Python's module `sqlite3` itself, such as a closed connection, has no name."""

    sqlite_errorname: str


def _find_cause(error: Exception) -> BaseException:
    """Return the driver's error inside an error of SQLAlchemy, or the error itself."""
    from sqlalchemy.exc import StatementError

    return (error.orig or error) if isinstance(error, StatementError) else error


def _find_error_class(cause: BaseException) -> str:
    """Return the name of SQLite's primary error code, or the class of PostgreSQL's SQLSTATE; empty for neither."""
    if isinstance(cause, _PostgresError) and cause.sqlstate:
        return cause.sqlstate[:2]
    if isinstance(cause, _SQLiteError):
        # Extended error codes have further words: SQLITE_READONLY_DIRECTORY.
        return cause.sqlite_errorname.removeprefix("SQLITE_").partition("_")[0]
    return ""


def _list_driver_errors() -> tuple[type[Exception], ...]:
    import sqlite3

    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError, sqlite3.Error, OSError


async def _transaction(engine: AsyncEngine, work: Callable[[AsyncConnection], Awaitable[T]], *, writes: bool) -> T:
    async with engine.execution_options(writes=writes).begin() as connection:
        return await work(connection)


async def _migrate_schema(engine: AsyncEngine) -> None:
    async def read_version(connection: AsyncConnection) -> int:
        return await connection.run_sync(_read_version)

    async def migrate(connection: AsyncConnection) -> None:
        # The version is read again under the lock, because another process may have migrated the schema meanwhile.
        await connection.run_sync(_migrate)

    known = len(migrations.MIGRATIONS)
    found = await _transaction(engine, read_version, writes=False)
    if found > known:
        raise ConfigError(
            f"the database was made by a newer version of this program (schema {found}, this one knows up to {known})",
            hint="update dial-client",
            path=(engine.url.database or "") if engine.dialect.name == "sqlite" else "",
        )
    if found < known:
        await _transaction(engine, migrate, writes=True)


def _migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
    for steps in migrations.MIGRATIONS[_read_version(connection) :]:
        for step in (*steps, "UPDATE schema_version SET version = version + 1"):
            if callable(step):
                step(connection)
            else:
                connection.exec_driver_sql(step)


_MIGRATING = 0x6469616C
"""The key of the advisory lock for migrations in PostgreSQL; in SQLite the transaction locks the file."""


def _read_version(connection: Connection) -> int:
    from sqlalchemy import inspect, text

    if not inspect(connection).has_table("schema_version"):
        return 0
    return int(connection.execute(text("SELECT version FROM schema_version")).scalar_one())


MAX_LEASE_SECONDS = 86_400.0
"""The longest lease in seconds. A longer lease counts as expired, because another program must have written it."""


def build_lease_expression(connection: AsyncConnection) -> str:
    """Return the SQL expression that is true while a turn holds the conversation."""
    clock = build_clock_expression(connection)
    # SQLite sorts text after all numbers, and PostgreSQL sorts NaN after them: the upper bound excludes both.
    return f"(turn <> '' AND held_until > {clock} AND held_until < {clock} + {MAX_LEASE_SECONDS})"


def build_clock_expression(connection: AsyncConnection) -> str:
    """Return the SQL expression for the current time of the database's clock, in seconds."""
    return CLOCKS[connection.dialect.name]


async def find_schema_versions(where: str | Path, *, patience: float) -> tuple[int, int]:
    """Return the version of a database's schema, and the version that this program uses; changes nothing.

    Raises:
        ConfigError: The database cannot be used.
        DialError: The database failed.
    """
    database = Database(where, patience=patience)
    return await database.find_version(), len(migrations.MIGRATIONS)

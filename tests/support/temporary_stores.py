"""Stores for tests: each in a place of its own, which is gone afterwards."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import sqlite3
import threading
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.inner import ConversationStore, MemoryStore, Message, SQLStore, ToolCallRequest, ToolCallResult

POSTGRES = os.environ.get("DIAL_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
"""A server on which databases can be made."""


def _reachable() -> bool:
    address = urlsplit(POSTGRES)
    with closing(socket.socket()) as probe:
        probe.settimeout(2)
        return probe.connect_ex((address.hostname or "127.0.0.1", address.port or 5432)) == 0


needs_dbos = pytest.mark.skipif(
    find_spec("dbos") is None, reason="DBOS is not installed: pip install 'dial-client[durable]'"
)
needs_postgres = pytest.mark.skipif(
    not _reachable(),
    reason=f"no PostgreSQL at {urlsplit(POSTGRES).hostname}:{urlsplit(POSTGRES).port}; `docker run -p 5432:5432"
    " -e POSTGRES_HOST_AUTH_METHOD=trust postgres` starts one, DIAL_TEST_POSTGRES names another",
)

KINDS = [
    pytest.param(("asyncio", "memory"), id="asyncio-memory"),
    pytest.param(("trio", "memory"), id="trio-memory"),
    pytest.param(("asyncio", "sqlite"), id="sqlite"),
    pytest.param(("asyncio", "postgres"), id="postgres", marks=needs_postgres),
]
"""Event loop and store."""
DATABASES = KINDS[2:]

CALL = ToolCallRequest("call_1", "now", {"zone": "Asia/Tokyo"})
MESSAGES = (
    Message.user("What time is it?"),
    Message.assistant("", [CALL]),
    Message.tool(CALL, ToolCallResult("call_1", success=True, content="12:00")),
    Message.assistant("Noon."),
)


_EMPTY_DATABASE = """
DO $$ DECLARE name text; BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
  CREATE SCHEMA public;
END $$
"""
_created_databases: list[str] = []
_free_databases: list[str] = []
"""Empty databases of this process. The server takes a quarter of a second of a processor to create and drop one."""


@asynccontextmanager
async def database_url() -> AsyncIterator[str]:
    """Provide the URL of an empty database on the server; further tests use the database again."""
    import asyncpg

    name = _free_databases.pop() if _free_databases else await _create_database()
    url = urlsplit(POSTGRES)._replace(path=f"/{name}").geturl()
    yield url
    server = await asyncpg.connect(url)
    try:
        await server.execute(_EMPTY_DATABASE)
    finally:
        await server.close()
    _free_databases.append(name)


async def _create_database() -> str:
    name = f"dial_test_{uuid.uuid4().hex}"
    if not _created_databases:
        atexit.register(lambda: asyncio.run(_drop_databases()))
    _created_databases.append(name)
    await _execute(f"CREATE DATABASE {name}")
    return name


async def _drop_databases() -> None:
    for name in _created_databases:
        await _execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def _execute(statement: str) -> None:
    import asyncpg

    server = await asyncpg.connect(POSTGRES)
    try:
        await server.execute(statement)
    finally:
        await server.close()


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncIterator[str]:
    """Return the address of a database for `SQLStore`; a store in memory has none."""
    if kind == "postgres":
        async with database_url() as url:
            yield url
    else:
        yield f"sqlite:///{folder / 'talk.db'}"


def store_at(kind: str, where: str) -> ConversationStore:
    return MemoryStore() if kind == "memory" else SQLStore(where)


def query(file: Path, statement: str, *parameters: Any) -> list[Any]:
    """Look into a SQLite file behind the store's back."""
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Be another program that writes to the file all the time."""
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield
        writer.execute("ROLLBACK")


def join_threads(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    """Return the threads, other than AnyIO's, that go on: one that has closed its connection may have a last step."""
    own = [thread for thread in threads if "AnyIO" not in thread.name]
    for thread in own:
        thread.join(30)
    return [thread for thread in own if thread.is_alive()]

"""The PostgreSQL store: error messages, and concurrent programs."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.inner import ConfigError, Database, DialError, Message, SQLStore
from tests.support.temporary_stores import MESSAGES, database_url, needs_postgres

pytestmark = pytest.mark.anyio

ANOTHER_PROGRAM = """
import sys
import anyio
from dial_client import Message, SQLStore

async def main(where, both):
    store = SQLStore(where)
    await store.open()
    print("ready", flush=True)
    for n in range(20):
        await store.append(both, [Message.user(f"theirs {n}"), Message.assistant(f"theirs {n}")])
    await store.aclose()

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


@pytest.fixture
async def where(anyio_backend: str) -> AsyncIterator[str]:
    async with database_url() as url:
        yield url


@needs_postgres
async def test_concurrent_writes_of_two_programs_lose_nothing(where: str) -> None:
    store = SQLStore(where)
    both = (await store.create("both")).id
    command = [sys.executable, "-c", ANOTHER_PROGRAM, where, both]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        await BufferedByteReceiveStream(process.stdout).receive_until(b"ready", 10_000)
        for n in range(20):
            await store.append(both, [Message.user(f"ours {n}"), Message.assistant(f"ours {n}")])
        with anyio.fail_after(60):
            assert await process.wait() == 0
    texts = [message.text for message in (await store.get(both)).messages]
    assert texts[::2] == texts[1::2]
    for who in ("ours", "theirs"):
        assert [text for text in texts[::2] if text.startswith(who)] == [f"{who} {n}" for n in range(20)]
    await store.aclose()


@needs_postgres
async def test_programs_can_create_the_tables_concurrently(where: str) -> None:
    stores = [SQLStore(where) for _ in range(4)]
    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(store.create)
    assert len(await stores[0].list()) == 4
    for store in stores:
        await store.aclose()


@needs_postgres
async def test_a_connection_that_works_is_used_again(where: str) -> None:
    async with SQLStore(where) as store:
        made = await store.create()
        engine = await store._database.open()
        opened = 0

        @event.listens_for(engine.sync_engine, "connect")
        def count(*_: object) -> None:
            nonlocal opened
            opened += 1

        for _ in range(3):
            await store.append(made.id, [Message.user("Again.")])
            await store.get(made.id)
    assert opened == 0


@needs_postgres
async def test_a_connection_that_broke_is_replaced(where: str) -> None:
    import asyncpg

    store = SQLStore(where)
    made = await store.create()
    server = await asyncpg.connect(where)
    condition = "datname = current_database() AND pid <> pg_backend_pid()"
    await server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}")
    await server.close()
    await store.append(made.id, MESSAGES)
    assert (await store.get(made.id)).messages == MESSAGES
    await store.aclose()


@dataclass
class Cut:
    """An operation whose connection the server ends while it runs, the first time or each time."""

    where: str
    writes: bool
    before_its_end: bool = True
    times: int = 1
    runs: int = 0

    async def run(self, connection: AsyncConnection) -> None:
        self.runs += 1
        if self.writes:
            await connection.exec_driver_sql("INSERT INTO owner_usage VALUES ('anna', '2026-11-28', 1, 0, 0, 0.0)")
        if self.runs <= self.times:
            await self._end((await connection.exec_driver_sql("SELECT pg_backend_pid()")).scalar_one())
        if self.before_its_end:
            await connection.exec_driver_sql("SELECT 1")

    async def _end(self, backend: int) -> None:
        import asyncpg

        server = await asyncpg.connect(self.where)
        await server.execute("SELECT pg_terminate_backend($1, 5000)", backend)
        await server.close()


async def count_rows(database: Database) -> int:
    async def count(connection: AsyncConnection) -> int:
        return int((await connection.exec_driver_sql("SELECT count(*) FROM owner_usage")).scalar_one())

    return await database.run(count, writes=False)


@needs_postgres
@pytest.mark.parametrize("writes", [False, True])
async def test_an_operation_whose_connection_is_cut_runs_again_on_a_fresh_connection(where: str, writes: bool) -> None:
    database, cut = Database(where, patience=5), Cut(where, writes)
    await database.run(cut.run, writes=writes)
    assert (cut.runs, await count_rows(database)) == (2, int(writes))
    assert database.failures == 0
    await database.aclose()


@needs_postgres
async def test_a_write_whose_commit_is_cut_does_not_run_again(where: str) -> None:
    database, cut = Database(where, patience=5), Cut(where, writes=True, before_its_end=False)
    with pytest.raises(DialError):
        await database.run(cut.run, writes=True)
    assert cut.runs == 1
    await database.aclose()


@needs_postgres
async def test_an_operation_whose_connections_are_cut_twice_is_an_error(where: str) -> None:
    database, cut = Database(where, patience=5), Cut(where, writes=True, times=2)
    with pytest.raises(DialError):
        await database.run(cut.run, writes=True)
    assert (cut.runs, await count_rows(database)) == (2, 0)
    await database.aclose()


@needs_postgres
async def test_a_locked_row_is_an_error_and_the_write_can_be_repeated(where: str) -> None:
    import asyncpg

    store = SQLStore(where, patience=0.05)
    made = await store.create()
    second = await asyncpg.connect(where)
    async with second.transaction():
        await second.execute("SELECT * FROM conversations FOR UPDATE")
        with pytest.raises(DialError, match="another program keeps the database locked"):
            await store.append(made.id, MESSAGES)
        assert (await store.get(made.id)).messages == ()
    await second.close()
    await store.append(made.id, MESSAGES)
    assert (await store.get(made.id)).messages == MESSAGES
    await store.aclose()


@needs_postgres
async def test_a_missing_database_is_a_config_error(where: str) -> None:
    store = SQLStore(f"{where}_not")
    with pytest.raises(ConfigError, match="there is no such database"):
        await store.list()
    await store.aclose()


async def test_an_unreachable_server_is_reported_without_the_password(free_tcp_port: int) -> None:
    store = SQLStore(f"postgresql://someone:secret@127.0.0.1:{free_tcp_port}/x")
    with pytest.raises(DialError, match="cannot be reached") as raised:
        await store.list()
    assert "secret" not in str(raised.value)
    await store.aclose()


async def test_the_error_for_a_missing_driver_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"asyncpg.*dial-client\[postgres\]"):
        await SQLStore("postgresql://nobody@nowhere/x").list()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this option")
async def test_a_connection_ends_when_the_server_acknowledges_nothing_any_more(where: str) -> None:
    async with SQLStore(where) as store:
        engine = await store._database.open()
        async with engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            opened = driver._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

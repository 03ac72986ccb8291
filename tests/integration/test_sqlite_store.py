"""The SQLite store: file permissions, errors, concurrent programs, and migration of older files."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.inner import ConfigError, ConversationNotFound, DialError, Message, SQLStore, migrations
from tests.support.temporary_stores import MESSAGES, join_threads, locked, query

pytestmark = pytest.mark.anyio
posix_only = pytest.mark.skipif(os.name != "posix", reason="there are no modes")

ANOTHER_PROGRAM = """
import sys
import anyio
from dial_client.messages.message import Message
from dial_client.stores.sql_store import SQLStore

async def main(file, both):
    store = SQLStore.sqlite(file)
    theirs = (await store.create("theirs")).id
    print("ready", flush=True)
    for n in range(40):
        for conversation in (theirs, both):
            await store.append(conversation, [Message.user(f"theirs {n}"), Message.assistant(f"theirs {n}")])
    await store.aclose()

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that databases need; one test overrides it."""
    return str(getattr(request, "param", "asyncio"))


@pytest.fixture
async def sql(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SQLStore]:
    made = SQLStore.sqlite(tmp_path / "talk.db")
    yield made
    await made.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk.db"


async def test_another_store_on_the_same_file_reads_appended_messages(file: Path) -> None:
    first, second = SQLStore.sqlite(file), SQLStore.sqlite(str(file))
    try:
        made = await first.create()
        await first.append(made.id, MESSAGES)
        assert (await second.get(made.id)).messages == MESSAGES
        assert await second.list() == await first.list()
    finally:
        await first.aclose()
        await second.aclose()


async def test_a_closed_store_leaves_one_file_and_no_thread(sql: SQLStore, file: Path) -> None:
    before = set(threading.enumerate())
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(sql.create)
    await sql.aclose()
    assert join_threads(set(threading.enumerate()) - before) == []
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_start_that_is_cancelled_needs_its_event_loop_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, failures = set(threading.enumerate()), list[Any]()
    monkeypatch.setattr(threading, "excepthook", failures.append)

    def find_new() -> set[threading.Thread]:
        return {each for each in set(threading.enumerate()) - before if "connection" in each.name}  # of aiosqlite

    async def start() -> None:
        store = SQLStore(tmp_path / "conversations.db")
        async with anyio.create_task_group() as group:
            group.start_soon(store.open)
            while not find_new():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await store.aclose()

    anyio.run(start)
    join_threads(find_new())
    assert failures == []


async def test_every_append_is_forced_to_the_disk(sql: SQLStore) -> None:
    await sql.open()

    async def setting(name: str) -> Any:
        async def work(connection: Any) -> Any:
            return (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()

        return await sql._database.run(work, writes=False)

    assert await setting("journal_mode") == "wal"
    assert await setting("synchronous") == 2
    assert await setting("foreign_keys") == 1


async def test_an_append_is_all_or_nothing(sql: SQLStore, file: Path) -> None:
    made = await sql.create()
    await sql.append(made.id, MESSAGES[:1])
    query(file, "INSERT INTO messages SELECT conversation_id, 3, created_at, message, words FROM messages")
    with pytest.raises(DialError):
        await sql.append(made.id, MESSAGES[1:])
    query(file, "DELETE FROM messages WHERE position = 3")
    assert (await sql.get(made.id)).messages == MESSAGES[:1]
    await sql.append(made.id, MESSAGES[1:])
    assert (await sql.get(made.id)).messages == MESSAGES
    assert query(file, "SELECT position FROM messages ORDER BY position") == [(0,), (1,), (2,), (3,)]


async def test_deleting_leaves_no_message_in_the_file(sql: SQLStore, file: Path) -> None:
    made = await sql.create()
    await sql.append(made.id, MESSAGES)
    await sql.delete(made.id)
    assert query(file, "SELECT count(*) FROM messages") == [(0,)]


async def test_an_error_of_a_writer_does_not_affect_concurrent_writers(sql: SQLStore, file: Path) -> None:
    wrong, fine = await sql.create(), [await sql.create() for _ in range(5)]
    await sql.append(wrong.id, MESSAGES[:1])
    query(file, "INSERT INTO messages SELECT conversation_id, 1, created_at, message, words FROM messages")
    failed: list[str] = []

    async def append(conversation_id: str) -> None:
        try:
            await sql.append(conversation_id, MESSAGES)
        except DialError:
            failed.append(conversation_id)

    async with anyio.create_task_group() as group:
        for made in (fine[0], wrong, *fine[1:]):
            group.start_soon(append, made.id)
    assert failed == [wrong.id]
    assert [(await sql.get(made.id)).messages for made in fine] == [MESSAGES] * 5


async def test_a_cancelled_append_that_waits_for_a_lock_is_completed(file: Path) -> None:
    store = SQLStore.sqlite(file)
    made = await store.create()
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(store.append, made.id, MESSAGES)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            writer.execute("ROLLBACK")
    assert (await store.get(made.id)).messages == MESSAGES
    await store.aclose()


async def test_a_cancelled_writer_does_not_affect_concurrent_writers(file: Path) -> None:
    store = SQLStore.sqlite(file)
    made = [await store.create() for _ in range(3)]
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        tasks = [asyncio.create_task(store.append(conversation.id, MESSAGES)) for conversation in made]
        await anyio.wait_all_tasks_blocked()
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        assert tasks[0].cancelled()
        writer.execute("ROLLBACK")
        await asyncio.gather(*tasks[1:])
    await store.aclose()
    assert [len((await store.get(conversation.id)).messages) for conversation in made] == [4, 4, 4]
    await store.aclose()


async def test_a_lasting_lock_is_an_error_and_the_write_can_be_repeated(file: Path) -> None:
    store = SQLStore(file, patience=0.05)
    made = await store.create()
    with locked(file):
        with pytest.raises(DialError, match="another program keeps the database locked"):
            await store.append(made.id, MESSAGES)
        assert (await store.get(made.id)).messages == ()
    await store.append(made.id, MESSAGES)
    assert (await store.get(made.id)).messages == MESSAGES
    await store.aclose()


async def test_a_lost_database_is_logged_once_and_again_when_it_is_back(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SQLStore(file, patience=0.05)
    made = await store.create()
    with caplog.at_level(logging.INFO, logger="dial_client"):
        with locked(file):
            for _ in range(3):
                with pytest.raises(DialError):
                    await store.append(made.id, MESSAGES)
        for _ in range(2):
            await store.append(made.id, MESSAGES)
        with pytest.raises(ConversationNotFound):
            await store.append("no-such-id", MESSAGES)
    events = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert events == ["event='database_failed'", "event='database_works_again'"]
    await store.aclose()


async def test_concurrent_writes_of_two_programs_lose_nothing(sql: SQLStore, file: Path) -> None:
    ours, both = await sql.create("ours"), await sql.create("both")
    async with await anyio.open_process(
        [sys.executable, "-c", ANOTHER_PROGRAM, str(file), both.id], stderr=None
    ) as process:
        assert process.stdout is not None
        await BufferedByteReceiveStream(process.stdout).receive_until(b"ready", 10_000)
        for n in range(40):
            for conversation in (ours, both):
                messages = [Message.user(f"ours {n}"), Message.assistant(f"ours {n}")]
                await sql.append(conversation.id, messages)
        with anyio.fail_after(60):
            assert await process.wait() == 0
    assert {entry.title: entry.message_count for entry in await sql.list()} == {"ours": 80, "theirs": 80, "both": 160}
    texts = [message.text for message in (await sql.get(both.id)).messages]
    assert texts[::2] == texts[1::2]
    for who in ("ours", "theirs"):
        assert [text for text in texts[::2] if text.startswith(who)] == [f"{who} {n}" for n in range(40)]


async def test_programs_can_create_the_file_concurrently(tmp_path: Path) -> None:
    for attempt in range(10):
        stores = [SQLStore.sqlite(tmp_path / f"{attempt}.db") for _ in range(4)]
        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(store.create)
        assert len(await stores[0].list()) == 4
        for store in stores:
            await store.aclose()


async def test_opening_waits_for_a_program_that_creates_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(time, "sleep", lambda _seconds: writer.execute("ROLLBACK"))
        store = SQLStore.sqlite(file)
        await store.create()
        await store.aclose()
        assert not writer.in_transaction


async def test_errors_do_not_contain_the_messages(sql: SQLStore, file: Path) -> None:
    made = await sql.create()
    secret = uuid.uuid4().hex
    query(file, "DROP TABLE messages")
    with pytest.raises(DialError) as raised:
        await sql.append(made.id, [Message.user(secret)])
    assert secret not in "".join(traceback.format_exception(raised.value))


@pytest.fixture(params=[0, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@posix_only
@pytest.mark.usefixtures("umask")
async def test_files_and_folders_are_private_with_any_umask(tmp_path: Path) -> None:
    store = SQLStore.sqlite(tmp_path / "new" / "er" / "talk.db")
    await store.create()
    folder = tmp_path / "new" / "er"
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        "talk.db": 0o600,
        "talk.db-wal": 0o600,
        "talk.db-shm": 0o600,
    }
    assert [mode(folder), mode(folder.parent)] == [0o700, 0o700]
    await store.aclose()


@posix_only
async def test_a_world_readable_file_is_made_private_and_its_folder_is_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    file = folder / "talk.db"
    file.touch()
    file.chmod(0o644)
    store = SQLStore.sqlite(file)
    await store.create()
    assert mode(file) == 0o600
    assert mode(folder) == 0o755
    await store.aclose()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("folder", "this is not a file"),
        ("text.db", "this is not a database"),
        ("text.db/under/a/file.db", "conversations cannot be kept here"),
        ("zero\0.db", "conversations cannot be kept here"),
        ("foreign.db", "this is not a database of conversations"),
        ("newer.db", "made by a newer version of this program"),
    ],
)
async def test_a_file_that_is_not_a_store_is_an_error(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("Dear diary, " * 500)
    query(tmp_path / "foreign.db", "CREATE TABLE conversations (name TEXT)")
    query(tmp_path / "newer.db", "CREATE TABLE schema_version (version INTEGER)")
    query(tmp_path / "newer.db", "INSERT INTO schema_version VALUES (1000)")
    store = SQLStore.sqlite(tmp_path / name)
    for _ in range(2):
        with pytest.raises(ConfigError, match=problem) as raised:
            await store.open()
        assert raised.value.path == str(tmp_path / name)
    assert (tmp_path / "text.db").read_text() == "Dear diary, " * 500
    await store.aclose()


async def test_a_damaged_file_is_reported_and_intact_files_can_still_be_used(tmp_path: Path) -> None:
    store, fine = SQLStore.sqlite(tmp_path / "damaged.db"), SQLStore.sqlite(tmp_path / "fine.db")
    made = await store.create()
    await store.append(made.id, [Message.user("x" * 100_000)])
    await store.aclose()
    content = bytearray((tmp_path / "damaged.db").read_bytes())
    content[4096:] = b"\xff" * len(content[4096:])
    (tmp_path / "damaged.db").write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged\.db: the database is damaged"):
        await store.get(made.id)
    await fine.create()
    await store.aclose()
    await fine.aclose()


async def test_a_file_can_be_named_by_a_url(file: Path) -> None:
    by_url, by_path = SQLStore(f"sqlite:///{file}"), SQLStore.sqlite(file)
    made = await by_url.create()
    assert await by_path.get(made.id) == made
    await by_url.aclose()
    await by_path.aclose()


@pytest.mark.parametrize(
    "where", ["nonsense", "sqlite://", "sqlite:///:memory:", "oracle+nothing://me:secret@nowhere/x"]
)
async def test_an_invalid_url_is_reported_without_its_password(where: str) -> None:
    with pytest.raises(ConfigError, match=r"is not supported|names no file") as raised:
        await SQLStore(where).list()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_a_database_under_trio_is_a_config_error(file: Path) -> None:
    with pytest.raises(ConfigError, match="needs asyncio"):
        await SQLStore.sqlite(file).list()
    assert list(file.parent.iterdir()) == []


async def test_a_database_of_the_first_version_is_migrated_and_keeps_its_content(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = '{"role": "user", "content": [{"type": "text", "text": "Where is Köln?"}]}'
    for statement in migrations.MIGRATIONS[0]:
        assert isinstance(statement, str)
        query(file, statement)
    query(file, "UPDATE schema_version SET version = 1")
    time_text = "2026-01-01T00:00:00.000000+00:00"
    query(file, "INSERT INTO conversations VALUES ('a', 'Città', ?, ?, 2)", time_text, time_text)
    for position, message in enumerate((body, "{damaged")):
        query(file, "INSERT INTO messages VALUES ('a', ?, ?, ?)", position, time_text, message)
    store = SQLStore.sqlite(file)
    for search in ("KÖLN", "CITTÀ"):
        assert [conversation.id for conversation in await store.list(search=search)] == ["a"]
    assert [message.text for message in (await store.get("a")).messages] == ["Where is Köln?"]
    assert await store.acquire("a", "one", MESSAGES, expected_count=2, lease=10.0, title="")
    await store.aclose()


async def test_a_failed_migration_changes_nothing(sql: SQLStore, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await sql.create()
    await sql.append(made.id, MESSAGES)
    await sql.aclose()
    older = migrations.MIGRATIONS
    broken = ("CREATE TABLE half (x INTEGER)", "this is not SQL")
    monkeypatch.setattr(migrations, "MIGRATIONS", (*older, broken))
    with pytest.raises(ConfigError):
        await sql.list()
    assert query(
        file, "SELECT version, (SELECT count(*) FROM sqlite_master WHERE name = 'half') FROM schema_version"
    ) == [(len(older), 0)]
    monkeypatch.setattr(migrations, "MIGRATIONS", (*older, ("ALTER TABLE conversations ADD COLUMN parent TEXT",)))
    assert (await sql.get(made.id)).messages == MESSAGES
    assert query(file, "SELECT version FROM schema_version") == [(len(older) + 1,)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folder is named by the environment on Linux only")
async def test_without_a_path_the_users_data_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    store = SQLStore.sqlite()
    await store.create()
    await store.aclose()
    assert mode(tmp_path / "data" / "dial-client" / "conversations.db") == 0o600


def test_importing_the_store_loads_no_database() -> None:
    program = (
        "import sys; from dial_client.stores.sql_store import SQLStore; SQLStore.sqlite('x.db');"
        "print([name for name in ('sqlalchemy', 'aiosqlite', 'sqlite3', 'platformdirs') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"

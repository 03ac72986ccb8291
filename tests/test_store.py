"""Conversation stores: one contract for all, and what a file on the disk has to stand besides."""

from __future__ import annotations

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from hypothesis import given, settings
from hypothesis import strategies as st

from dial_client import database
from dial_client.errors import ConfigError, ConversationNotFound, DialError
from dial_client.messages import (
    Echo,
    FilePart,
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
)
from dial_client.store import MAX_TITLE, ConversationStore, MemoryStore, SQLStore, one_line

pytestmark = pytest.mark.anyio
every_store = pytest.mark.parametrize(
    ("anyio_backend", "store"),
    [("asyncio", "memory"), ("trio", "memory"), ("asyncio", "sqlite")],
    indirect=True,
)
posix_only = pytest.mark.skipif(os.name != "posix", reason="there are no modes")

CALL = ToolCallRequest("call_1", "now", {"zone": "Asia/Tokyo"})
MESSAGES = (
    Message.user("What time is it?"),
    Message.assistant("", [CALL]),
    Message.tool(CALL, ToolCallResult("call_1", success=True, content="12:00")),
    Message.assistant("Noon."),
)


ANOTHER_PROGRAM = """
import sys
import anyio
from dial_client.messages import Message
from dial_client.store import SQLStore

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
    """A database needs asyncio; what is said of every store is said of trio too."""
    return str(getattr(request, "param", "asyncio"))


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[ConversationStore]:
    made: ConversationStore = MemoryStore() if request.param == "memory" else SQLStore.sqlite(tmp_path / "talk.db")
    yield made
    await made.aclose()


@pytest.fixture
async def sql(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SQLStore]:
    made = SQLStore.sqlite(tmp_path / "talk.db")
    yield made
    await made.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk.db"


def query(file: Path, statement: str, *parameters: Any) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


@every_store
async def test_a_new_conversation_is_empty_and_can_be_read_back(store: ConversationStore) -> None:
    before = datetime.now(UTC)
    made = await store.create("About time")
    assert made.title == "About time"
    assert made.messages == ()
    assert before <= made.created_at == made.updated_at <= datetime.now(UTC)
    assert await store.get(made.id) == made


@every_store
async def test_messages_come_back_in_the_order_in_which_they_were_appended(store: ConversationStore) -> None:
    made = await store.create()
    await store.append(made.id, MESSAGES[:1])
    await store.append(made.id, MESSAGES[1:3])
    await store.append(made.id, [])
    await store.append(made.id, MESSAGES[3:])
    read = await store.get(made.id)
    assert read.messages == MESSAGES
    assert read.notes == ()
    assert read.created_at == made.created_at
    assert read.updated_at.tzinfo is not None
    assert read.updated_at > made.updated_at


@every_store
async def test_conversations_do_not_see_each_others_messages(store: ConversationStore) -> None:
    one, other = await store.create(), await store.create()
    await store.append(one.id, [Message.user("one")])
    await store.append(other.id, [Message.user("other")])
    assert (await store.get(one.id)).messages == (Message.user("one"),)
    assert (await store.get(other.id)).messages == (Message.user("other"),)


@every_store
async def test_the_title_is_given_once(store: ConversationStore) -> None:
    made = await store.create()
    assert made.title == ""
    await store.append(made.id, MESSAGES[:1], title="What time\nis it?")
    await store.append(made.id, MESSAGES[3:], title="something else")
    assert (await store.get(made.id)).title == "What time is it?"


@every_store
async def test_the_list_begins_with_what_changed_last(store: ConversationStore) -> None:
    assert await store.list() == ()
    assert await store.latest() is None
    first, second, third = [await store.create(title) for title in ("first", "second", "third")]
    await store.append(first.id, MESSAGES)
    listed = await store.list()
    assert [one.title for one in listed] == ["first", "third", "second"]
    assert [one.message_count for one in listed] == [4, 0, 0]
    assert listed[0].created_at == first.created_at
    assert listed[0].updated_at > first.updated_at
    assert listed[2].id == second.id
    assert [one.id for one in await store.list(2)] == [first.id, third.id]
    assert await store.latest() == listed[0]


@every_store
async def test_what_is_deleted_is_gone(store: ConversationStore) -> None:
    kept, gone = await store.create(), await store.create()
    for made in (kept, gone):
        await store.append(made.id, MESSAGES)
    await store.delete(gone.id)
    assert [one.id for one in await store.list()] == [kept.id]
    assert (await store.get(kept.id)).messages == MESSAGES
    for attempt in (store.get(gone.id), store.append(gone.id, MESSAGES), store.delete(gone.id)):
        with pytest.raises(ConversationNotFound, match=gone.id):
            await attempt


@every_store
@pytest.mark.parametrize("unknown", ["", "nobody", "\ud800", "a\0b", "x" * 1000, "' OR 1=1 --"])
async def test_an_unknown_conversation_is_said_to_be_unknown(store: ConversationStore, unknown: str) -> None:
    await store.create()
    for attempt in (store.get(unknown), store.append(unknown, MESSAGES), store.delete(unknown)):
        with pytest.raises(ConversationNotFound):
            await attempt
    assert len(await store.list()) == 1


@every_store
async def test_appends_side_by_side_all_arrive_and_stay_whole(store: ConversationStore) -> None:
    conversations = [await store.create() for _ in range(8)]

    async def talk(conversation_id: str, who: int) -> None:
        for n in range(5):
            await store.append(conversation_id, [Message.user(f"{who} {n}"), Message.assistant(f"{who} {n}")])

    async with anyio.create_task_group() as group:
        for conversation in conversations:
            for who in range(3):
                group.start_soon(talk, conversation.id, who)
    for conversation in conversations:
        texts = [message.text for message in (await store.get(conversation.id)).messages]
        assert len(texts) == 30
        assert texts[::2] == texts[1::2]
        for who in range(3):
            assert [text for text in texts[::2] if text[0] == str(who)] == [f"{who} {n}" for n in range(5)]


@every_store
async def test_closing_twice_is_closing(store: ConversationStore) -> None:
    await store.create()
    await store.aclose()
    await store.aclose()


def as_characters(text: str) -> str:
    """Two surrogates that make a pair are the character they stand for, here as in every JSON."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts = st.text(st.characters(), max_size=20).map(as_characters)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
parts = st.builds(TextPart, texts) | st.builds(ImagePart, texts, texts) | st.builds(FilePart, texts, texts, texts)
contents = texts | st.lists(parts, max_size=3).map(tuple)
calls = st.builds(ToolCallRequest, texts, texts, st.dictionaries(names, json_values, max_size=3), st.none() | texts)
messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=contents,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
    is_error=st.booleans(),
    echo=st.none() | st.builds(Echo, texts, json_values),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[anyio.from_thread.BlockingPortal, SQLStore]]:
    store = SQLStore.sqlite(tmp_path_factory.mktemp("shared") / "talk.db")
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        yield portal, store
        portal.call(store.aclose)


@settings(max_examples=150, deadline=None)
@given(chunks=st.lists(st.lists(messages, max_size=3), max_size=3), title=texts)
def test_any_message_comes_back_equal(
    shared: tuple[anyio.from_thread.BlockingPortal, SQLStore], chunks: list[list[Message]], title: str
) -> None:
    portal, store = shared
    made = portal.call(store.create, title)
    for chunk in chunks:
        portal.call(store.append, made.id, chunk)
    read = portal.call(store.get, made.id)
    assert read.messages == tuple(message for chunk in chunks for message in chunk)
    assert read.title == made.title


@pytest.mark.parametrize(
    ("said", "stored"),
    [("a\0b", "a\0b"), ("\ud800", "\ud800"), ("\udc80 caf\udce9", "\udc80 caf\udce9"), ("\ud83d\ude00", "😀")],
)
async def test_text_that_no_text_column_takes_is_stored_all_the_same(sql: SQLStore, said: str, stored: str) -> None:
    made = await sql.create(said)
    await sql.append(made.id, [Message.user(said)])
    assert (await sql.get(made.id)).messages == (Message.user(stored),)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("What time is it?", "What time is it?"),
        ("  two\r\n lines\t", "two lines"),
        ("\x1b[31mred\x07 \u202eevil\ud800\0", "[31mred evil"),
        ("word " * 30, " ".join(["word"] * 12) + "…"),
        ("x" * 100, "x" * 59 + "…"),
        ("語" * 100, "語" * 59 + "…"),
        ("short " + "x" * 100, "short " + "x" * 53 + "…"),
        ("x" * 60, "x" * 60),
    ],
)
def test_a_title_is_the_first_words_in_one_line(text: str, title: str) -> None:
    assert one_line(text) == title


@given(st.text(st.characters(), max_size=500))
def test_a_title_is_short_and_harmless_whatever_was_said(text: str) -> None:
    title = one_line(text)
    assert len(title) <= MAX_TITLE
    assert title == "" or title.isprintable()
    assert title == title.strip()


async def test_another_store_on_the_same_file_reads_what_was_appended(file: Path) -> None:
    one, other = SQLStore.sqlite(file), SQLStore.sqlite(str(file))
    try:
        made = await one.create()
        await one.append(made.id, MESSAGES)
        assert (await other.get(made.id)).messages == MESSAGES
        assert await other.list() == await one.list()
    finally:
        await one.aclose()
        await other.aclose()


async def test_a_closed_store_leaves_one_file_and_no_thread(sql: SQLStore, file: Path) -> None:
    before = set(threading.enumerate())
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(sql.create)
    await sql.aclose()
    assert [thread for thread in set(threading.enumerate()) - before if "AnyIO" not in thread.name] == []
    assert [path.name for path in file.parent.iterdir()] == [file.name]


async def test_every_append_is_forced_to_the_disk(sql: SQLStore) -> None:
    await sql.warm()

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
    query(file, "INSERT INTO messages SELECT conversation_id, 3, created_at, message FROM messages")
    with pytest.raises(DialError):
        await sql.append(made.id, MESSAGES[1:])
    query(file, "DELETE FROM messages WHERE position = 3")
    assert (await sql.get(made.id)).messages == MESSAGES[:1]
    await sql.append(made.id, MESSAGES[1:])
    assert (await sql.get(made.id)).messages == MESSAGES
    assert query(file, "SELECT position FROM messages ORDER BY position") == [(0,), (1,), (2,), (3,)]


async def test_a_message_that_is_not_json_is_refused_with_all_beside_it(sql: SQLStore) -> None:
    made = await sql.create()
    with pytest.raises(DialError, match="cannot be stored"):
        await sql.append(made.id, [Message.user("fine"), Message(Role.ASSISTANT, echo=Echo("x", object()))])
    assert (await sql.get(made.id)).messages == ()


async def test_deleting_leaves_no_message_in_the_file(sql: SQLStore, file: Path) -> None:
    made = await sql.create()
    await sql.append(made.id, MESSAGES)
    await sql.delete(made.id)
    assert query(file, "SELECT count(*) FROM messages") == [(0,)]


async def test_an_append_that_waits_for_another_program_is_finished_though_cancelled(file: Path) -> None:
    store = SQLStore.sqlite(file)
    made = await store.create()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(store.append, made.id, MESSAGES)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            other.execute("ROLLBACK")
    assert (await store.get(made.id)).messages == MESSAGES
    await store.aclose()


async def test_a_lock_that_lasts_is_reported_and_can_be_tried_again(file: Path) -> None:
    store = SQLStore(file, patience=0.05)
    made = await store.create()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DialError, match="another program keeps the database locked"):
            await store.append(made.id, MESSAGES)
        assert (await store.get(made.id)).messages == ()
    await store.append(made.id, MESSAGES)
    assert (await store.get(made.id)).messages == MESSAGES
    await store.aclose()


async def test_two_programs_write_at_once_and_lose_nothing(sql: SQLStore, file: Path) -> None:
    ours, both = await sql.create("ours"), await sql.create("both")
    async with await anyio.open_process(
        [sys.executable, "-c", ANOTHER_PROGRAM, str(file), both.id], stderr=None
    ) as process:
        assert process.stdout is not None
        await BufferedByteReceiveStream(process.stdout).receive_until(b"ready", 10_000)
        for n in range(40):
            for conversation in (ours, both):
                said = [Message.user(f"ours {n}"), Message.assistant(f"ours {n}")]
                await sql.append(conversation.id, said)
        with anyio.fail_after(60):
            assert await process.wait() == 0
    assert {one.title: one.message_count for one in await sql.list()} == {"ours": 80, "theirs": 80, "both": 160}
    texts = [message.text for message in (await sql.get(both.id)).messages]
    assert texts[::2] == texts[1::2]
    for who in ("ours", "theirs"):
        assert [text for text in texts[::2] if text.startswith(who)] == [f"{who} {n}" for n in range(40)]


async def test_programs_that_make_the_file_at_the_same_moment_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    for attempt in range(10):
        stores = [SQLStore.sqlite(tmp_path / f"{attempt}.db") for _ in range(4)]
        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(store.create)
        assert len(await stores[0].list()) == 4
        for store in stores:
            await store.aclose()


async def test_a_file_that_another_program_is_just_making_is_waited_for(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(time, "sleep", lambda _seconds: other.execute("ROLLBACK"))
        store = SQLStore.sqlite(file)
        await store.create()
        await store.aclose()
        assert not other.in_transaction


async def test_a_message_that_cannot_be_read_is_left_out_and_said_to_be(sql: SQLStore, file: Path) -> None:
    made = await sql.create("damaged")
    await sql.append(made.id, MESSAGES)
    for position, text in ((0, "{"), (2, '{"role": "wizard"}'), (3, '["role"]')):
        query(file, "UPDATE messages SET message = ? WHERE position = ?", text, position)
    read = await sql.get(made.id)
    assert read.messages == MESSAGES[1:2]
    assert read.notes == tuple(f"message {n} cannot be read and is left out" for n in (1, 3, 4))
    assert [one.message_count for one in await sql.list()] == [4]
    await sql.append(made.id, MESSAGES[3:])
    assert (await sql.get(made.id)).messages == (MESSAGES[1], MESSAGES[3])


async def test_errors_do_not_repeat_what_was_said(sql: SQLStore, file: Path) -> None:
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
async def test_files_and_folders_are_for_their_owner_whatever_the_umask(tmp_path: Path) -> None:
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
async def test_a_file_that_others_could_read_is_shut_and_its_folder_left_alone(tmp_path: Path) -> None:
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
async def test_a_file_that_is_no_store_is_reported(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("Dear diary, " * 500)
    query(tmp_path / "foreign.db", "CREATE TABLE conversations (name TEXT)")
    query(tmp_path / "newer.db", "CREATE TABLE schema_version (version INTEGER)")
    query(tmp_path / "newer.db", "INSERT INTO schema_version VALUES (1000)")
    store = SQLStore.sqlite(tmp_path / name)
    for _ in range(2):
        with pytest.raises(ConfigError, match=problem) as raised:
            await store.warm()
        assert raised.value.path == str(tmp_path / name)
    assert (tmp_path / "text.db").read_text() == "Dear diary, " * 500
    await store.aclose()


async def test_a_damaged_file_is_reported_and_others_can_still_be_used(tmp_path: Path) -> None:
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
async def test_a_url_that_is_no_use_is_reported_without_its_password(where: str) -> None:
    with pytest.raises(ConfigError, match=r"no database that can be used|has no file") as raised:
        await SQLStore(where).list()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_a_database_under_trio_is_refused_in_words(file: Path) -> None:
    with pytest.raises(ConfigError, match="needs asyncio"):
        await SQLStore.sqlite(file).list()
    assert list(file.parent.iterdir()) == []


async def test_an_older_database_is_brought_up_to_date_and_keeps_what_it_holds(
    sql: SQLStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await sql.create()
    await sql.append(made.id, MESSAGES)
    await sql.aclose()
    older = database.MIGRATIONS
    broken = ("CREATE TABLE half (x INTEGER)", "this is not SQL")
    monkeypatch.setattr(database, "MIGRATIONS", (*older, broken))
    with pytest.raises(ConfigError):
        await sql.list()
    assert query(
        file, "SELECT version, (SELECT count(*) FROM sqlite_master WHERE name = 'half') FROM schema_version"
    ) == [(len(older), 0)]
    monkeypatch.setattr(database, "MIGRATIONS", (*older, ("ALTER TABLE conversations ADD COLUMN parent TEXT",)))
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
        "import sys, dial_client.store; from dial_client.store import SQLStore; SQLStore.sqlite('x.db');"
        "print([name for name in ('sqlalchemy', 'aiosqlite', 'sqlite3', 'platformdirs') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"

"""What a database has of a person: exported, erased to the last row, deleted when it is old, backed up and restored."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from anyio import run_process
from sqlalchemy import inspect, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.inner import Message, SQLStore, delete_old, delete_old_files
from tests.support.program import dial_chat
from tests.support.temporary_stores import MESSAGES, database_url, needs_postgres

pytestmark = pytest.mark.anyio

SECRET = "the launch is on Friday"
DATABASES = ["sqlite", pytest.param("postgres", marks=needs_postgres)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def open_store(kind: str, folder: Path) -> AsyncIterator[SQLStore]:
    if kind == "sqlite":
        async with SQLStore(folder / "company.db") as store:
            yield store
        return
    async with database_url() as url, SQLStore(url) as store:
        yield store


async def dump(store: SQLStore) -> str:
    """Return all values of all tables as one text."""
    where = str(store.where).replace("postgresql:", "postgresql+asyncpg:")
    engine = create_async_engine(where if "://" in where else f"sqlite+aiosqlite:///{where}")
    async with engine.connect() as connection:
        tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        assert "conversations" in tables
        rows = [(await connection.execute(text(f"SELECT * FROM {table}"))).all() for table in tables]
    await engine.dispose()
    return str(rows)


async def fill(store: SQLStore, owner: str) -> None:
    conversation = await store.create("plans", MESSAGES, owner=owner)
    await store.append(conversation.id, [Message.user(f"{owner}: {SECRET}")])
    await store.tokens.create("laptop", owner, ["chat"])
    # What is of a person is not what names this person.
    body = json.dumps({"messages": [SECRET, "anna_%"], "owner": owner}, separators=(",", ":"))
    await store.values.put("response", conversation.id, body, 600.0)


@pytest.mark.parametrize("kind", DATABASES)
async def test_of_a_person_who_is_erased_nothing_is_left_in_any_table(tmp_path: Path, kind: str) -> None:
    async with open_store(kind, tmp_path) as store:
        await fill(store, "anna_%")
        for _ in range(60):  # more than a batch
            await store.create("more", [Message.user(SECRET)], owner="anna_%")
        exported = [row async for row in store.owner_data.export("anna_%")]
        counts = await store.owner_data.erase("anna_%")
        left = await dump(store)
        await fill(store, "bob")
        before = await dump(store)
        none = [await store.owner_data.erase(owner) for owner in ("", "bo", "anna_%")]
        after = await dump(store)
    assert (counts["conversations"], counts["access_tokens"], counts["shared_values"]) == (61, 1, 1)
    assert [row["kind"] for row in exported] == ["conversation"] * 61 + ["access_tokens"]
    assert SECRET in json.dumps(exported)
    assert "digest" not in exported[-1]
    assert "anna" not in left
    assert SECRET not in left
    assert not any(any(count.values()) for count in none)
    assert before == after
    assert SECRET in after


@pytest.mark.parametrize("how", ["erased", "too old"])
async def test_of_what_is_deleted_nothing_is_left_in_the_files_of_a_service_that_runs_on(
    tmp_path: Path, how: str
) -> None:
    def find_secret() -> list[str]:
        return [path.name for path in tmp_path.iterdir() if SECRET.encode() in path.read_bytes()]

    async with open_store("sqlite", tmp_path) as service, SQLStore(service.where) as command:
        await service.create("plans", [Message.user(SECRET)], owner="anna")
        before = find_secret()
        if how == "erased":
            await command.owner_data.erase("anna")
        else:
            await delete_old(command, None, datetime.now(UTC) + timedelta(seconds=1))
        left = find_secret()
    assert before == ["company.db-wal"]
    assert left == []


@pytest.mark.parametrize("kind", DATABASES)
async def test_old_conversations_are_deleted_but_not_those_whose_turn_runs(tmp_path: Path, kind: str) -> None:
    async with open_store(kind, tmp_path) as store:
        ended = [await store.create("old", MESSAGES) for _ in range(60)]
        running = await store.create("running", MESSAGES)
        await store.acquire(running.id, "turn", [], expected_count=len(MESSAGES), lease=60.0, title="")
        await store.tokens.create("laptop", "anna", ["chat"], lifetime=timedelta(hours=-1))
        await store.tokens.create("phone", "anna", ["chat"])
        await delete_old(store, None, datetime.now(UTC) - timedelta(days=1))
        kept = len(await store.list(100))
        await delete_old(store, None, datetime.now(UTC))
        left = [conversation.id for conversation in await store.list(100)]
        tokens = [token.name for token in await store.tokens.list_all()]
    assert kept == len(ended) + 1
    assert left == [running.id]
    assert tokens == ["phone"]


def test_old_files_of_the_audit_log_are_deleted_and_never_the_newest(tmp_path: Path) -> None:
    files = [tmp_path / f"audit-{number:06}.jsonl" for number in (1, 2, 3)]
    for age, file in zip((300, 200, 100), files, strict=True):
        file.write_text("{}\n")
        os.utime(file, (1000 - age, 1000 - age))
    assert delete_old_files(tmp_path, 750.0) == 1
    assert delete_old_files(tmp_path, 2000.0) == 1
    assert [file.exists() for file in files] == [False, False, True]
    assert delete_old_files(tmp_path / "none", 2000.0) == 0


async def test_a_database_in_use_is_copied_and_the_copy_has_the_conversations(tmp_path: Path) -> None:
    async with SQLStore(tmp_path / "company.db") as store:
        created = await store.create("plans", MESSAGES)
        with (
            closing(sqlite3.connect(tmp_path / "company.db")) as source,
            closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
        ):
            source.backup(copy)
        await store.delete(created.id)
    checked = dial_chat(tmp_path, "db", "check", "--store", str(tmp_path / "copy.db"))
    async with SQLStore(tmp_path / "copy.db") as restored:
        found = await restored.get(created.id)
    assert found.messages == MESSAGES
    assert "the database is whole" in checked.stdout


@needs_postgres
@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not installed")
async def test_a_dump_of_postgresql_is_restored_into_an_empty_database(tmp_path: Path) -> None:
    dumped = tmp_path / "dial.dump"
    async with database_url() as url, database_url() as empty:
        async with SQLStore(url) as store:
            created = await store.create("plans", MESSAGES)
            await run_process(["pg_dump", "--format=custom", f"--file={dumped}", url])
        await run_process(["pg_restore", "--no-owner", f"--dbname={empty}", str(dumped)])
        async with SQLStore(empty) as restored:
            found = await restored.get(created.id)
    assert found.messages == MESSAGES


def test_the_command_exports_and_erases_a_person_only_if_that_is_meant(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "company.db"))
    empty = dial_chat(tmp_path, "db", *store)
    dial_chat(tmp_path, "tokens", "create", "laptop", "--owner", "anna", *store)
    asked = dial_chat(tmp_path, "db", "erase", "anna", *store)
    exported = dial_chat(tmp_path, "db", "export", "anna", *store)
    dial_chat(tmp_path, "db", "erase", "anna", "--yes", *store)
    left = dial_chat(tmp_path, "db", "export", "anna", *store)
    migrated = dial_chat(tmp_path, "db", "migrate", *store)
    assert "no database yet" in empty.stdout
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert json.loads(exported.stdout)["name"] == "laptop"
    assert left.stdout == ""
    assert migrated.stdout.startswith("the schema is ")

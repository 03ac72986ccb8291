"""Migration of a database from the release that had no message versions."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.inner import ConversationManager, DialClient, Regeneration, ScriptedProvider, SQLStore
from tests.support.temporary_stores import DATABASES, place

pytestmark = pytest.mark.anyio

ID = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgres": "BIGSERIAL PRIMARY KEY"}
SCHEMA = """
CREATE TABLE conversations (id VARCHAR(64) PRIMARY KEY, title TEXT NOT NULL, created_at VARCHAR(32) NOT NULL,
    updated_at VARCHAR(32) NOT NULL, message_count INTEGER NOT NULL, turn VARCHAR(64) NOT NULL DEFAULT '',
    held_until DOUBLE PRECISION NOT NULL DEFAULT 0, unfinished TEXT NOT NULL DEFAULT '',
    words TEXT NOT NULL DEFAULT '');
CREATE INDEX conversations_by_update ON conversations (updated_at);
CREATE TABLE messages (conversation_id VARCHAR(64) NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    position INTEGER NOT NULL, created_at VARCHAR(32) NOT NULL, message TEXT NOT NULL,
    words TEXT NOT NULL DEFAULT '', PRIMARY KEY (conversation_id, position));
CREATE TABLE notes (id {id}, topic TEXT NOT NULL, body TEXT NOT NULL, until DOUBLE PRECISION NOT NULL);
CREATE INDEX notes_by_topic ON notes (topic, id);
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version (version) VALUES (3);
"""
TIME = "2026-01-01T00:00:00.000000+00:00"
CONVERSATIONS: dict[str, list[Any]] = {
    "plain": [
        {"role": "user", "content": "Where is Oslo?"},
        {"role": "assistant", "content": "In Norway."},
        {"role": "user", "content": "And Rome?"},
        {"role": "assistant", "content": "In Italy."},
    ],
    "undone": [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": "2"},
        {"role": "system", "content": "", "replaces": [2, 4]},
    ],
    "killed": [{"role": "user", "content": "Count!"}],
}


def fill() -> str:
    """Return the statements that store the conversations, one with a turn of a killed process."""
    statements = []
    for name, messages in CONVERSATIONS.items():
        turn, unfinished = ("", "")
        if name == "killed":
            turn, unfinished = "old-turn", json.dumps([{"role": "assistant", "content": "One, tw"}])
        statements.append(
            "INSERT INTO conversations (id, title, created_at, updated_at, message_count, turn, held_until, unfinished,"
            f" words) VALUES ('{name}', '{name}', '{TIME}', '{TIME}', {len(messages)}, '{turn}', 1, '{unfinished}',"
            f" '{name}');"
        )
        for at, message in enumerate(messages):
            words = "" if message["role"] == "system" else message["content"].lower()
            statements.append(
                "INSERT INTO messages (conversation_id, position, created_at, message, words)"
                f" VALUES ('{name}', {at}, '{TIME}', '{json.dumps(message)}', '{words}');"
            )
    return "\n".join(statements)


async def make_earlier_database(kind: str, where: str) -> None:
    script = SCHEMA.format(id=ID[kind]) + fill()
    if kind == "sqlite":
        with closing(sqlite3.connect(where.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
        return
    import asyncpg

    connection = await asyncpg.connect(where)
    try:
        await connection.execute(script)
    finally:
        await connection.close()


@pytest.mark.once
@pytest.mark.parametrize("kept", DATABASES)
async def test_conversations_of_the_previous_release_are_read_and_get_versions(
    kept: tuple[str, str], tmp_path: Path
) -> None:
    kind = kept[1]
    async with place(kind, tmp_path) as where:
        await make_earlier_database(kind, where)
        store = SQLStore(where)
        async with DialClient(ScriptedProvider(["In the north.", "One, two.", "Three."])) as dial:
            manager = ConversationManager(dial, store)
            counts = {summary.id: summary.message_count for summary in await manager.list()}
            assert counts == {"plain": 4, "undone": 5, "killed": 1}
            assert [summary.id for summary in await manager.list(search="norway")] == ["plain"]
            assert {(summary.owner, str(summary.metadata)) for summary in await manager.list()} == {("", "{}")}
            await manager.update("plain", owner="ann", metadata={"project": 7})
            [owned] = await manager.list(owner="ann")
            assert (owned.id, owned.metadata) == ("plain", {"project": 7})
            await manager.chat("plain", Regeneration(0))
            view = await manager.view("plain")
            assert [message.text for message in view.conversation.messages] == ["Where is Oslo?", "In the north."]
            await manager.switch("plain", 1)
            shown = [message.text for message in (await manager.get("plain")).messages]
            assert shown == ["Where is Oslo?", "In Norway.", "And Rome?", "In Italy."]
            counts = {summary.id: summary.message_count for summary in await manager.list()}
            assert counts["plain"] == 5
            assert [message.text for message in (await manager.get("undone")).messages] == ["One?", "1"]
            assert await manager.restore("undone")
            assert [message.text for message in (await manager.get("undone")).messages] == ["One?", "1", "Two?", "2"]
            killed = await manager.get("killed")
            assert (killed.messages[-1].text.startswith("One, tw"), bool(killed.notes)) == (True, True)
            turn = await manager.resume("killed")
            assert turn is not None
            assert (await turn.result()).text == "One, two."
            await manager.chat("killed", "Go on.")
            assert [message.text for message in (await manager.get("killed")).messages][-1] == "Three."
        await store.aclose()


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]

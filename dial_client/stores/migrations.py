"""The schema of a database of conversations, and its migrations from each version to the next.

The SQL is valid in every supported database. Times are ISO 8601 in UTC with microseconds, which sort as text;
``held_until`` and ``until`` are in seconds by the database's clock. A message is JSON in ASCII, which escapes
characters that text columns cannot store (NUL, lone surrogates). ``words`` is the text for searches
(`conversation_store.casefold_text`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dial_client.stores.conversation_store import casefold_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

_CONVERSATIONS = (
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
)

_TURNS = (
    "ALTER TABLE conversations ADD COLUMN turn VARCHAR(64) NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN held_until DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN unfinished TEXT NOT NULL DEFAULT ''",
)

_SEARCH = (
    "ALTER TABLE conversations ADD COLUMN words TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE messages ADD COLUMN words TEXT NOT NULL DEFAULT ''",
)


def extract_search_text(data: Any) -> str:
    """Return the text of a stored message for searches; empty unless the user or the model wrote the message."""
    if data.get("role") not in ("user", "assistant"):
        return ""
    content = data.get("content") or ""
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return casefold_text("\n".join(parts))


def _fill_words(connection: Connection) -> None:
    """Fill the new columns ``words`` of existing rows."""
    from sqlalchemy import text

    for id_, title in connection.execute(text("SELECT id, title FROM conversations")).all():
        connection.execute(
            text("UPDATE conversations SET words = :words WHERE id = :id"), {"id": id_, "words": casefold_text(title)}
        )
        messages = text("SELECT position, message FROM messages WHERE conversation_id = :id")
        for position, message in connection.execute(messages, {"id": id_}).all():
            connection.execute(
                text("UPDATE messages SET words = :words WHERE conversation_id = :id AND position = :position"),
                {"id": id_, "position": position, "words": _extract_words(message)},
            )


def _extract_words(message: str) -> str:
    try:
        return extract_search_text(json.loads(message))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""  # a damaged message is left as it is, and not found by searches


def _add_notes(connection: Connection) -> None:
    """Create the table of messages that earlier releases exchanged."""
    ascending = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}
    connection.exec_driver_sql(f"""CREATE TABLE notes (
        id {ascending[connection.dialect.name]},
        topic TEXT NOT NULL,
        body TEXT NOT NULL,
        until DOUBLE PRECISION NOT NULL
    )""")
    connection.exec_driver_sql("CREATE INDEX notes_by_topic ON notes (topic, id)")


# A new schema version, because older releases would show the messages of all versions: they refuse a newer schema.
_ENTRIES = ("ALTER TABLE conversations ADD COLUMN entry_count INTEGER NOT NULL DEFAULT 0",)

_OWNERS = (
    "ALTER TABLE conversations ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN metadata TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX conversations_by_owner ON conversations (owner, updated_at)",
)

# The tokens of a service for several persons (`access_tokens`).
_ACCESS_TOKENS = (
    """CREATE TABLE access_tokens (
        id VARCHAR(16) PRIMARY KEY,
        name TEXT NOT NULL,
        owner TEXT NOT NULL,
        scopes TEXT NOT NULL,
        digest VARCHAR(64) NOT NULL UNIQUE,
        created_at VARCHAR(32) NOT NULL,
        expires_at VARCHAR(32) NOT NULL,
        requests_per_minute INTEGER NOT NULL
    )""",
)

# What owners have used, by day (`owner_usage`).
_OWNER_USAGE = (
    """CREATE TABLE owner_usage (
        owner TEXT NOT NULL,
        day VARCHAR(10) NOT NULL,
        turns BIGINT NOT NULL,
        input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL,
        cost_usd DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (owner, day)
    )""",
)

# The table of messages, which no process reads any more, becomes that of `SharedValues`.
_SHARED_VALUES = (
    "DROP TABLE notes",
    """CREATE TABLE shared_values (
        topic VARCHAR(32) NOT NULL,
        name VARCHAR(128) NOT NULL,
        value TEXT NOT NULL,
        until DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (topic, name)
    )""",
)

# What persons gave to a service for its servers, encrypted (`owner_credentials`).
_OWNER_CREDENTIALS = (
    """CREATE TABLE owner_credentials (
        owner TEXT NOT NULL,
        server TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        changed_at VARCHAR(32) NOT NULL,
        PRIMARY KEY (owner, server, name)
    )""",
)

# The beginning of the last answer, which a list shows. Conversations get it with their next answer: to read all
# messages of a large database would stop its service.
_PREVIEW = ("ALTER TABLE conversations ADD COLUMN preview TEXT NOT NULL DEFAULT ''",)

MigrationStep = str | Callable[["Connection"], None]

# The steps from each version of the schema to the next; the first group creates version 1.
MIGRATIONS: tuple[Sequence[MigrationStep], ...] = (
    _CONVERSATIONS,
    (*_TURNS, *_SEARCH, _fill_words),
    (_add_notes,),
    _ENTRIES,
    _OWNERS,
    _ACCESS_TOKENS,
    _OWNER_USAGE,
    _SHARED_VALUES,
    _OWNER_CREDENTIALS,
    _PREVIEW,
)

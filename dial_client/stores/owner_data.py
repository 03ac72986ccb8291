"""What a database has of one owner, and what is older than it should be: exported and deleted in bounded batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from dial_client.stores.conversation_store import to_sortable_time
from dial_client.stores.database import Database, build_clock_expression
from dial_client.stores.row_batches import execute

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

# Conversations that one transaction deletes, or reads: other requests wait no longer than that takes.
BATCH = 50

# The columns of rows that are exported, by table; never the digest of a token, nor the value of a credential.
_EXPORTED: Mapping[str, str] = {
    "access_tokens": "id, name, scopes, created_at, expires_at, requests_per_minute",
    "owner_usage": "day, turns, input_tokens, output_tokens, cost_usd",
    "owner_credentials": "server, name, changed_at",
}


class OwnerData:
    """The data of owners in one database.

    All methods raise `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def export(self, owner: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield what is stored of an owner, in JSON types: a ``kind``, and its fields.

        A ``conversation`` has its ``messages``, of all versions, as `Message.to_dict` writes them.
        """
        after = ""
        while True:
            rows = await self._database.run(partial(_read, owner=owner, after=after), writes=False)
            for conversation in rows:
                yield conversation
            if not rows:
                break
            after = rows[-1]["id"]
        for table, columns in _EXPORTED.items():
            statement = f"SELECT {columns} FROM {table} WHERE owner = :owner"  # noqa: S608 - our own text

            async def read(connection: AsyncConnection, statement: str = statement) -> list[Any]:
                return [dict(row) for row in (await execute(connection, statement, {"owner": owner})).mappings()]

            for row in await self._database.run(read, writes=False):
                yield {"kind": table, **row}

    async def erase(self, owner: str) -> dict[str, int]:
        """Delete all that is stored of an owner, and return the number of deleted rows by table.

        Running turns of the owner fail at their next step; their process then adds what they have used, with the name
        of the owner. Without a name nothing is deleted: that is no owner.
        """
        if not owner:
            return {}
        deleted = Counter[str]()
        while ids := await self._database.run(partial(_delete_batch, owner=owner), writes=True):
            deleted["conversations"] += len(ids)
        for table in _EXPORTED:
            deleted[table] += await self._delete(f"DELETE FROM {table} WHERE owner = :owner", owner=owner)  # noqa: S608
        # What processes share is JSON without spaces, and has its owner as a member.
        member = "".join(f"!{char}" if char in "!%_" else char for char in f'"owner":{json.dumps(owner)}')
        deleted["shared_values"] += await self._delete(
            "DELETE FROM shared_values WHERE value LIKE :value ESCAPE '!'", value=f"%{member}%"
        )
        await self._database.empty_log()
        return dict(deleted)

    async def delete_older(self, before: datetime) -> int:
        """Delete a batch of conversations not changed since a time, and all tokens and days of usage before it.

        Conversations of a running turn are left. Return the number of deleted conversations; 0 at the end.
        """
        time = to_sortable_time(before)
        await self._delete("DELETE FROM access_tokens WHERE expires_at <> '' AND expires_at < :time", time=time)
        # The limits of a month need the days of this month, however short the time is.
        day = min(before.date(), datetime.now(UTC).date().replace(day=1)).isoformat()
        await self._delete("DELETE FROM owner_usage WHERE day < :day", day=day)
        count = await self._database.run(partial(_delete_older, time=time), writes=True)
        if not count:
            await self._database.empty_log()
        return count

    async def _delete(self, statement: str, **values: Any) -> int:
        async def delete(connection: AsyncConnection) -> int:
            return (await execute(connection, statement, values)).rowcount

        return await self._database.run(delete, writes=True)


async def _read(connection: AsyncConnection, owner: str, after: str) -> list[dict[str, Any]]:
    selected = (
        "SELECT id, title, created_at, updated_at, metadata, unfinished FROM conversations"  # noqa: S608 - our own text
        f" WHERE owner = :owner AND id > :after ORDER BY id LIMIT {BATCH}"
    )
    rows = (await execute(connection, selected, {"owner": owner, "after": after})).mappings().all()
    found = []
    for row in rows:
        statement = "SELECT message FROM messages WHERE conversation_id = :id ORDER BY position"
        messages = (await execute(connection, statement, {"id": row["id"]})).scalars().all()
        parts = {"metadata": _parse(row["metadata"] or "{}"), "unfinished": _parse(row["unfinished"] or "[]")}
        found.append({"kind": "conversation", **row, **parts, "messages": [_parse(text) for text in messages]})
    return found


def _parse(text: str) -> Any:
    """Return a stored JSON value; the text itself if it is damaged, because it is the owner's all the same."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _delete_batch(connection: AsyncConnection, owner: str) -> list[str]:
    selected = f"SELECT id FROM conversations WHERE owner = :owner LIMIT {BATCH}"  # noqa: S608 - our own text
    ids = [*(await execute(connection, selected, {"owner": owner})).scalars()]
    if ids:
        await execute(connection, "DELETE FROM conversations WHERE id = :id", [{"id": id_} for id_ in ids])
    return ids


async def _delete_older(connection: AsyncConnection, time: str) -> int:
    old = (
        f"SELECT id FROM conversations WHERE updated_at < :time AND held_until <= {build_clock_expression(connection)}"  # noqa: S608
        f" ORDER BY updated_at LIMIT {BATCH}"
    )
    # Another process does the same at the same time: each takes what the other has not locked.
    lock = " FOR UPDATE SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    statement = f"DELETE FROM conversations WHERE id IN ({old}{lock})"  # noqa: S608 - our own text
    return (await execute(connection, statement, {"time": time})).rowcount

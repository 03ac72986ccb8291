"""Values that all programs with one database read: each has a topic, a name, and a time after which it is gone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dial_client.stores.database import Database, build_clock_expression
from dial_client.stores.row_batches import execute, to_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

# Seconds between two deletions of expired values, which a process does when it stores a value.
CLEARING_INTERVAL = 60.0


class SharedValues:
    """The shared values of one database. Topics, names and values are ASCII without NUL.

    Values are untrusted, because any program that can write to the database may have written them. All methods raise
    `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_clearing: float | None = None

    async def put(self, topic: str, name: str, value: str, seconds: float) -> None:
        """Store a value for so many seconds, in place of an earlier one."""
        is_due = self._last_clearing is None or time.monotonic() - self._last_clearing > CLEARING_INTERVAL

        async def put_value(connection: AsyncConnection) -> None:
            if is_due:
                await _delete_expired(connection)
            await _put(connection, topic, name, value, seconds)

        await self._database.run(put_value, writes=True)
        if is_due:
            self._last_clearing = time.monotonic()

    async def read(self, topic: str, names: Iterable[str] | None = None) -> dict[str, str]:
        """Return the values of a topic by their names, in order: those that exist of `names`, by default all."""
        chosen = [""] if names is None else sorted(set(names))
        condition = "" if names is None else " AND name = :name"

        async def read_values(connection: AsyncConnection) -> list[Any]:
            current = f"topic = :topic AND until > {build_clock_expression(connection)}{condition}"
            statement = f"SELECT name, value FROM shared_values WHERE {current} ORDER BY name"  # noqa: S608
            rows: list[Any] = []
            for name in chosen:
                rows += (await execute(connection, statement, {"topic": topic, "name": name})).all()
            return rows

        rows = await self._database.run(read_values, writes=False) if chosen else ()
        return {to_text(name): to_text(value) for name, value in rows}

    async def take(self, topic: str, name: str) -> bool:
        """Delete a value, and return True if it existed. Atomic: only one caller gets it."""
        return await self._database.run(lambda connection: _take(connection, topic, name), writes=True)

    async def replace(self, topic: str, name: str, other_topic: str, value: str, seconds: float) -> bool:
        """Delete a value, store another under its name in the other topic, and return True; False if there is none.

        Atomic: only one caller replaces a value.
        """

        async def replace_value(connection: AsyncConnection) -> bool:
            existed = await _take(connection, topic, name)
            if existed:
                await _put(connection, other_topic, name, value, seconds)
            return existed

        return await self._database.run(replace_value, writes=True)

    async def renew(self, values: Iterable[tuple[str, str]], seconds: float) -> None:
        """Keep values, each given by its topic and name, for so many seconds from now; others are ignored."""
        rows = [{"topic": topic, "name": name, "seconds": float(seconds)} for topic, name in sorted(set(values))]

        async def set_expiry(connection: AsyncConnection) -> None:
            until = f"{build_clock_expression(connection)} + :seconds"
            statement = f"UPDATE shared_values SET until = {until} WHERE topic = :topic AND name = :name"  # noqa: S608
            await execute(connection, statement, rows)

        if rows:
            await self._database.run(set_expiry, writes=True)


async def _put(connection: AsyncConnection, topic: str, name: str, value: str, seconds: float) -> None:
    until = f"{build_clock_expression(connection)} + :seconds"
    statement = (
        f"INSERT INTO shared_values (topic, name, value, until) VALUES (:topic, :name, :value, {until})"  # noqa: S608
        " ON CONFLICT (topic, name) DO UPDATE SET value = excluded.value, until = excluded.until"
    )
    values = {"topic": topic, "name": name, "value": value, "seconds": float(seconds)}
    await execute(connection, statement, values)


async def _take(connection: AsyncConnection, topic: str, name: str) -> bool:
    now = build_clock_expression(connection)
    statement = f"DELETE FROM shared_values WHERE topic = :topic AND name = :name AND until > {now}"  # noqa: S608
    return (await execute(connection, statement, {"topic": topic, "name": name})).rowcount == 1


async def _delete_expired(connection: AsyncConnection) -> None:
    # Rows that another process has locked are skipped, because that process deletes them.
    lock = " FOR UPDATE SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    now = build_clock_expression(connection)
    expired = f"SELECT topic, name FROM shared_values WHERE until <= {now} ORDER BY topic, name{lock}"  # noqa: S608
    await execute(connection, f"DELETE FROM shared_values WHERE (topic, name) IN ({expired})", {})  # noqa: S608

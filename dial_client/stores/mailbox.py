"""A mailbox in the database: messages between the processes that use it.

A message stays under its topic until it expires, by the database's clock, or until a process takes it. Processes poll
for messages; there are no notifications: `docs/adr/0028-processes-share-only-the-database.md`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.stores.database import Database, build_clock_expression
from dial_client.stores.row_batches import execute, to_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

# Seconds between two deletions of expired messages, which a process does when it sends a message.
CLEARING_INTERVAL = 60.0

# Limit of topics that one statement reads; databases limit the number of parameters to some thousands.
_TOPICS = 200


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its id and topic."""

    id: int
    """The id of the message, greater than the ids of all earlier messages."""
    topic: str
    body: str
    """The content; untrusted, because any program that can write to the database may have written it."""

    def parse_content(self) -> dict[str, Any]:
        """Return the body's JSON object.

        Raises:
            ValueError: The body is not a JSON object.
        """
        try:
            value = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("the message is nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("the message is not a JSON object")  # noqa: TRY004 - the text is wrong, and not its type
        return value


class Mailbox:
    """The mailbox of one database. Topics and bodies are printable ASCII.

    All methods raise `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_clearing: float | None = None

    async def send(self, messages: Sequence[tuple[str, str]], seconds: float) -> tuple[int, ...]:
        """Send messages, all or none, and return their ascending ids.

        Args:
            messages: The topic and the body of each message.
            seconds: Seconds after which the messages expire.
        """
        is_due = self._last_clearing is None or time.monotonic() - self._last_clearing > CLEARING_INTERVAL

        async def send_all(connection: AsyncConnection) -> tuple[int, ...]:
            if is_due:
                await _delete_expired(connection)
            return tuple([await _insert(connection, topic, body, seconds) for topic, body in messages])

        if not messages:
            return ()
        ids = await self._database.run(send_all, writes=True)
        if is_due:
            self._last_clearing = time.monotonic()
        return ids

    async def read(self, topics: Mapping[str, int]) -> tuple[Envelope, ...]:
        """Return the messages under these topics, in the order of their ids.

        Args:
            topics: The id after which to begin, by topic; 0 for the first message. Use another id only for topics with
                a single writer: if several processes write, a message with a greater id may be visible first.
        """
        positions = sorted(topics.items())

        async def read_all(connection: AsyncConnection) -> list[Any]:
            rows: list[Any] = []
            for start in range(0, len(positions), _TOPICS):
                rows += await _read(connection, positions[start : start + _TOPICS])
            return rows

        if not positions:
            return ()
        rows = await self._database.run(read_all, writes=False)
        messages = (Envelope(id_, to_text(topic), to_text(body)) for id_, topic, body in rows)
        return tuple(sorted(messages, key=lambda message: message.id))

    async def take(self, *ids: int) -> frozenset[int]:
        """Delete messages, and return the ids of those that existed. Atomic: only one caller gets the id of each."""

        async def take_all(connection: AsyncConnection) -> frozenset[int]:
            # In the same order in every process, to prevent deadlocks.
            return frozenset([id_ for id_ in sorted(set(ids)) if await _take(connection, id_)])

        return await self._database.run(take_all, writes=True) if ids else frozenset()

    async def swap(self, id_: int, topic: str, body: str, seconds: float) -> bool:
        """Delete a message, send another in the same transaction, and return True; False if the first did not exist."""

        async def swap_messages(connection: AsyncConnection) -> bool:
            existed = await _take(connection, id_)
            if existed:
                await _insert(connection, topic, body, seconds)
            return existed

        return await self._database.run(swap_messages, writes=True)

    async def renew(self, ids: Iterable[int], seconds: float) -> None:
        """Set the messages to expire in `seconds`; deleted messages are ignored."""
        rows = [{"id": id_, "seconds": float(seconds)} for id_ in sorted(set(ids))]

        async def set_expiry(connection: AsyncConnection) -> None:
            statement = f"UPDATE notes SET until = {build_clock_expression(connection)} + :seconds WHERE id = :id"  # noqa: S608
            await execute(connection, statement, rows)

        if rows:
            await self._database.run(set_expiry, writes=True)


async def _insert(connection: AsyncConnection, topic: str, body: str, seconds: float) -> int:
    is_sqlite = connection.dialect.name == "sqlite"
    returning = "" if is_sqlite else " RETURNING id"  # SQLite supports this only since 3.35
    values = {"topic": topic, "body": body, "seconds": float(seconds)}
    now = build_clock_expression(connection)
    statement = f"INSERT INTO notes (topic, body, until) VALUES (:topic, :body, {now} + :seconds)"  # noqa: S608
    inserted = await execute(connection, statement + returning, values)
    return int(inserted.lastrowid if is_sqlite else inserted.scalar_one())


async def _read(connection: AsyncConnection, topics: Sequence[tuple[str, int]]) -> Sequence[Any]:
    conditions = " OR ".join(f"(topic = :t{index} AND id > :a{index})" for index in range(len(topics)))
    statement = (
        f"SELECT id, topic, body FROM notes WHERE until > {build_clock_expression(connection)} AND ({conditions})"  # noqa: S608
    )
    values: dict[str, Any] = {}
    for index, (topic, last_id) in enumerate(topics):
        values |= {f"t{index}": topic, f"a{index}": last_id}
    return (await execute(connection, statement, values)).all()


async def _take(connection: AsyncConnection, id_: int) -> bool:
    statement = f"DELETE FROM notes WHERE id = :id AND until > {build_clock_expression(connection)}"  # noqa: S608
    return (await execute(connection, statement, {"id": id_})).rowcount == 1


async def _delete_expired(connection: AsyncConnection) -> None:
    # Rows that another process has locked are skipped, because that process deletes them.
    lock = " FOR UPDATE SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    expired = f"SELECT id FROM notes WHERE until <= {build_clock_expression(connection)} ORDER BY id{lock}"  # noqa: S608
    await execute(connection, f"DELETE FROM notes WHERE id IN ({expired})", {})  # noqa: S608

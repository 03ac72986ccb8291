"""A mailbox in the database: messages between the programs that use it.

A message stays under its topic until it expires, by the database's own clock, or until a program takes it. Programs
poll for messages and are not notified: `docs/adr/0035-tell-other-processes-through-the-database.md`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.stores.batch_writer import execute
from dial_client.stores.database import Database, clock_expression
from dial_client.stores.row_values import to_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

CLEARED = 60.0
"""Seconds between two deletions of expired messages, each by a program that sends one."""

_TOPICS = 200
"""Topics that one statement reads; databases take some thousand parameters."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its id and topic."""

    id: int
    """Greater than the id of any message that was sent before."""
    topic: str
    body: str
    """Untrusted: any program that can write to the database may have written it."""

    def content(self) -> dict[str, Any]:
        """Return the body's JSON object.

        Raises:
            ValueError: the body is no JSON object.
        """
        try:
            value = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("this is nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("this is no JSON object")  # noqa: TRY004 - the text is wrong, and not its type
        return value


class Mailbox:
    """The messages of one database. Topics and bodies are printable ASCII.

    All methods raise `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_clearing: float | None = None

    async def send(self, messages: Sequence[tuple[str, str]], seconds: float) -> tuple[int, ...]:
        """Send messages, each a topic and a body, all or none; return their ids, which ascend.

        They expire in `seconds`.
        """
        is_due = self._last_clearing is None or time.monotonic() - self._last_clearing > CLEARED

        async def work(connection: AsyncConnection) -> tuple[int, ...]:
            if is_due:
                await _delete_expired(connection)
            return tuple([await _insert(connection, topic, body, seconds) for topic, body in messages])

        if not messages:
            return ()
        ids = await self._database.run(work, writes=True)
        if is_due:
            self._last_clearing = time.monotonic()
        return ids

    async def read(self, topics: Mapping[str, int]) -> tuple[Envelope, ...]:
        """Return the messages under these topics, in the order of their ids.

        Args:
            topics: each topic with the id after which to begin, 0 for its first message. Use ids only with a topic that
                has one writer: of two that write at once the messages with the greater ids may be visible first.
        """
        positions = sorted(topics.items())

        async def work(connection: AsyncConnection) -> list[Any]:
            rows: list[Any] = []
            for at in range(0, len(positions), _TOPICS):
                rows += await _read(connection, positions[at : at + _TOPICS])
            return rows

        if not positions:
            return ()
        rows = await self._database.run(work, writes=False)
        messages = (Envelope(id_, to_text(topic), to_text(body)) for id_, topic, body in rows)
        return tuple(sorted(messages, key=lambda message: message.id))

    async def take(self, *ids: int) -> frozenset[int]:
        """Delete messages and return the ids of those that existed. Atomic: only one caller receives a message."""

        async def work(connection: AsyncConnection) -> frozenset[int]:
            # In the same order in every program: two that take the same messages must not wait for each other.
            return frozenset([id_ for id_ in sorted(set(ids)) if await _take(connection, id_)])

        return await self._database.run(work, writes=True) if ids else frozenset()

    async def swap(self, id_: int, topic: str, body: str, seconds: float) -> bool:
        """Take a message and send another, both or, if the first does not exist any more, neither."""

        async def work(connection: AsyncConnection) -> bool:
            existed = await _take(connection, id_)
            if existed:
                await _insert(connection, topic, body, seconds)
            return existed

        return await self._database.run(work, writes=True)

    async def renew(self, ids: Iterable[int], seconds: float) -> None:
        """Set the messages to expire in `seconds`; messages that were deleted stay deleted."""
        rows = [{"id": id_, "seconds": float(seconds)} for id_ in sorted(set(ids))]

        async def work(connection: AsyncConnection) -> None:
            statement = f"UPDATE notes SET until = {clock_expression(connection)} + :seconds WHERE id = :id"  # noqa: S608
            await execute(connection, statement, rows)

        if rows:
            await self._database.run(work, writes=True)


async def _insert(connection: AsyncConnection, topic: str, body: str, seconds: float) -> int:
    is_sqlite = connection.dialect.name == "sqlite"
    given = "" if is_sqlite else " RETURNING id"  # which SQLite has since 3.35 only
    values = {"topic": topic, "body": body, "seconds": float(seconds)}
    statement = (
        f"INSERT INTO notes (topic, body, until) VALUES (:topic, :body, {clock_expression(connection)} + :seconds)"  # noqa: S608
    )
    inserted = await execute(connection, statement + given, values)
    return int(inserted.lastrowid if is_sqlite else inserted.scalar_one())


async def _read(connection: AsyncConnection, topics: Sequence[tuple[str, int]]) -> Sequence[Any]:
    conditions = " OR ".join(f"(topic = :t{at} AND id > :a{at})" for at in range(len(topics)))
    statement = f"SELECT id, topic, body FROM notes WHERE until > {clock_expression(connection)} AND ({conditions})"  # noqa: S608
    values: dict[str, Any] = {}
    for at, (topic, after) in enumerate(topics):
        values |= {f"t{at}": topic, f"a{at}": after}
    return (await execute(connection, statement, values)).all()


async def _take(connection: AsyncConnection, id_: int) -> bool:
    statement = f"DELETE FROM notes WHERE id = :id AND until > {clock_expression(connection)}"  # noqa: S608
    return (await execute(connection, statement, {"id": id_})).rowcount == 1


async def _delete_expired(connection: AsyncConnection) -> None:
    # Rows that another program has locked are skipped: that program deletes them.
    lock = " FOR UPDATE SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    expired = f"SELECT id FROM notes WHERE until <= {clock_expression(connection)} ORDER BY id{lock}"  # noqa: S608
    await execute(connection, f"DELETE FROM notes WHERE id IN ({expired})", {})  # noqa: S608

"""A board in the database: notes by which the programs that use it tell each other something.

A note lies on a topic until its time is over, by the database's own clock, or until somebody takes it. It is looked
for, never called out: `docs/adr/0035-tell-other-processes-through-the-database.md`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.stores.batch_writer import execute
from dial_client.stores.database import Database, clock_of
from dial_client.stores.row_values import to_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

CLEARED = 60.0
"""Seconds after which whoever pins a note clears away those whose time is over."""

_TOPICS = 200
"""Topics that are read by one statement; databases take some thousand parameters."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What somebody has pinned."""

    id: int
    """Greater than that of any note that was pinned before."""
    topic: str
    body: str
    """As whoever can write to the database has written it."""

    def content(self) -> dict[str, Any]:
        """Return the body's JSON object.

        Raises:
            ValueError: it has none.
        """
        try:
            value = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("this is nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("this is no JSON object")  # noqa: TRY004 - what is wrong is the text
        return value


class Mailbox:
    """The notes of one database. Topics and bodies are printable ASCII.

    All methods raise `ConfigError` where the database cannot be used, and `DialError` where it failed this time.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cleared: float | None = None

    async def pin(self, notes: Sequence[tuple[str, str]], seconds: float) -> tuple[int, ...]:
        """Pin notes, each a topic and a body, for so many seconds, all or none; give their ids, which ascend."""
        is_due = self._cleared is None or time.monotonic() - self._cleared > CLEARED

        async def work(connection: AsyncConnection) -> tuple[int, ...]:
            if is_due:
                await _clear(connection)
            return tuple([await _pin(connection, topic, body, seconds) for topic, body in notes])

        if not notes:
            return ()
        pinned = await self._database.run(work, writes=True)
        if is_due:
            self._cleared = time.monotonic()
        return pinned

    async def read(self, topics: Mapping[str, int]) -> tuple[Envelope, ...]:
        """Give the notes on these topics, in the order of their ids.

        Args:
            topics: which, each with the id behind which to begin, 0 for its beginning. Such an id is sure only on a
                topic that one writer has to itself: of two that write at once the one with the greater ids may be seen
                first.
        """
        wanted = sorted(topics.items())

        async def work(connection: AsyncConnection) -> list[Any]:
            rows: list[Any] = []
            for at in range(0, len(wanted), _TOPICS):
                rows += await _read(connection, wanted[at : at + _TOPICS])
            return rows

        if not wanted:
            return ()
        rows = await self._database.run(work, writes=False)
        notes = (Envelope(id_, to_text(topic), to_text(body)) for id_, topic, body in rows)
        return tuple(sorted(notes, key=lambda note: note.id))

    async def take(self, *ids: int) -> frozenset[int]:
        """Take notes off, and give the ids of those that were still there: of many that take a note one has it."""

        async def work(connection: AsyncConnection) -> frozenset[int]:
            # In an order that is everybody's: two that take the same notes do not wait for each other.
            return frozenset([id_ for id_ in sorted(set(ids)) if await _take(connection, id_)])

        return await self._database.run(work, writes=True) if ids else frozenset()

    async def swap(self, id_: int, topic: str, body: str, seconds: float) -> bool:
        """Take a note and pin another, both or, where it was not there any more, neither."""

        async def work(connection: AsyncConnection) -> bool:
            is_mine = await _take(connection, id_)
            if is_mine:
                await _pin(connection, topic, body, seconds)
            return is_mine

        return await self._database.run(work, writes=True)

    async def renew(self, ids: Iterable[int], seconds: float) -> None:
        """Let notes lie for so many seconds from now; those that are gone stay gone."""
        rows = [{"id": id_, "seconds": float(seconds)} for id_ in sorted(set(ids))]

        async def work(connection: AsyncConnection) -> None:
            statement = f"UPDATE notes SET until = {clock_of(connection)} + :seconds WHERE id = :id"  # noqa: S608
            await execute(connection, statement, rows)

        if rows:
            await self._database.run(work, writes=True)


async def _pin(connection: AsyncConnection, topic: str, body: str, seconds: float) -> int:
    is_sqlite = connection.dialect.name == "sqlite"
    given = "" if is_sqlite else " RETURNING id"  # which SQLite has since 3.35 only
    values = {"topic": topic, "body": body, "seconds": float(seconds)}
    statement = f"INSERT INTO notes (topic, body, until) VALUES (:topic, :body, {clock_of(connection)} + :seconds)"  # noqa: S608
    pinned = await execute(connection, statement + given, values)
    return int(pinned.lastrowid if is_sqlite else pinned.scalar_one())


async def _read(connection: AsyncConnection, topics: Sequence[tuple[str, int]]) -> Sequence[Any]:
    wanted = " OR ".join(f"(topic = :t{at} AND id > :a{at})" for at in range(len(topics)))
    statement = f"SELECT id, topic, body FROM notes WHERE until > {clock_of(connection)} AND ({wanted})"  # noqa: S608
    values: dict[str, Any] = {}
    for at, (topic, after) in enumerate(topics):
        values |= {f"t{at}": topic, f"a{at}": after}
    return (await execute(connection, statement, values)).all()


async def _take(connection: AsyncConnection, id_: int) -> bool:
    statement = f"DELETE FROM notes WHERE id = :id AND until > {clock_of(connection)}"  # noqa: S608
    return (await execute(connection, statement, {"id": id_})).rowcount == 1


async def _clear(connection: AsyncConnection) -> None:
    # What somebody else has a hand on is his to clear.
    lock = " FOR UPDATE SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    over = f"SELECT id FROM notes WHERE until <= {clock_of(connection)} ORDER BY id{lock}"  # noqa: S608
    await execute(connection, f"DELETE FROM notes WHERE id IN ({over})", {})  # noqa: S608

"""Writes of many conversations in one transaction.

A transaction costs a few milliseconds, most of them until the disk has it. So what is asked for while one is under way
waits, and goes into the next one together: turns that end a round at the same time are stored at the same time. Each
change is made in Python on the conversation's row, which is locked; what came of all is written in four statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dial_client.errors import DialError
from dial_client.stores.batcher import Batcher, BatchRequest
from dial_client.stores.conversation_store import folded, time_text
from dial_client.stores.database import LONGEST_HOLD, Database, clock_of
from dial_client.stores.row_values import to_count, to_seconds, to_text, to_time, to_title, to_turn
from dial_client.stores.store_core import Change, RowChange, StoredConversation

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

_ROWS = 500
"""Conversations that are looked up by one statement; databases take some thousand parameters."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A message as its row has it."""

    message: str
    """JSON."""
    words: str


class _Change(BatchRequest[T]):
    """A change that is asked for."""

    def __init__(self, conversation_id: str, change: Change[T]) -> None:
        super().__init__(conversation_id)
        self._change = change

    def carry_out(self, slot: RowChange) -> None:
        """Make the change; what is wrong with it concerns no other."""
        self.error = None
        try:
            self.result = self._change(slot)
        except DialError as error:
            self.error = error


class BatchWriter:
    """Carries changes out on the rows of a database, under asyncio."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._together = Batcher[_Change[Any]](self._grant)

    async def change(self, conversation_id: str, change: Change[T]) -> T:
        """Carry a change out, all of it or none. Once begun it is finished, even if the caller is cancelled meanwhile.

        Raises:
            DialError: the change itself did, or the database failed.
        """
        await self._database.open()
        wish = _Change(conversation_id, change)
        await self._together.ask(wish)
        return wish.result  # type: ignore[return-value]  # where there is no error the change has given it

    async def aclose(self) -> None:
        """Wait until what was asked for is written."""
        await self._together.aclose()

    async def _grant(self, wishes: Sequence[_Change[Any]]) -> None:
        async def work(connection: AsyncConnection) -> None:
            slots = await _load(connection, {wish.conversation_id for wish in wishes})
            before = {id_: slot.record for id_, slot in slots.items()}
            for wish in wishes:
                wish.carry_out(slots[wish.conversation_id])
            await _write_back(connection, before, slots)

        failed: Exception | None = None
        try:
            await self._database.run(work, writes=True)
        except Exception as error:  # noqa: BLE001 - raised where each of them was asked for
            failed = error
        if failed is not None and len(wishes) > 1 and _is_ones_own(failed):
            for wish in wishes:
                await self._grant([wish])
            return
        for wish in wishes:
            wish.end(failed)


def _is_ones_own(error: Exception) -> bool:
    """Whether one of the changes is to blame, and not the database: the others can be made without it."""
    from sqlalchemy.exc import DataError, IntegrityError

    return isinstance(error.__cause__, DataError | IntegrityError)


async def _load(connection: AsyncConnection, ids: set[str]) -> dict[str, RowChange]:
    """Lock the rows, in an order that is everybody's, and read them."""
    from sqlalchemy import bindparam, text

    clock = clock_of(connection)
    lock = " FOR UPDATE" if connection.dialect.name == "postgresql" else ""
    statement = text(
        "SELECT id, title, created_at, updated_at, message_count, turn, held_until, unfinished"  # noqa: S608 - our words
        f" FROM conversations WHERE id IN :ids ORDER BY id{lock}"
    ).bindparams(bindparam("ids", expanding=True))
    wanted = sorted(ids)
    rows: list[Any] = []
    for at in range(0, len(wanted), _ROWS):
        rows += (await connection.execute(statement, {"ids": wanted[at : at + _ROWS]})).all()
    now = (await execute(connection, f"SELECT {clock}", {})).scalar_one()
    slots = {id_: RowChange(None, now) for id_ in ids}
    for id_, title, created, updated, count, turn, until, unfinished in rows:
        held_until = to_seconds(until) if to_seconds(until) < now + LONGEST_HOLD else 0.0
        times, kept = (to_time(created), to_time(updated)), to_text(unfinished)
        slots[id_].record = StoredConversation(
            id_, to_title(title), *times, to_count(count) or 0, to_turn(turn), held_until, kept
        )
    return slots


async def _write_back(
    connection: AsyncConnection, before: dict[str, StoredConversation | None], slots: dict[str, RowChange]
) -> None:
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for id_, slot in sorted(slots.items()):
        record, old = slot.record, before[id_]
        if record is None:
            if old is not None:
                gone.append({"id": id_})
            continue
        if record is not old:
            (new if old is None else changed).append(_row(record))
        messages += _rows(record, slot.added)
    for statement, rows in ((_DELETE, gone), (_INSERT, new), (_UPDATE, changed), (_ADD, messages)):
        if rows:
            await execute(connection, statement, rows)


_DELETE = "DELETE FROM conversations WHERE id = :id"
_INSERT = (
    "INSERT INTO conversations (id, title, words, created_at, updated_at, message_count, turn, held_until, unfinished)"
    " VALUES (:id, :title, :words, :created, :updated, :count, :turn, :until, :unfinished)"
)
_UPDATE = (
    "UPDATE conversations SET title = :title, words = :words, updated_at = :updated, message_count = :count,"
    " turn = :turn, held_until = :until, unfinished = :unfinished WHERE id = :id"
)
_ADD = (
    "INSERT INTO messages (conversation_id, position, created_at, message, words)"
    " VALUES (:id, :position, :now, :message, :words)"
)


def _row(record: StoredConversation) -> dict[str, Any]:
    return {
        "id": record.id,
        "title": record.title,
        "words": folded(record.title),
        "created": time_text(record.created_at),
        "updated": time_text(record.updated_at),
        "count": record.message_count,
        "turn": record.turn,
        "until": record.held_until,
        "unfinished": _unfinished(record),
    }


def _unfinished(record: StoredConversation) -> str:
    """Give a JSON list of messages, empty for none: as it was read, or of what a change has put there."""
    kept = record.unfinished or ""
    return kept if isinstance(kept, str) else f"[{','.join(packed.message for packed in kept)}]"


def _rows(record: StoredConversation, added: Sequence[Packed]) -> list[dict[str, Any]]:
    first, now = record.message_count - len(added), time_text(record.updated_at)
    return [
        {"id": record.id, "position": first + at, "now": now, "message": packed.message, "words": packed.words}
        for at, packed in enumerate(added)
    ]


async def execute(connection: AsyncConnection, statement: str, parameters: Any) -> CursorResult[Any]:
    """Execute a statement; `parameters` is a mapping, or a list of them."""
    from sqlalchemy import text

    return await connection.execute(text(statement), parameters)

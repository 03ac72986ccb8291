"""Writes of many conversations in one transaction.

A transaction costs a few milliseconds, most of them until the disk has it. So changes that are requested while a
transaction runs wait, and share the next one: turns that end a round at the same time are stored at the same time. Each
change is made in Python on the conversation's row, which is locked; all rows are written in four statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dial_client.errors import DialError
from dial_client.stores.batcher import Batcher, BatchRequest
from dial_client.stores.conversation_store import fold, to_sortable_time
from dial_client.stores.database import LONGEST_HOLD, Database, clock_expression
from dial_client.stores.row_values import to_count, to_seconds, to_text, to_time, to_title, to_turn
from dial_client.stores.store_core import Change, RowChange, StoredConversation

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

_ROWS = 500
"""Conversations that one statement reads; databases take some thousand parameters."""


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message in the form of its row."""

    message: str
    """JSON."""
    words: str


class _ChangeRequest(BatchRequest[T]):
    """A request to change a conversation."""

    def __init__(self, conversation_id: str, change: Change[T]) -> None:
        super().__init__(conversation_id)
        self._change = change

    def apply(self, row: RowChange) -> None:
        """Make the change; an error fails this request only."""
        self.error = None
        try:
            self.result = self._change(row)
        except DialError as error:
            self.error = error


class BatchWriter:
    """Changes the rows of a database, under asyncio."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher = Batcher[_ChangeRequest[Any]](self._write)

    async def change(self, conversation_id: str, change: Change[T]) -> T:
        """Make a change, all of it or none. Once begun it is finished, even if the caller is cancelled meanwhile.

        Raises:
            DialError: raised by the change, or the database failed.
        """
        await self._database.open()
        request = _ChangeRequest(conversation_id, change)
        await self._batcher.submit(request)
        return request.result  # type: ignore[return-value]  # set by the change, if there was no error

    async def aclose(self) -> None:
        """Wait until all changes are written."""
        await self._batcher.aclose()

    async def _write(self, requests: Sequence[_ChangeRequest[Any]]) -> None:
        async def work(connection: AsyncConnection) -> None:
            changes = await _load(connection, {request.conversation_id for request in requests})
            before = {id_: row.record for id_, row in changes.items()}
            for request in requests:
                request.apply(changes[request.conversation_id])
            await _write_back(connection, before, changes)

        failed: Exception | None = None
        try:
            await self._database.run(work, writes=True)
        except Exception as error:  # noqa: BLE001 - raised by each request
            failed = error
        if failed is not None and len(requests) > 1 and _is_fault_of_a_change(failed):
            for request in requests:
                await self._write([request])
            return
        for request in requests:
            request.finish(failed)


def _is_fault_of_a_change(error: Exception) -> bool:
    """Return True if a change failed and not the database: the other changes can be made without it."""
    from sqlalchemy.exc import DataError, IntegrityError

    return isinstance(error.__cause__, DataError | IntegrityError)


async def _load(connection: AsyncConnection, ids: set[str]) -> dict[str, RowChange]:
    """Lock the rows, in the same order in every process, and read them."""
    from sqlalchemy import bindparam, text

    clock = clock_expression(connection)
    lock = " FOR UPDATE" if connection.dialect.name == "postgresql" else ""
    statement = text(
        "SELECT id, title, created_at, updated_at, message_count, entry_count, turn, held_until, unfinished"  # noqa: S608
        f" FROM conversations WHERE id IN :ids ORDER BY id{lock}"
    ).bindparams(bindparam("ids", expanding=True))
    ordered = sorted(ids)
    rows: list[Any] = []
    for at in range(0, len(ordered), _ROWS):
        rows += (await connection.execute(statement, {"ids": ordered[at : at + _ROWS]})).all()
    now = (await execute(connection, f"SELECT {clock}", {})).scalar_one()
    changes = {id_: RowChange(None, now) for id_ in ids}
    for id_, title, created, updated, count, entries, turn, until, unfinished in rows:
        held_until = to_seconds(until) if to_seconds(until) < now + LONGEST_HOLD else 0.0
        times = to_time(created), to_time(updated)
        counts = to_count(count) or 0, to_count(entries) or 0
        changes[id_].record = StoredConversation(
            id_, to_title(title), *times, *counts, to_turn(turn), held_until, to_text(unfinished)
        )
    return changes


async def _write_back(
    connection: AsyncConnection, before: dict[str, StoredConversation | None], changes: dict[str, RowChange]
) -> None:
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    deleted: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for id_, row in sorted(changes.items()):
        record, old = row.record, before[id_]
        if record is None:
            if old is not None:
                deleted.append({"id": id_})
            continue
        if record is not old:
            (new if old is None else changed).append(_row(record))
        messages += _rows(record, row.added)
    for statement, rows in ((_DELETE, deleted), (_INSERT, new), (_UPDATE, changed), (_ADD, messages)):
        if rows:
            await execute(connection, statement, rows)


_DELETE = "DELETE FROM conversations WHERE id = :id"
_INSERT = (
    "INSERT INTO conversations (id, title, words, created_at, updated_at, message_count, entry_count, turn, held_until,"
    " unfinished) VALUES (:id, :title, :words, :created, :updated, :count, :entries, :turn, :until, :unfinished)"
)
_UPDATE = (
    "UPDATE conversations SET title = :title, words = :words, updated_at = :updated, message_count = :count,"
    " entry_count = :entries, turn = :turn, held_until = :until, unfinished = :unfinished WHERE id = :id"
)
_ADD = (
    "INSERT INTO messages (conversation_id, position, created_at, message, words)"
    " VALUES (:id, :position, :now, :message, :words)"
)


def _row(record: StoredConversation) -> dict[str, Any]:
    return {
        "id": record.id,
        "title": record.title,
        "words": fold(record.title),
        "created": to_sortable_time(record.created_at),
        "updated": to_sortable_time(record.updated_at),
        "count": record.message_count,
        "entries": record.entry_count,
        "turn": record.turn,
        "until": record.held_until,
        "unfinished": _unfinished(record),
    }


def _unfinished(record: StoredConversation) -> str:
    """Return a JSON list of messages, empty for none: as it was read, or as a change has set it."""
    unfinished = record.unfinished or ""
    if isinstance(unfinished, str):
        return unfinished
    return f"[{','.join(encoded.message for encoded in unfinished)}]"


def _rows(record: StoredConversation, added: Sequence[EncodedMessage]) -> list[dict[str, Any]]:
    first, now = record.message_count - len(added), to_sortable_time(record.updated_at)
    return [
        {"id": record.id, "position": first + at, "now": now, "message": encoded.message, "words": encoded.words}
        for at, encoded in enumerate(added)
    ]


async def execute(connection: AsyncConnection, statement: str, parameters: Any) -> CursorResult[Any]:
    """Execute a statement; `parameters` is a mapping, or a list of them."""
    from sqlalchemy import text

    return await connection.execute(text(statement), parameters)

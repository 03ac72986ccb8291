"""Writes several conversations in one transaction.

A transaction takes a few milliseconds, mostly to sync the disk. So changes that are requested while a transaction runs
are batched into the next one. Each change is applied in Python to the conversation's locked row; four statements write
all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dial_client.messages.errors import DialError
from dial_client.stores.batcher import Batcher, BatchRequest
from dial_client.stores.conversation_store import fold, to_sortable_time
from dial_client.stores.database import MAX_LEASE_SECONDS, Database, build_clock_expression
from dial_client.stores.row_values import to_count, to_seconds, to_text, to_time, to_title, to_turn
from dial_client.stores.store_core import Change, RowChange, StoredConversation

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

_ROWS = 500
"""The most conversations that one statement reads; databases limit the number of parameters to some thousands."""


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message, encoded for its row."""

    message: str
    """The message as JSON."""
    words: str
    """The text of the message for searches."""


class _ChangeRequest(BatchRequest[T]):
    """A request to change a conversation."""

    def __init__(self, conversation_id: str, change: Change[T]) -> None:
        super().__init__(conversation_id)
        self._change = change

    def apply(self, row: RowChange) -> None:
        """Apply the change to the row; an error fails only this request."""
        self.error = None
        try:
            self.result = self._change(row)
        except DialError as error:
            self.error = error


class BatchWriter:
    """Writes changes of conversations to a database in batches; only for asyncio."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher = Batcher[_ChangeRequest[Any]](self._write)

    async def change(self, conversation_id: str, change: Change[T]) -> T:
        """Apply a change completely or not at all; a started change is finished even if the caller is cancelled.

        Raises:
            DialError: The change raised it, or the database failed.
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
            old_records = {id_: row.record for id_, row in changes.items()}
            for request in requests:
                request.apply(changes[request.conversation_id])
            await _write_back(connection, old_records, changes)

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
    """Return True if the values of a change caused the error, so that the other changes can succeed without it."""
    from sqlalchemy.exc import DataError, IntegrityError

    return isinstance(error.__cause__, DataError | IntegrityError)


async def _load(connection: AsyncConnection, ids: set[str]) -> dict[str, RowChange]:
    """Lock the rows, in the same order in every process to prevent deadlocks, and read them."""
    from sqlalchemy import bindparam, text

    clock = build_clock_expression(connection)
    lock = " FOR UPDATE" if connection.dialect.name == "postgresql" else ""
    statement = text(
        "SELECT id, title, created_at, updated_at, message_count, entry_count, turn, held_until, unfinished"  # noqa: S608
        f" FROM conversations WHERE id IN :ids ORDER BY id{lock}"
    ).bindparams(bindparam("ids", expanding=True))
    ordered = sorted(ids)
    rows: list[Any] = []
    for start in range(0, len(ordered), _ROWS):
        rows += (await connection.execute(statement, {"ids": ordered[start : start + _ROWS]})).all()
    now = (await execute(connection, f"SELECT {clock}", {})).scalar_one()
    changes = {id_: RowChange(None, now) for id_ in ids}
    for id_, title, created, updated, count, entries, turn, lease_end, unfinished in rows:
        held_until = to_seconds(lease_end) if to_seconds(lease_end) < now + MAX_LEASE_SECONDS else 0.0
        times = to_time(created), to_time(updated)
        counts = to_count(count) or 0, to_count(entries) or 0
        changes[id_].record = StoredConversation(
            id_, to_title(title), *times, *counts, to_turn(turn), held_until, to_text(unfinished)
        )
    return changes


async def _write_back(
    connection: AsyncConnection, old_records: dict[str, StoredConversation | None], changes: dict[str, RowChange]
) -> None:
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    deleted: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for id_, row in sorted(changes.items()):
        record, old = row.record, old_records[id_]
        if record is None:
            if old is not None:
                deleted.append({"id": id_})
            continue
        if record is not old:
            (new if old is None else changed).append(_build_row(record))
        messages += _build_message_rows(record, row.added)
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


def _build_row(record: StoredConversation) -> dict[str, Any]:
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
        "unfinished": _encode_unfinished(record),
    }


def _encode_unfinished(record: StoredConversation) -> str:
    """Return the unfinished messages as a JSON list, or an empty string for none."""
    unfinished = record.unfinished or ""
    if isinstance(unfinished, str):
        return unfinished
    return f"[{','.join(encoded.message for encoded in unfinished)}]"


def _build_message_rows(record: StoredConversation, added: Sequence[EncodedMessage]) -> list[dict[str, Any]]:
    first, now = record.message_count - len(added), to_sortable_time(record.updated_at)
    return [
        {"id": record.id, "position": first + index, "now": now, "message": encoded.message, "words": encoded.words}
        for index, encoded in enumerate(added)
    ]


async def execute(connection: AsyncConnection, statement: str, parameters: Any) -> CursorResult[Any]:
    """Execute a statement with a mapping of parameters, or a list of mappings."""
    from sqlalchemy import text

    return await connection.execute(text(statement), parameters)

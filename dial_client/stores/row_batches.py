"""Reads and writes several conversations in one transaction, and parses the columns of their rows.

A transaction takes a few milliseconds, mostly to sync the disk. So requests that arrive while a transaction runs share
the next one. Each change is applied in Python to the conversation's locked row; four statements write all rows.

Other programs may have written the rows: SQLite stores values of any type in any column, and text in any encoding;
PostgreSQL stores NaN as a number. A value that this package does not write counts as missing, so that a wrong row does
not make other rows unreadable.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from dial_client.messages.errors import DialError
from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import EPOCH, MAX_PREVIEW, build_title, casefold_text, to_sortable_time
from dial_client.stores.database import MAX_LEASE_SECONDS, Database, build_clock_expression
from dial_client.stores.store_core import Change, RowChange, StoredConversation

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

log = get_logger(__name__)

T = TypeVar("T")

# The columns of a conversation, except for the unfinished part of its turn, which may be large.
COLUMNS = "id, title, created_at, updated_at, message_count, entry_count, turn, held_until, owner, metadata, preview"
# Selects conversations whole, each with the time of the database; the clock is inserted.
_SELECT = f"SELECT {COLUMNS}, unfinished, {{}} AS now FROM conversations WHERE id IN :ids"  # noqa: S608 - our own text
# Limit of conversations that one statement reads; databases limit the number of parameters to some thousands.
_MAX_IDS = 500
_MAX_TURN = 64
_MAX_COUNT = 2**31 - 1


@dataclass(eq=False, slots=True)
class Request(Generic[T]):
    """A request for a conversation, and its result."""

    conversation_id: str
    change: Change[T] | None = None
    """The change of the conversation; None for a request that reads it."""
    result: T | Exception | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


# Processes the requests of a batch in one transaction: sets the result of each, or its error.
Process = Callable[["AsyncConnection", Sequence[Request[Any]]], Awaitable[None]]


class Batcher:
    """Processes all requests that wait as one batch, in one transaction; only for asyncio.

    Args:
        database: The database.
        process: See `Process`.
        writes: True if the transaction writes.
    """

    def __init__(self, database: Database, process: Process, *, writes: bool) -> None:
        self._database = database
        self._process = process
        self._writes = writes
        self._waiting: list[Request[Any]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Request[T]) -> T | None:
        """Return the result of a request; a request is finished even if the caller is cancelled.

        Raises:
            DialError: The request failed.
        """
        await self._database.open()
        self._waiting.append(request)
        if self._task is None or self._task.done():
            # In a separate task, so that the cancellation of one caller does not cancel other requests.
            self._task = asyncio.create_task(self._process_all())
        with anyio.CancelScope(shield=True):
            await request.done.wait()
        if isinstance(request.result, Exception):
            raise request.result
        return request.result

    async def aclose(self) -> None:
        """Wait until all requests are finished."""
        if self._task is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task])

    async def _process_all(self) -> None:
        batch: list[Request[Any]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._process_batch(batch)
        finally:
            # If this task is cancelled with its event loop, every waiting request fails instead of waiting for ever.
            unprocessed, self._waiting = self._waiting, []
            for request in (*batch, *unprocessed):
                if not request.done.is_set():
                    request.result = DialError("the program ended before the database answered")
                    request.done.set()

    async def _process_batch(self, batch: Sequence[Request[Any]]) -> None:
        async def process(connection: AsyncConnection) -> None:
            await self._process(connection, batch)

        failed: Exception | None = None
        try:
            await self._database.run(process, writes=self._writes)
        except Exception as error:  # noqa: BLE001 - raised by each request
            failed = error
        if failed is not None and len(batch) > 1 and _is_fault_of_a_change(failed):
            for request in batch:
                await self._process_batch([request])
            return
        for request in batch:
            request.result = failed or request.result
            request.done.set()


def _is_fault_of_a_change(error: Exception) -> bool:
    """Return True if the values of a change caused the error, so that the other changes can succeed without it."""
    from sqlalchemy.exc import DataError, IntegrityError

    return isinstance(error.__cause__, DataError | IntegrityError)


@dataclass(frozen=True, slots=True)
class Rows:
    """A conversation and the rows of its messages."""

    record: StoredConversation
    now: float
    """The time of the record, in seconds by the database's clock."""
    messages: list[tuple[int, str]]
    """The position and the JSON of each message, in order."""


async def read_rows(connection: AsyncConnection, requests: Sequence[Request[Rows]]) -> None:
    """Read the conversations of the requests; the result is None for a conversation that does not exist."""
    ids = [request.conversation_id for request in requests]
    conversations = await select_by_ids(connection, _SELECT.format(build_clock_expression(connection)), ids)
    messages: dict[str, list[tuple[int, str]]] = {row.id: [] for row in conversations}
    for id_, position, message in await select_by_ids(
        connection,
        "SELECT conversation_id, position, message FROM messages WHERE conversation_id IN :ids"
        " ORDER BY conversation_id, position",
        ids,
    ):
        if id_ in messages:
            messages[id_].append((position, message))
    found: dict[str, Rows] = {}
    for row in conversations:
        own = messages[row.id]
        record = to_record(row, row.now, default_count=len(own))
        # A turn may have appended messages between the two statements: use the count that the first one read.
        found[row.id] = Rows(record, row.now, own[: record.message_count])
    for request in requests:
        request.result = found.get(request.conversation_id)


async def write_changes(connection: AsyncConnection, requests: Sequence[Request[Any]]) -> None:
    """Apply the changes of the requests, each completely or not at all; an error of a change fails only its request."""
    changes = await _load(connection, requests)
    old_records = {id_: row.record for id_, row in changes.items()}
    for request in requests:
        assert request.change is not None
        try:
            request.result = request.change(changes[request.conversation_id])
        except DialError as error:
            request.result = error
    rows: dict[str, list[dict[str, Any]]] = {_DELETE: [], _INSERT: [], _UPDATE: [], _ADD: []}
    for id_, row in sorted(changes.items()):
        record, old = row.record, old_records[id_]
        if record is None:
            if old is not None:
                rows[_DELETE].append({"id": id_})
            continue
        if record is not old:
            rows[_INSERT if old is None else _UPDATE].append(_build_row(record))
        rows[_ADD] += _build_message_rows(record, row.added)
    for statement, parameters in rows.items():
        if parameters:
            await execute(connection, statement, parameters)


_DELETE = "DELETE FROM conversations WHERE id = :id"
_INSERT = (
    "INSERT INTO conversations (id, title, words, created_at, updated_at, message_count, entry_count, turn, held_until,"
    " unfinished, owner, metadata, preview) VALUES (:id, :title, :words, :created, :updated, :count, :entries, :turn,"
    " :until, :unfinished, :owner, :metadata, :preview)"
)
_UPDATE = (
    "UPDATE conversations SET title = :title, words = :words, updated_at = :updated, message_count = :count,"
    " entry_count = :entries, turn = :turn, held_until = :until, unfinished = :unfinished, owner = :owner,"
    " metadata = :metadata, preview = :preview WHERE id = :id"
)
_ADD = (
    "INSERT INTO messages (conversation_id, position, created_at, message, words)"
    " VALUES (:id, :position, :now, :message, :words)"
)


async def _load(connection: AsyncConnection, requests: Sequence[Request[Any]]) -> dict[str, RowChange]:
    """Lock the rows, in the same order in every process to prevent deadlocks, and read them."""
    lock = " FOR UPDATE" if connection.dialect.name == "postgresql" else ""
    # A conversation that does not exist has no lease, and needs no time.
    changes = {request.conversation_id: RowChange(None, 0.0) for request in requests}
    statement = f"{_SELECT.format(build_clock_expression(connection))} ORDER BY id{lock}"
    rows = await select_by_ids(connection, statement, changes)
    for row in rows:
        # The time may be from before the wait for the lock: leases then count as longer, and new ones are shorter.
        changes[row.id] = RowChange(to_record(row, row.now), row.now)
    return changes


def to_record(row: Any, now: float, default_count: int = 0) -> StoredConversation:
    """Return the record of a row with `COLUMNS`, and with the column ``unfinished`` if it was selected.

    Args:
        row: The row.
        now: The time in seconds by the database's clock.
        default_count: The number of messages if the stored number is invalid.
    """
    held_until = to_seconds(row.held_until)
    return StoredConversation(
        to_text(row.id),
        build_title(to_text(row.title)),
        to_time(row.created_at),
        to_time(row.updated_at),
        to_count(row.message_count, default_count),
        to_count(row.entry_count, 0),
        to_turn(row.turn),
        held_until if held_until < now + MAX_LEASE_SECONDS else 0.0,
        to_text(getattr(row, "unfinished", "")),
        to_text(row.owner),
        _to_metadata(row.metadata),
        build_title(to_text(row.preview), MAX_PREVIEW),
    )


async def select_by_ids(connection: AsyncConnection, statement: str, ids: Iterable[str]) -> list[Any]:
    """Return the rows of a statement with the parameter ``ids``, for these conversations."""
    from sqlalchemy import bindparam, text

    prepared = text(statement).bindparams(bindparam("ids", expanding=True))
    ordered = sorted(set(ids))
    rows: list[Any] = []
    for start in range(0, len(ordered), _MAX_IDS):
        rows += (await connection.execute(prepared, {"ids": ordered[start : start + _MAX_IDS]})).all()
    return rows


async def execute(connection: AsyncConnection, statement: str, parameters: Any) -> CursorResult[Any]:
    """Execute a statement with a mapping of parameters, or a list of mappings."""
    from sqlalchemy import text

    return await connection.execute(text(statement), parameters)


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message, encoded for its row."""

    message: str
    """The message as JSON."""
    words: str
    """The text of the message for searches."""


def _build_row(record: StoredConversation) -> dict[str, Any]:
    unfinished = record.unfinished or ""
    if not isinstance(unfinished, str):  # encoded by a change; otherwise it is the text that was read
        unfinished = f"[{','.join(encoded.message for encoded in unfinished)}]"
    return {
        "id": record.id,
        "title": record.title,
        "words": casefold_text(record.title),
        "created": to_sortable_time(record.created_at),
        "updated": to_sortable_time(record.updated_at),
        "count": record.message_count,
        "entries": record.entry_count,
        "turn": record.turn,
        "until": record.held_until,
        "unfinished": unfinished,
        "owner": record.owner,
        "metadata": json.dumps(record.metadata) if record.metadata else "",
        "preview": record.preview,
    }


def _build_message_rows(record: StoredConversation, added: Sequence[EncodedMessage]) -> list[dict[str, Any]]:
    first, now = record.message_count - len(added), to_sortable_time(record.updated_at)
    return [
        {"id": record.id, "position": first + index, "now": now, "message": encoded.message, "words": encoded.words}
        for index, encoded in enumerate(added)
    ]


def to_text(value: Any) -> str:
    """Return the value as text, with bytes that are not UTF-8 replaced; empty for other types."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def to_time(value: Any) -> datetime:
    """Return the value as a time in UTC; `EPOCH` if it is not a time."""
    try:
        found = datetime.fromisoformat(to_text(value))
    except ValueError:
        log.warning("row_damaged", column="time")
        return EPOCH
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def to_count(value: Any, default: int) -> int:
    """Return the value as a number of messages; the default if it is not a valid number."""
    if isinstance(value, int) and 0 <= value <= _MAX_COUNT:
        return value
    log.warning("row_damaged", column="count")
    return default


def to_seconds(value: Any) -> float:
    """Return the value as seconds; 0 if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _to_metadata(value: Any) -> dict[str, Any]:
    try:
        found = json.loads(to_text(value) or "{}")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    log.warning("row_damaged", column="metadata")
    return {}


def to_turn(value: Any) -> str:
    """Return the value as the id of a turn; empty if it is not a valid id."""
    turn = to_text(value)
    return turn if len(turn) <= _MAX_TURN and turn.isascii() and turn.isprintable() else ""

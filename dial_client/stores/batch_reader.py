"""Reads several conversations in one transaction, so that turns that start at the same time share one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dial_client.stores.batcher import Batcher, BatchRequest
from dial_client.stores.database import Database, build_lease_expression

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_MAX_IDS = 100
"""The most conversations that one statement reads."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a conversation and of its messages."""

    record: Any
    """The columns id, title, created_at, updated_at, turn, unfinished and message_count, and the computed `running`."""
    messages: list[tuple[int, str]] = field(default_factory=list)
    """The position and the JSON of each message, in order."""


class BatchReader:
    """Reads conversations from a database in batches; only for asyncio."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher = Batcher(self._read)

    async def read(self, conversation_id: str) -> Rows | None:
        """Return the rows of a conversation; None if it does not exist.

        Raises:
            DialError: The database failed.
        """
        await self._database.open()
        request = BatchRequest[Rows](conversation_id)
        await self._batcher.submit(request)
        return request.result

    async def aclose(self) -> None:
        """Wait until all requests are finished."""
        await self._batcher.aclose()

    async def _read(self, requests: Sequence[BatchRequest[Rows]]) -> None:
        ids = sorted({request.conversation_id for request in requests})
        found: dict[str, Rows] = {}

        async def work(connection: AsyncConnection) -> None:
            for start in range(0, len(ids), _MAX_IDS):
                found.update(await _read_rows(connection, ids[start : start + _MAX_IDS]))

        failed: Exception | None = None
        try:
            await self._database.run(work, writes=False)
        except Exception as error:  # noqa: BLE001 - raised by each request
            failed = error
        for request in requests:
            request.result = found.get(request.conversation_id)
            request.finish(failed)


async def _read_rows(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, Rows]:
    from sqlalchemy import bindparam, text

    conversations = text(
        "SELECT id, title, created_at, updated_at, turn, unfinished, message_count,"  # noqa: S608 - our own text
        f" {build_lease_expression(connection)} AS running FROM conversations WHERE id IN :ids"
    ).bindparams(bindparam("ids", expanding=True))
    messages = text(
        "SELECT conversation_id, position, message FROM messages WHERE conversation_id IN :ids"
        " ORDER BY conversation_id, position"
    ).bindparams(bindparam("ids", expanding=True))
    found = {row.id: Rows(row) for row in await connection.execute(conversations, {"ids": ids})}
    for id_, position, message in await connection.execute(messages, {"ids": ids}):
        if id_ in found:
            found[id_].messages.append((position, message))
    return found

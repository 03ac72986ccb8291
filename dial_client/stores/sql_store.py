"""A store of conversations in SQLite or PostgreSQL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dial_client.messages.errors import ConversationNotFound, DialError
from dial_client.messages.message import Message
from dial_client.runtime.logs import get_logger
from dial_client.stores import row_batches
from dial_client.stores.access_tokens import AccessTokens
from dial_client.stores.conversation_store import (
    Conversation,
    Page,
    build_page,
    check_conversation_id,
    check_owner,
    parse_cursor,
    split_search,
)
from dial_client.stores.database import MAX_LEASE_SECONDS, Database, build_clock_expression, check_address
from dial_client.stores.migrations import extract_search_text
from dial_client.stores.owner_credentials import OwnerCredentials
from dial_client.stores.owner_data import OwnerData
from dial_client.stores.owner_usage import OwnerUsage
from dial_client.stores.row_batches import Batcher, EncodedMessage, Request, Rows, execute
from dial_client.stores.shared_values import SharedValues
from dial_client.stores.store_core import Change, StoreCore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = get_logger(__name__)

T = TypeVar("T")

# Limit of seconds that an operation waits for other processes that write to the same database.
PATIENCE = 10.0


class SQLStore(StoreCore):
    """A `ConversationStore` in a database, for asyncio. Any number of processes may use it at the same time.

    Use it as ``async with SQLStore(…) as store``, or close it by `aclose`.

    Only its owner can read a SQLite file (mode 0600, in folders created with 0700). The file is in WAL mode with
    ``synchronous=FULL``, so messages are on the disk before `append` returns; ``NORMAL`` could lose the last messages
    if the machine crashes. PostgreSQL (the extra ``postgres``) has the same guarantees, for processes on several
    machines.

    Args:
        where: The path of a SQLite file, or the URL of a database: ``postgresql://user@host/database``.
        patience: Seconds to wait for other processes that write to the same database.

    Raises:
        ConfigError: `where` is a string, but not the URL of a supported database.
        TypeError: `where` is neither a `Path` nor a string.
    """

    def __init__(self, where: str | Path, *, patience: float = PATIENCE) -> None:
        super().__init__()
        check_address(where)
        self.where = where
        """The path of a SQLite file, or the URL of a database."""
        self._database = Database(where, patience=patience)
        self._reader = Batcher(self._database, row_batches.read_rows, writes=False)
        self._writer = Batcher(self._database, row_batches.write_changes, writes=True)
        self.owner_data = OwnerData(self._database)
        """What the database has of one owner, to export and to erase it."""
        self.usage = OwnerUsage(self._database)
        """What owners have used, by day."""
        self.values = SharedValues(self._database)
        """Values that the processes with the same database share."""
        self.tokens = AccessTokens(self._database)
        """The access tokens of a service for several persons."""
        self.credentials = OwnerCredentials(self._database)
        """What persons gave to a service for its servers, encrypted."""

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database server."""
        if isinstance(self.where, Path):
            return self.where.expanduser()
        if not self.where.startswith("sqlite"):
            return None
        from sqlalchemy import make_url

        return Path(make_url(self.where).database or "")

    @classmethod
    def sqlite(cls, path: str | os.PathLike[str] | None = None) -> SQLStore:
        """Return a store in a SQLite file, by default ``conversations.db`` in the user's data folder."""
        if path is None:
            import platformdirs

            path = platformdirs.user_data_path("dial-client", appauthor=False) / "conversations.db"
        return cls(Path(path))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    @property
    def is_postgres(self) -> bool:
        """Whether the database is on a PostgreSQL server, which also carries messages between processes."""
        return isinstance(self.where, str) and not self.where.startswith("sqlite")

    async def open(self) -> AsyncEngine:
        """Open the database now instead of at the first operation, and return SQLAlchemy's engine.

        The driver is imported in a worker thread.
        """
        return await self._database.open()

    async def check(self) -> None:
        """Read nothing from the database.

        Raises:
            ConfigError: The database cannot be used.
            StoreUnavailable: The database failed, or cannot be reached.
        """
        await self._database.run(lambda connection: execute(connection, "SELECT 1", {}), writes=False)

    @property
    def is_failing(self) -> bool:
        """Whether the last use of the database failed."""
        return self._database.is_failing

    @property
    def failures(self) -> int:
        """How often a use of the database has failed."""
        return self._database.failures

    async def find_versions(self) -> tuple[int, int]:
        """Return the version of the schema, which is not migrated (0 for none), and that of this program."""
        return await self._database.find_versions()

    async def find_damage(self) -> list[str]:
        """Return what SQLite finds wrong with its file; nothing for a server, which checks itself."""
        return await self._database.find_damage()

    async def get(self, conversation_id: str) -> Conversation:
        """See `ConversationStore.get`. Messages that cannot be read are left out, with a note for each."""
        read = await self._reader.submit(Request[Rows](_check_id(conversation_id)))
        if read is None:
            raise ConversationNotFound(conversation_id)
        messages, notes, unreadable = _decode_all(read.messages)
        stored = read.record.to_conversation(read.now, messages, _parse_unfinished(read.record.unfinished))
        return replace(stored, notes=notes, unreadable=unreadable)

    async def read_turn(self, conversation_id: str) -> tuple[str, bool]:
        """Return `Conversation.turn` and `Conversation.running`, without reading the messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        turn, running, _, _ = await self.read_state(conversation_id)
        return turn, running

    async def read_state(self, conversation_id: str) -> tuple[str, bool, int, str]:
        """Return `turn`, `running`, `message_count` and `title` of a `Conversation`, without reading the messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

        async def read_row(connection: AsyncConnection) -> Any:
            statement = f"{_build_select(connection)} WHERE id = :id"
            return (await execute(connection, statement, {"id": _check_id(conversation_id)})).one_or_none()

        row = await self._database.run(read_row, writes=False)
        if row is None:
            raise ConversationNotFound(conversation_id)
        record = row_batches.to_record(row, row.now)
        return record.turn, record.is_held(row.now), record.message_count, record.title

    async def find_running(self, conversation_ids: Iterable[str]) -> frozenset[str]:
        """Return those of the conversations that a turn holds, in one statement however many they are."""

        async def read_ids(connection: AsyncConnection) -> frozenset[str]:
            now, longest = build_clock_expression(connection), MAX_LEASE_SECONDS
            held = f"held_until > {now} AND held_until < {now} + {longest}"
            statement = f"SELECT id FROM conversations WHERE id IN :ids AND turn <> '' AND {held}"  # noqa: S608
            return frozenset(row.id for row in await row_batches.select_by_ids(connection, statement, ids))

        ids = [id_ for id_ in conversation_ids if id_.isascii() and id_.isprintable()]
        return await self._database.run(read_ids, writes=False) if ids else frozenset()

    async def list(
        self,
        limit: int = 50,
        *,
        cursor: str | None = None,
        search: str = "",
        owner: str | None = None,
        marks: Mapping[str, bool] = MappingProxyType({}),
    ) -> Page:
        """See `ConversationStore.list`."""
        conditions, values = _build_conditions(cursor, split_search(search))
        if owner is not None:
            conditions.append("owner = :owner")
            values["owner"] = check_owner(owner)
        for index, (name, value) in enumerate(marks.items()):
            # The text that `json.dumps` writes for this name; within strings its quotes are escaped.
            conditions.append(f"metadata {'' if value else 'NOT '}LIKE :mark{index}")
            values[f"mark{index}"] = f'%"{name}": true%'

        async def read_page(connection: AsyncConnection) -> Sequence[Any]:
            order = "ORDER BY updated_at DESC, id DESC LIMIT :limit"
            statement = f"{_build_select(connection)} WHERE {' AND '.join(conditions)} {order}"
            return (await execute(connection, statement, {"limit": limit + 1, **values})).all()

        rows = await self._database.run(read_page, writes=False)
        return build_page([row_batches.to_record(row, row.now).to_summary(row.now) for row in rows], limit)

    async def aclose(self) -> None:
        """See `ConversationStore.aclose`."""
        await self._reader.aclose()
        await self._writer.aclose()
        await self._database.aclose()

    async def _change(self, conversation_id: str, change: Change[T]) -> T:
        # The result is set by the change, if there was no error.
        return await self._writer.submit(Request(_check_id(conversation_id), change))  # type: ignore[return-value]

    def _encode(self, messages: Sequence[Message]) -> Sequence[EncodedMessage]:
        encoded: list[EncodedMessage] = []
        for message in messages:
            try:
                data = message.to_dict()
                encoded.append(EncodedMessage(json.dumps(data, separators=(",", ":")), extract_search_text(data)))
            except (TypeError, ValueError, RecursionError) as error:
                raise DialError(f"a message of the {message.role} cannot be stored: {error}") from error
        return encoded


def _build_select(connection: AsyncConnection) -> str:
    """Return the statement that selects the records of all conversations, each with the time of the database."""
    return f"SELECT {row_batches.COLUMNS}, {build_clock_expression(connection)} AS now FROM conversations"  # noqa: S608


def _build_conditions(cursor: str | None, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the SQL conditions of a list, and their parameters."""
    conditions, values = ["1 = 1"], dict[str, str]()
    if cursor is not None:
        conditions.append("(updated_at, id) < (:time, :id)")
        values["time"], values["id"] = parse_cursor(cursor)
    for index, word in enumerate(words):
        conditions.append(
            f"(words LIKE :word{index} ESCAPE '!' OR EXISTS (SELECT 1 FROM messages m"  # noqa: S608
            f" WHERE m.conversation_id = conversations.id AND m.words LIKE :word{index} ESCAPE '!'))"
        )
        literal = "".join(f"!{char}" if char in "!%_" else char for char in word)
        values[f"word{index}"] = f"%{literal}%"
    return conditions, values


def _check_id(conversation_id: str) -> str:
    """Return the id if it is printable ASCII, as all ids are.

    Raises:
        ConversationNotFound: The id has other characters, so no conversation has it.
        TypeError: The id is no string.
    """
    check_conversation_id(conversation_id)
    if not (conversation_id.isascii() and conversation_id.isprintable()):
        raise ConversationNotFound(conversation_id)
    return conversation_id


def _decode_all(read: Iterable[Any]) -> tuple[tuple[Message, ...], tuple[str, ...], tuple[int, ...]]:
    """Return the messages, and for each row that cannot be read a note and its index."""
    messages: list[Message] = []
    notes: list[str] = []
    unreadable: list[int] = []
    for index, (position, text) in enumerate(read):
        try:
            messages.append(Message.from_dict(json.loads(text)))
        except (TypeError, ValueError, RecursionError) as error:
            number = position + 1 if isinstance(position, int) else len(messages) + len(notes) + 1
            notes.append(f"message {number} cannot be read and is left out")
            unreadable.append(index)
            log.warning("message_unreadable", number=number, error=type(error).__name__)
    return tuple(messages), tuple(notes), tuple(unreadable)


def _parse_unfinished(text: str) -> tuple[Message, ...]:
    try:
        return tuple(Message.from_dict(data) for data in json.loads(text or "[]"))
    except (TypeError, ValueError, RecursionError) as error:
        log.warning("unfinished_unreadable", error=type(error).__name__)
        return ()

"""Where conversations are kept: in memory, or in a database that outlives the program.

A message is appended and never rewritten. What is appended together is stored together or not at all.
"""

from __future__ import annotations

import json
import os
import unicodedata
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dial_client.database import Database
from dial_client.errors import ConversationNotFound, DialError
from dial_client.logs import get_logger
from dial_client.messages import Message

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

log = get_logger(__name__)

MAX_TITLE = 60
"""Characters of a title."""

PATIENCE = 10.0
"""Seconds an operation waits for other programs that write to the same file."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation and what was said in it."""

    id: str
    title: str
    """Its first words, in one line; empty until something was said."""
    created_at: datetime
    """In UTC."""
    updated_at: datetime
    """In UTC: when the last message was added."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    """What is wrong with what is stored, in a person's words: messages that cannot be read and are left out."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation without its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int


class ConversationStore(Protocol):
    """Keeps conversations. A change once begun is finished, even if its caller is cancelled, and every wait has an end.

    Besides what they name, all methods raise `ConfigError` where the store cannot be used (the file is no database, the
    folder cannot be written), and `DialError` where it failed this time (locked for too long, disk full).
    """

    async def create(self, title: str = "") -> Conversation:
        """Begin a conversation; of the title one line of at most `MAX_TITLE` characters is kept."""
        ...

    async def append(self, conversation_id: str, messages: Sequence[Message], *, title: str = "") -> None:
        """Add messages behind all others, all or none. A conversation without a title gets this one.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def get(self, conversation_id: str) -> Conversation:
        """Give a conversation with its messages as they were appended.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def list(self, limit: int = 50) -> tuple[ConversationSummary, ...]:
        """Give at most `limit` conversations, first the one that changed last."""
        ...

    async def latest(self) -> ConversationSummary | None:
        """Give the conversation that changed last; None where there is none."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Forget a conversation and its messages.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections; may be called twice."""
        ...


class MemoryStore:
    """A `ConversationStore` that is gone with the program."""

    def __init__(self) -> None:
        # The one that changed last comes last.
        self._conversations: dict[str, Conversation] = {}

    async def create(self, title: str = "") -> Conversation:
        """See `ConversationStore.create`."""
        conversation = _new(title)
        self._conversations[conversation.id] = conversation
        return conversation

    async def append(self, conversation_id: str, messages: Sequence[Message], *, title: str = "") -> None:
        """See `ConversationStore.append`."""
        before = await self.get(conversation_id)
        del self._conversations[conversation_id]
        self._conversations[conversation_id] = replace(
            before,
            title=before.title or one_line(title),
            updated_at=datetime.now(UTC),
            messages=(*before.messages, *messages),
        )

    async def get(self, conversation_id: str) -> Conversation:
        """See `ConversationStore.get`."""
        if conversation_id not in self._conversations:
            raise _not_found(conversation_id)
        return self._conversations[conversation_id]

    async def list(self, limit: int = 50) -> tuple[ConversationSummary, ...]:
        """See `ConversationStore.list`."""
        newest_first = tuple(reversed(self._conversations.values()))
        return tuple(
            ConversationSummary(one.id, one.title, one.created_at, one.updated_at, len(one.messages))
            for one in newest_first[:limit]
        )

    async def latest(self) -> ConversationSummary | None:
        """See `ConversationStore.latest`."""
        return next(iter(await self.list(1)), None)

    async def delete(self, conversation_id: str) -> None:
        """See `ConversationStore.delete`."""
        await self.get(conversation_id)
        del self._conversations[conversation_id]

    async def aclose(self) -> None:
        """See `ConversationStore.aclose`."""


class SQLStore:
    """A `ConversationStore` in a database, under asyncio. Any number of programs may use it at once.

    A SQLite file is for its owner only: 0600, in folders that are made 0700. It is kept in WAL mode with
    ``synchronous=FULL``: what was appended is on the disk before `append` returns. ``NORMAL`` would survive a killed
    program too, but may lose the last messages when the machine goes down. A turn stores a handful of messages and
    waits seconds for its model, so the milliseconds this costs are not worth saving.

    Args:
        where: the path of a SQLite file, or a database's URL.
        patience: seconds to wait for other programs that write to the same file.
    """

    def __init__(self, where: str | Path, *, patience: float = PATIENCE) -> None:
        self._database = Database(where, patience=patience)

    @classmethod
    def sqlite(cls, path: str | os.PathLike[str] | None = None) -> SQLStore:
        """Make a store of a SQLite file, by default ``conversations.db`` in the user's data folder."""
        if path is None:
            import platformdirs

            path = platformdirs.user_data_path("dial-client", appauthor=False) / "conversations.db"
        return cls(Path(path))

    async def warm(self) -> None:
        """Open the database now instead of with the first operation; what it takes is loaded off the event loop."""
        await self._database.open()

    async def create(self, title: str = "") -> Conversation:
        """See `ConversationStore.create`."""
        conversation = _new(title)

        async def work(connection: AsyncConnection) -> None:
            await _execute(
                connection,
                "INSERT INTO conversations (id, title, created_at, updated_at, message_count)"
                " VALUES (:id, :title, :now, :now, 0)",
                {"id": conversation.id, "title": conversation.title, "now": _time(conversation.created_at)},
            )

        await self._database.run(work, writes=True)
        return conversation

    async def append(self, conversation_id: str, messages: Sequence[Message], *, title: str = "") -> None:
        """See `ConversationStore.append`."""
        texts = [_encode(message) for message in messages]
        added = {
            "id": _key(conversation_id),
            "title": one_line(title),
            "count": len(texts),
            "now": _time(datetime.now(UTC)),
        }

        async def work(connection: AsyncConnection) -> None:
            # The update comes first: it holds the row, so that nobody else counts or adds until this is done.
            updated = await _execute(
                connection,
                "UPDATE conversations SET message_count = message_count + :count, updated_at = :now,"
                " title = CASE WHEN title = '' THEN :title ELSE title END WHERE id = :id",
                added,
            )
            if not updated.rowcount:
                raise _not_found(conversation_id)
            counted = await _execute(connection, "SELECT message_count FROM conversations WHERE id = :id", added)
            first = counted.scalar_one() - len(texts)
            rows = [added | {"position": at, "message": text} for at, text in enumerate(texts, start=first)]
            if rows:
                await _execute(
                    connection,
                    "INSERT INTO messages (conversation_id, position, created_at, message)"
                    " VALUES (:id, :position, :now, :message)",
                    rows,
                )

        await self._database.run(work, writes=True)

    async def get(self, conversation_id: str) -> Conversation:
        """See `ConversationStore.get`. A message that cannot be read is left out, and a note says so."""

        async def work(connection: AsyncConnection) -> tuple[Any, Sequence[Any]]:
            found = await _execute(
                connection,
                "SELECT id, title, created_at, updated_at FROM conversations WHERE id = :id",
                {"id": _key(conversation_id)},
            )
            rows = await _execute(
                connection,
                "SELECT position, message FROM messages WHERE conversation_id = :id ORDER BY position",
                {"id": conversation_id},
            )
            return found.one_or_none(), rows.all()

        found, rows = await self._database.run(work, writes=False)
        if found is None:
            raise _not_found(conversation_id)
        messages, notes = _decode_all(rows)
        created, updated = datetime.fromisoformat(found.created_at), datetime.fromisoformat(found.updated_at)
        return Conversation(found.id, found.title, created, updated, messages, notes)

    async def list(self, limit: int = 50) -> tuple[ConversationSummary, ...]:
        """See `ConversationStore.list`."""

        async def work(connection: AsyncConnection) -> Sequence[Any]:
            rows = await _execute(
                connection,
                "SELECT id, title, created_at, updated_at, message_count FROM conversations"
                " ORDER BY updated_at DESC, id LIMIT :limit",
                {"limit": limit},
            )
            return rows.all()

        return tuple(
            ConversationSummary(id_, title, datetime.fromisoformat(created), datetime.fromisoformat(updated), count)
            for id_, title, created, updated, count in await self._database.run(work, writes=False)
        )

    async def latest(self) -> ConversationSummary | None:
        """See `ConversationStore.latest`."""
        return next(iter(await self.list(1)), None)

    async def delete(self, conversation_id: str) -> None:
        """See `ConversationStore.delete`."""

        async def work(connection: AsyncConnection) -> None:
            gone = await _execute(connection, "DELETE FROM conversations WHERE id = :id", {"id": _key(conversation_id)})
            if not gone.rowcount:
                raise _not_found(conversation_id)

        await self._database.run(work, writes=True)

    async def aclose(self) -> None:
        """See `ConversationStore.aclose`."""
        await self._database.aclose()


def one_line(text: str, limit: int = MAX_TITLE) -> str:
    """Give the first words of a text, in one line of at most `limit` characters, without anything that controls."""
    # No title needs more than the beginning, and a text may be a whole file.
    words = " ".join(text[: 50 * limit].split())
    line = "".join(char for char in words if not unicodedata.category(char).startswith("C")).strip()
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return f"{head if space and len(head) > limit // 2 else line[: limit - 1]}…"


def _new(title: str) -> Conversation:
    now = datetime.now(UTC)
    return Conversation(uuid.uuid4().hex, one_line(title), created_at=now, updated_at=now)


def _not_found(conversation_id: str) -> ConversationNotFound:
    return ConversationNotFound(f"there is no conversation {conversation_id!r}")


def _key(conversation_id: str) -> str:
    """Give the id, unless it is one that no text column could hold: then nothing has it."""
    if not (conversation_id.isascii() and conversation_id.isprintable()):
        raise _not_found(conversation_id)
    return conversation_id


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _encode(message: Message) -> str:
    try:
        return json.dumps(message.to_dict(), separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise DialError(f"a message of the {message.role} cannot be stored: {error}") from error


def _decode_all(rows: Iterable[Any]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    messages: list[Message] = []
    notes: list[str] = []
    for position, text in rows:
        try:
            messages.append(Message.from_dict(json.loads(text)))
        except (TypeError, ValueError, RecursionError) as error:
            notes.append(f"message {position + 1} cannot be read and is left out")
            log.warning("message_unreadable", position=position, error=type(error).__name__)
    return tuple(messages), tuple(notes)


async def _execute(connection: AsyncConnection, statement: str, parameters: Any) -> CursorResult[Any]:
    from sqlalchemy import text

    return await connection.execute(text(statement), parameters)

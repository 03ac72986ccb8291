"""The protocol `ConversationStore`, `StoreCore` with the changes that are alike in every store, and `MemoryStore`.

Stored messages are never rewritten, only appended; messages in one call are appended together or not at all. A store
keeps all fields of a message that `Message.to_dict` returns. Selected versions, settings and details of turns are
messages with an `entry`, which `conversations.message_tree` evaluates.

While a turn runs, it holds a lease of its conversation: `ConversationStore.acquire` takes the lease, `renew` extends
it, and `release` ends it. If the turn's process is killed, the lease expires, and the next turn may begin. Leases apply
to all processes that use the store.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

from dial_client.messages.errors import ConfigError, ConversationBusy, ConversationNotFound
from dial_client.messages.message import Message, PendingApproval, Role, find_pending_approvals
from dial_client.settings.argument_types import describe_type

# Limit of characters of a title.
MAX_TITLE = 60

# Limit of words of a search; further words are ignored.
MAX_SEARCH_WORDS = 8

# Limit of characters of an owner, and of metadata as JSON.
MAX_OWNER = 200
MAX_METADATA = 16_000

# The time of a conversation whose stored time cannot be read.
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its messages."""

    id: str
    title: str
    """The title in one line: its first words, or the title that was set; empty before the first message."""
    created_at: datetime
    """The time of its creation, in UTC."""
    updated_at: datetime
    """The time at which the last message was added, in UTC."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    """Problems with the stored conversation, one sentence each, such as messages that cannot be read."""
    running: bool = False
    """True while a turn of the conversation runs, in this process or another."""
    turn: str = ""
    """The id of the running or interrupted turn; empty if the last turn ended normally."""
    unfinished: tuple[Message, ...] = ()
    """The unfinished part of that turn at its last heartbeat: results of an incomplete round, and partial text."""
    message_count: int = 0
    """The number of stored messages, including entries and messages that cannot be read."""
    unreadable: tuple[int, ...] = ()
    """The positions of stored messages that cannot be read, and are missing in `messages`."""
    owner: str = ""
    """The person that the conversation belongs to, in the words of the program; empty if it names none."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Data of the program, of JSON types only."""

    @property
    def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """The calls at the end of `messages` that wait for approval, as `ConversationManager.get` returns them."""
        return find_pending_approvals(self.messages)


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation without its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    """The number of stored messages of all versions, without entries."""
    running: bool = False
    """True while a turn of the conversation runs, in this process or another."""
    owner: str = ""
    """The person that the conversation belongs to; empty if the program names none."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Data of the program, of JSON types only."""


class Page(tuple[ConversationSummary, ...]):
    """A page of a list of conversations."""

    cursor: str | None
    """The cursor of the next page; None for the last page."""

    def __new__(cls, found: Iterable[ConversationSummary] = (), cursor: str | None = None) -> Self:
        """Return a page of these conversations."""
        page = super().__new__(cls, found)
        page.cursor = cursor
        return page


class ConversationStore(Protocol):
    """Stores conversations. A started change is finished even if its caller is cancelled; every wait has a timeout.

    All methods may also raise `ConfigError` if the store cannot be used (the file is not a database, the folder cannot
    be written), and `DialError` if an operation failed (locked for too long, disk full).
    """

    async def create(
        self,
        title: str = "",
        messages: Sequence[Message] = (),
        *,
        conversation_id: str | None = None,
        owner: str = "",
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> Conversation:
        """Create a conversation, and return it.

        Args:
            title: The title, which is shortened to one line of at most `MAX_TITLE` characters.
            messages: The first messages.
            conversation_id: The id, in printable ASCII; by default a random id. If a conversation has this id, it is
                returned unchanged, whoever owns it.
            owner: The person that the conversation belongs to, at most `MAX_OWNER` characters; empty for none.
            metadata: Data of the program, of JSON types, at most `MAX_METADATA` characters as JSON.

        Raises:
            ConfigError: The owner or the metadata cannot be stored.
        """

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, title: str = "", turn: str | None = None
    ) -> None:
        """Append messages, all or none.

        Args:
            conversation_id: The id of the conversation.
            messages: The messages.
            title: The title of the conversation, if it has none yet.
            turn: The id of the turn that appends, which must still be the conversation's turn; None for no turn.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: The turn has ended, or another turn has taken the conversation over.
        """

    async def acquire(
        self,
        conversation_id: str,
        turn: str,
        messages: Sequence[Message],
        *,
        expected_count: int,
        lease: float,
        title: str,
    ) -> bool:
        """Take the lease of a conversation for a turn, and append the turn's first messages.

        The unfinished part of an earlier turn is deleted.

        Args:
            conversation_id: The id of the conversation.
            turn: The id of the turn, in printable ASCII.
            messages: The first messages of the turn.
            expected_count: The `Conversation.message_count` that the caller has read.
            lease: Seconds after which the lease expires, unless it is renewed.
            title: The title of the conversation, if it has none yet.

        Returns:
            False, with nothing stored, if another turn holds the conversation or messages were added since it was read.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def renew(
        self, conversation_id: str, turn: str, lease: float, unfinished: Sequence[Message] | None = None
    ) -> bool:
        """Set the lease to expire in `lease` seconds, and store the unfinished part of the turn.

        Args:
            conversation_id: The id of the conversation.
            turn: The id of the turn.
            lease: Seconds from now until the lease expires.
            unfinished: The results and text of the turn since its last appended message; None to keep the stored ones.

        Returns:
            False, with nothing stored, if another turn has taken the conversation over or it was deleted. A lease that
            has expired can be renewed until then.
        """

    async def release(self, conversation_id: str, turn: str, messages: Sequence[Message] = ()) -> None:
        """Append a turn's last messages, and release the conversation; does nothing if it was deleted.

        Args:
            conversation_id: The id of the conversation.
            turn: The id of the turn, which must still be the conversation's turn.
            messages: The messages that are not appended yet.

        Raises:
            ConversationBusy: The turn has already ended, or another turn has taken the conversation over; nothing is
                appended.
        """

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation with all its stored messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def list(
        self, limit: int = 50, *, cursor: str | None = None, search: str = "", owner: str | None = None
    ) -> Page:
        """Return at most `limit` conversations, the most recently changed first.

        Args:
            limit: The size of the page, at least 1.
            cursor: The `Page.cursor` of the previous page; None for the first page.
            search: Words that must all occur in the title or in messages of the user or the model, in any case.
            owner: Only conversations of this owner; empty for those without an owner, None for all.

        Raises:
            ConfigError: The cursor is invalid.
        """

    async def latest(self) -> ConversationSummary | None:
        """Return the most recently changed conversation; None if the store is empty."""

    async def rename(self, conversation_id: str, title: str) -> None:
        """Change the title of a conversation, but not its place in the list.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def update(
        self, conversation_id: str, *, owner: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Change the owner or the metadata of a conversation, but not its place in the list.

        Args:
            conversation_id: The id of the conversation.
            owner: The new owner; None to keep it.
            metadata: The metadata that replace all stored ones; None to keep them.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: The owner or the metadata cannot be stored.
        """

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation and its messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def aclose(self) -> None:
        """Close files and connections; may be called twice."""


def build_title(text: str, limit: int = MAX_TITLE) -> str:
    """Return the first words of a text, in one line of at most `limit` characters, without control characters."""
    # The text may be a whole file: only its beginning is processed.
    words = " ".join(text[: 50 * limit].split())
    line = " ".join("".join(char for char in words if not unicodedata.category(char).startswith("C")).split())
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return f"{head if space and len(head) > limit // 2 else line[: limit - 1]}…"


def check_owner(owner: str) -> str:
    """Return an owner that every store can keep.

    Raises:
        ConfigError: The text is too long, or has characters that text columns cannot store.
    """
    if len(owner) > MAX_OWNER or "\0" in owner or owner != owner.encode(errors="replace").decode():
        raise ConfigError(f"owner is a text of at most {MAX_OWNER} characters, without NUL and lone surrogates")
    return owner


def copy_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as a store returns them, so that no later change of the caller's objects reaches the store.

    Raises:
        ConfigError: They are no mapping, not of JSON types, or too long.
    """
    try:
        text = json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"metadata is an object of JSON types: {error}") from None
    if len(text) > MAX_METADATA:
        raise ConfigError(f"metadata has at most {MAX_METADATA:,} characters as JSON, not {len(text):,}")
    copied: dict[str, Any] = json.loads(text)
    return copied


def to_sortable_time(moment: datetime) -> str:
    """Return a time in UTC as text whose alphabetical order is the order of time."""
    return moment.isoformat(timespec="microseconds")


def build_page(found: Sequence[ConversationSummary], limit: int) -> Page:
    """Return the page for the rows of a query with the limit ``limit + 1``."""
    # The next page begins after the last conversation whose time can be read.
    known = [summary for summary in found[:limit] if summary.updated_at != EPOCH]
    if len(found) <= limit or not known:
        return Page(found[:limit])
    key = f"{to_sortable_time(known[-1].updated_at)} {known[-1].id}"
    return Page(found[:limit], base64.urlsafe_b64encode(key.encode()).decode())


def parse_cursor(cursor: str) -> tuple[str, str]:
    """Return the time and the id of the last conversation on the previous page.

    Raises:
        ConfigError: The cursor is invalid.
    """
    try:
        time, id_ = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").split(" ")
        datetime.fromisoformat(time)
    except ValueError:
        raise ConfigError("invalid cursor", hint="pass the cursor of the previous page, or none") from None
    return time, id_


def split_search(search: str) -> tuple[str, ...]:
    """Return the words of a search, normalized by `casefold_text`."""
    return tuple(casefold_text(search).split()[:MAX_SEARCH_WORDS])


def casefold_text(text: str) -> str:
    """Return a text normalized for searches: case-folded, without characters that text columns cannot store."""
    return text.casefold().replace("\0", " ").encode(errors="replace").decode()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """The record of a conversation, without its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int = 0
    """The number of stored messages, including entries."""
    entry_count: int = 0
    """The number of stored entries (`Message.entry`)."""
    turn: str = ""
    """The id of the turn that holds the conversation, or held it when its process was killed."""
    held_until: float = 0.0
    """The end of the lease, in seconds by the store's clock."""
    unfinished: Any = None
    """The unfinished messages, encoded by `StoreCore._encode`, or None."""
    owner: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def is_held(self, now: float) -> bool:
        """Return True if a turn holds the conversation at the time `now`."""
        return bool(self.turn) and self.held_until > now

    def to_summary(self, now: float) -> ConversationSummary:
        """Return the conversation without its messages, as it is at the time `now`."""
        count = max(self.message_count - self.entry_count, 0)
        return ConversationSummary(
            self.id,
            self.title,
            self.created_at,
            self.updated_at,
            count,
            running=self.is_held(now),
            owner=self.owner,
            metadata=dict(self.metadata),
        )

    def to_conversation(
        self, now: float, messages: tuple[Message, ...], unfinished: tuple[Message, ...] = ()
    ) -> Conversation:
        """Return the conversation with its messages, as it is at the time `now`."""
        return Conversation(
            self.id,
            self.title,
            self.created_at,
            self.updated_at,
            messages,
            running=self.is_held(now),
            turn=self.turn,
            unfinished=unfinished,
            message_count=self.message_count,
            owner=self.owner,
            metadata=dict(self.metadata),
        )


@dataclass(slots=True)
class RowChange:
    """A conversation before and after a change."""

    record: StoredConversation | None
    """The record of the conversation, which the change replaces; None if the conversation does not exist."""
    now: float
    """The time in seconds by the store's clock."""
    added: list[Any] = field(default_factory=list)
    """The messages to append, encoded by `StoreCore._encode`."""


# A synchronous function that reads and changes a row; if it raises, the row is unchanged.
Change = Callable[[RowChange], T]


class StoreCore(ConversationStore, ABC):
    """The methods of a `ConversationStore` that write."""

    def __init__(self) -> None:
        self._last_stamp = datetime.min.replace(tzinfo=UTC)

    @abstractmethod
    async def _change(self, conversation_id: str, change: Change[T]) -> T:
        """Apply a change in one transaction, isolated from other changes of the conversation."""

    @abstractmethod
    def _encode(self, messages: Sequence[Message]) -> Sequence[Any]:
        """Return the messages encoded for this store.

        Raises:
            DialError: A message cannot be stored.
        """

    async def create(
        self,
        title: str = "",
        messages: Sequence[Message] = (),
        *,
        conversation_id: str | None = None,
        owner: str = "",
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> Conversation:
        """See `ConversationStore.create`."""
        now, encoded = self._stamp(), self._encode(messages)
        id_ = conversation_id or secrets.token_hex(16)
        record = StoredConversation(
            id_,
            build_title(title),
            now,
            now,
            len(encoded),
            _count_entries(messages),
            owner=check_owner(owner),
            metadata=copy_metadata(metadata),
        )

        def change(row: RowChange) -> bool:
            if row.record is not None:
                return False
            row.record = record
            row.added += encoded
            return True

        if not await self._change(record.id, change):
            return await self.get(record.id)
        return record.to_conversation(0.0, tuple(messages))

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, title: str = "", turn: str | None = None
    ) -> None:
        """See `ConversationStore.append`."""
        encoded, now = self._encode(messages), self._stamp()

        def change(row: RowChange) -> None:
            record = _require_record(row, conversation_id)
            if turn is not None and record.turn != turn:
                raise _build_taken_over_error(conversation_id)
            unfinished = record.unfinished if turn is None else None
            row.record = replace(_with_messages(record, messages, now, title), unfinished=unfinished)
            row.added += encoded

        await self._change(conversation_id, change)

    async def acquire(
        self,
        conversation_id: str,
        turn: str,
        messages: Sequence[Message],
        *,
        expected_count: int,
        lease: float,
        title: str,
    ) -> bool:
        """See `ConversationStore.acquire`."""
        encoded, now = self._encode(messages), self._stamp()

        def change(row: RowChange) -> bool:
            record = _require_record(row, conversation_id)
            if record.is_held(row.now) or record.message_count != expected_count:
                return False
            extended = _with_messages(record, messages, now, title)
            row.record = replace(extended, turn=turn, held_until=row.now + lease)
            row.added += encoded
            return True

        return await self._change(conversation_id, change)

    async def renew(
        self, conversation_id: str, turn: str, lease: float, unfinished: Sequence[Message] | None = None
    ) -> bool:
        """See `ConversationStore.renew`."""
        encoded = None if unfinished is None else self._encode(unfinished)

        def change(row: RowChange) -> bool:
            record = row.record
            if record is None or record.turn != turn:
                return False
            kept = record.unfinished if encoded is None else encoded
            row.record = replace(record, held_until=row.now + lease, unfinished=kept)
            return True

        return await self._change(conversation_id, change)

    async def release(self, conversation_id: str, turn: str, messages: Sequence[Message] = ()) -> None:
        """See `ConversationStore.release`."""
        encoded, now = self._encode(messages), self._stamp()

        def change(row: RowChange) -> None:
            if row.record is None:
                return
            if row.record.turn != turn:
                raise _build_taken_over_error(conversation_id)
            extended = _with_messages(row.record, messages, now, "") if encoded else row.record
            row.record = replace(extended, turn="", held_until=0.0, unfinished=None)
            row.added += encoded

        await self._change(conversation_id, change)

    async def rename(self, conversation_id: str, title: str) -> None:
        """See `ConversationStore.rename`."""

        def change(row: RowChange) -> None:
            row.record = replace(_require_record(row, conversation_id), title=build_title(title))

        await self._change(conversation_id, change)

    async def update(
        self, conversation_id: str, *, owner: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """See `ConversationStore.update`."""
        changes: dict[str, Any] = {} if owner is None else {"owner": check_owner(owner)}
        if metadata is not None:
            changes["metadata"] = copy_metadata(metadata)

        def change(row: RowChange) -> None:
            row.record = replace(_require_record(row, conversation_id), **changes)

        await self._change(conversation_id, change)

    async def delete(self, conversation_id: str) -> None:
        """See `ConversationStore.delete`."""

        def change(row: RowChange) -> None:
            _require_record(row, conversation_id)
            row.record = None

        await self._change(conversation_id, change)

    async def latest(self) -> ConversationSummary | None:
        """See `ConversationStore.latest`."""
        return next(iter(await self.list(1)), None)

    def _stamp(self) -> datetime:
        """Return the current time, never the same twice, so that lists have an order even with a coarse clock."""
        self._last_stamp = max(datetime.now(UTC), self._last_stamp + timedelta(microseconds=1))
        return self._last_stamp


def check_conversation_id(given: Any) -> None:
    """Check that an argument can be the id of a conversation.

    Raises:
        TypeError: The argument is no string.
    """
    if not isinstance(given, str):
        hint = ": pass its .id" if isinstance(given, Conversation | ConversationSummary) else ""
        raise TypeError(f"expected the id of a conversation, not {describe_type(given)}{hint}")


def _require_record(row: RowChange, conversation_id: str) -> StoredConversation:
    if row.record is None:
        raise ConversationNotFound(conversation_id)
    return row.record


def _with_messages(
    record: StoredConversation, messages: Sequence[Message], now: datetime, title: str
) -> StoredConversation:
    """Return the record after appending messages, without unfinished messages."""
    return replace(
        record,
        title=record.title or build_title(title),
        updated_at=now,
        message_count=record.message_count + len(messages),
        entry_count=record.entry_count + _count_entries(messages),
        unfinished=None,
    )


def _count_entries(messages: Sequence[Message]) -> int:
    return sum(message.entry is not None for message in messages)


def _build_taken_over_error(conversation_id: str) -> ConversationBusy:
    return ConversationBusy(conversation_id, f"the conversation {conversation_id!r} was taken over by another turn")


class MemoryStore(StoreCore):
    """A `ConversationStore` in memory, for asyncio and trio. Its conversations are lost when the program ends."""

    def __init__(self) -> None:
        super().__init__()
        self._conversations: dict[str, tuple[StoredConversation, tuple[Message, ...]]] = {}

    async def get(self, conversation_id: str) -> Conversation:
        """See `ConversationStore.get`."""
        check_conversation_id(conversation_id)
        if conversation_id not in self._conversations:
            raise ConversationNotFound(conversation_id)
        record, messages = self._conversations[conversation_id]
        return record.to_conversation(time.monotonic(), messages, record.unfinished or ())

    async def list(
        self, limit: int = 50, *, cursor: str | None = None, search: str = "", owner: str | None = None
    ) -> Page:
        """See `ConversationStore.list`."""
        last_key = parse_cursor(cursor) if cursor is not None else None
        words, now = split_search(search), time.monotonic()
        found = [
            record
            for record, messages in self._conversations.values()
            if (last_key is None or _build_sort_key(record) < last_key)
            and owner in (None, record.owner)
            and _matches(words, record, messages)
        ]
        found.sort(key=_build_sort_key, reverse=True)
        return build_page([record.to_summary(now) for record in found[: limit + 1]], limit)

    async def aclose(self) -> None:
        """See `ConversationStore.aclose`."""

    async def _change(self, conversation_id: str, change: Change[T]) -> T:
        check_conversation_id(conversation_id)
        record, messages = self._conversations.get(conversation_id, (None, ()))
        row = RowChange(record, time.monotonic())
        result = change(row)
        if row.record is None:
            self._conversations.pop(conversation_id, None)
        else:
            self._conversations[conversation_id] = (row.record, (*messages, *row.added) if row.added else messages)
        return result

    def _encode(self, messages: Sequence[Message]) -> Sequence[Message]:
        return tuple(messages)


def _build_sort_key(record: StoredConversation) -> tuple[str, str]:
    return to_sortable_time(record.updated_at), record.id


def _matches(words: Sequence[str], record: StoredConversation, messages: Sequence[Message]) -> bool:
    if not words:
        return True
    spoken = (message.text for message in messages if message.role in (Role.USER, Role.ASSISTANT))
    texts = [casefold_text(text) for text in (record.title, *spoken)]
    return all(any(word in text for text in texts) for word in words)

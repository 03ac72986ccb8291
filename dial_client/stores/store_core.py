"""`StoreCore`: the changes of conversations that are alike in every store, each as one change of one row."""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from dial_client.messages.errors import ConversationBusy, ConversationNotFound
from dial_client.messages.message import Message, Role
from dial_client.stores.conversation_store import (
    MAX_PREVIEW,
    Conversation,
    ConversationStore,
    ConversationSummary,
    build_title,
    check_owner,
    copy_metadata,
)

T = TypeVar("T")
# The absolute path of a file that a question attaches: the title of the conversation has only its name.
_PATH = re.compile(r"(?<!\S)@(?:~|[A-Za-z]:)?[/\\]\S*[/\\]([^\s/\\]+)")
# The most characters of a first question that are read for a title.
_MAX_QUESTION = 3_000


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
    preview: str = ""
    """The beginning of the last answer, in one line."""

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
            preview=self.preview,
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
            preview=_build_preview(messages),
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
        self,
        conversation_id: str,
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        metadata_changes: Mapping[str, Any] | None = None,
    ) -> None:
        """See `ConversationStore.update`."""
        changes: dict[str, Any] = {} if owner is None else {"owner": check_owner(owner)}
        if metadata is not None:
            changes["metadata"] = copy_metadata(metadata)

        def change(row: RowChange) -> None:
            record = replace(_require_record(row, conversation_id), **changes)
            if metadata_changes:
                changed = {**record.metadata, **metadata_changes}
                removed = [name for name, value in metadata_changes.items() if value is None]
                kept = {name: value for name, value in changed.items() if name not in removed}
                record = replace(record, metadata=copy_metadata(kept))
            row.record = record

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
        title=record.title or build_title(_PATH.sub(r"@\1", title[:_MAX_QUESTION])),
        updated_at=now,
        message_count=record.message_count + len(messages),
        entry_count=record.entry_count + _count_entries(messages),
        unfinished=None,
        preview=_build_preview(messages) or record.preview,
    )


def _build_preview(messages: Sequence[Message]) -> str:
    """Return the beginning of the last answer in these messages; empty if there is none."""
    answers = (message.text for message in reversed(messages) if message.role == Role.ASSISTANT)
    return build_title(next((text for text in answers if text and not text.isspace()), ""), MAX_PREVIEW)


def _count_entries(messages: Sequence[Message]) -> int:
    return sum(message.entry is not None for message in messages)


def _build_taken_over_error(conversation_id: str) -> ConversationBusy:
    return ConversationBusy(conversation_id, f"the conversation {conversation_id!r} was taken over by another turn")

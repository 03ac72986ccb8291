"""What changes in a conversation, whatever it is kept in: the rules of every store, in one place."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from dial_client.errors import ConversationBusy
from dial_client.messages import Message
from dial_client.stores.conversation_store import Conversation, ConversationSummary, Page, not_found, title_from

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """What is known of a conversation beside its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int = 0
    turn: str = ""
    """The turn that holds it, or held it when its program was killed."""
    held_until: float = 0.0
    """By the store's clock, in seconds."""
    unfinished: Any = None
    """What `StoreCore._packed` made of the messages; None for none."""

    def held(self, now: float) -> bool:
        """Whether a turn holds it."""
        return bool(self.turn) and self.held_until > now


@dataclass(slots=True)
class RowChange:
    """Where a change finds a conversation, and leaves it."""

    record: StoredConversation | None
    """None where there is none, before or after."""
    now: float
    """By the store's clock, in seconds."""
    added: list[Any] = field(default_factory=list)
    """Messages to add, as `StoreCore._packed` made them."""


Change = Callable[[RowChange], T]
"""Looks at a slot and writes to it, at once; what it raises leaves the slot as it was."""


class StoreCore(ABC):
    """The part of a `ConversationStore` that writes."""

    def __init__(self) -> None:
        self._last_stamp = datetime.min.replace(tzinfo=UTC)

    @abstractmethod
    async def _change(self, conversation_id: str, change: Change[T]) -> T:
        """Carry a change out: all of it or none, and no other of this conversation meanwhile."""

    @abstractmethod
    def _packed(self, messages: Sequence[Message]) -> Sequence[Any]:
        """Give the messages in the form in which they are kept.

        Raises:
            DialError: one of them cannot be.
        """

    @abstractmethod
    async def list(self, limit: int = 50, *, cursor: str | None = None, search: str = "") -> Page:
        """See `ConversationStore.list`."""

    async def create(self, title: str = "", messages: Sequence[Message] = ()) -> Conversation:
        """See `ConversationStore.create`."""
        now, packed = self._stamp(), self._packed(messages)
        made = StoredConversation(uuid.uuid4().hex, title_from(title), now, now, len(packed))

        def change(slot: RowChange) -> None:
            slot.record = made
            slot.added += packed

        await self._change(made.id, change)
        return Conversation(made.id, made.title, now, now, tuple(messages), message_count=made.message_count)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, title: str = "", turn: str | None = None
    ) -> None:
        """See `ConversationStore.append`."""
        packed, now = self._packed(messages), self._stamp()

        def change(slot: RowChange) -> None:
            record = _found(slot, conversation_id)
            if turn is not None and record.turn != turn:
                raise _taken(conversation_id)
            kept = record.unfinished if turn is None else None
            slot.record = replace(_longer(record, len(packed), now, title), unfinished=kept)
            slot.added += packed

        await self._change(conversation_id, change)

    async def begin(
        self, conversation_id: str, turn: str, messages: Sequence[Message], *, behind: int, seconds: float, title: str
    ) -> bool:
        """See `ConversationStore.begin`."""
        packed, now = self._packed(messages), self._stamp()

        def change(slot: RowChange) -> bool:
            record = _found(slot, conversation_id)
            if record.held(slot.now) or record.message_count != behind:
                return False
            longer = _longer(record, len(packed), now, title)
            slot.record = replace(longer, turn=turn, held_until=slot.now + seconds)
            slot.added += packed
            return True

        return await self._change(conversation_id, change)

    async def renew(
        self, conversation_id: str, turn: str, seconds: float, unfinished: Sequence[Message] | None = None
    ) -> bool:
        """See `ConversationStore.renew`."""
        packed = None if unfinished is None else self._packed(unfinished)

        def change(slot: RowChange) -> bool:
            record = slot.record
            if record is None or record.turn != turn:
                return False
            kept = record.unfinished if packed is None else packed
            slot.record = replace(record, held_until=slot.now + seconds, unfinished=kept)
            return True

        return await self._change(conversation_id, change)

    async def end(self, conversation_id: str, turn: str, messages: Sequence[Message] = ()) -> None:
        """See `ConversationStore.end`."""
        packed, now = self._packed(messages), self._stamp()

        def change(slot: RowChange) -> None:
            if slot.record is None:
                return
            if slot.record.turn != turn:
                raise _taken(conversation_id)
            longer = _longer(slot.record, len(packed), now, "") if packed else slot.record
            slot.record = replace(longer, turn="", held_until=0.0, unfinished=None)
            slot.added += packed

        await self._change(conversation_id, change)

    async def rename(self, conversation_id: str, title: str) -> None:
        """See `ConversationStore.rename`."""

        def change(slot: RowChange) -> None:
            slot.record = replace(_found(slot, conversation_id), title=title_from(title))

        await self._change(conversation_id, change)

    async def delete(self, conversation_id: str) -> None:
        """See `ConversationStore.delete`."""

        def change(slot: RowChange) -> None:
            _found(slot, conversation_id)
            slot.record = None

        await self._change(conversation_id, change)

    async def latest(self) -> ConversationSummary | None:
        """See `ConversationStore.latest`."""
        return next(iter(await self.list(1)), None)

    def _stamp(self) -> datetime:
        """Give the time; never the same twice, so that lists have an order however coarse the clock is."""
        self._last_stamp = max(datetime.now(UTC), self._last_stamp + timedelta(microseconds=1))
        return self._last_stamp


def _found(slot: RowChange, conversation_id: str) -> StoredConversation:
    if slot.record is None:
        raise not_found(conversation_id)
    return slot.record


def _longer(record: StoredConversation, count: int, now: datetime, title: str) -> StoredConversation:
    """Give the record with more messages, among them what was unfinished."""
    return replace(
        record,
        title=record.title or title_from(title),
        updated_at=now,
        message_count=record.message_count + count,
        unfinished=None,
    )


def _taken(conversation_id: str) -> ConversationBusy:
    return ConversationBusy(conversation_id, f"the conversation {conversation_id!r} was taken over by another turn")

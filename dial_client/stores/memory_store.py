"""Conversations that are gone with the program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from dial_client.messages import Message, Role
from dial_client.stores.conversation_store import (
    Conversation,
    ConversationSummary,
    Page,
    folded,
    not_found,
    page_of,
    read_cursor,
    search_words,
    time_text,
)
from dial_client.stores.store_core import Change, RowChange, StoreCore, StoredConversation

T = TypeVar("T")


class MemoryStore(StoreCore):
    """A `ConversationStore` that is gone with the program; for asyncio and trio."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, tuple[StoredConversation, tuple[Message, ...]]] = {}

    async def get(self, conversation_id: str) -> Conversation:
        """See `ConversationStore.get`."""
        if conversation_id not in self._kept:
            raise not_found(conversation_id)
        record, messages = self._kept[conversation_id]
        return Conversation(
            record.id,
            record.title,
            record.created_at,
            record.updated_at,
            messages,
            running=record.held(time.monotonic()),
            turn=record.turn,
            unfinished=record.unfinished or (),
            message_count=record.message_count,
        )

    async def list(self, limit: int = 50, *, cursor: str | None = None, search: str = "") -> Page:
        """See `ConversationStore.list`."""
        before = read_cursor(cursor) if cursor is not None else None
        words, now = search_words(search), time.monotonic()
        found = [
            record
            for record, messages in self._kept.values()
            if (before is None or _key(record) < before) and _said(words, record, messages)
        ]
        found.sort(key=_key, reverse=True)
        summaries = [
            ConversationSummary(r.id, r.title, r.created_at, r.updated_at, r.message_count, r.held(now))
            for r in found[: limit + 1]
        ]
        return page_of(summaries, limit)

    async def aclose(self) -> None:
        """See `ConversationStore.aclose`."""

    async def _change(self, conversation_id: str, change: Change[T]) -> T:
        record, messages = self._kept.get(conversation_id, (None, ()))
        slot = RowChange(record, time.monotonic())
        result = change(slot)
        if slot.record is None:
            self._kept.pop(conversation_id, None)
        else:
            self._kept[conversation_id] = (slot.record, (*messages, *slot.added) if slot.added else messages)
        return result

    def _packed(self, messages: Sequence[Message]) -> Sequence[Message]:
        return tuple(messages)


def _key(record: StoredConversation) -> tuple[str, str]:
    return time_text(record.updated_at), record.id


def _said(words: Sequence[str], record: StoredConversation, messages: Sequence[Message]) -> bool:
    if not words:
        return True
    said = [folded(record.title), *(folded(m.text) for m in messages if m.role in (Role.USER, Role.ASSISTANT))]
    return all(any(word in text for text in said) for word in words)

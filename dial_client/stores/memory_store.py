"""`MemoryStore`: conversations in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dial_client.messages.errors import ConversationNotFound
from dial_client.messages.message import Message, Role
from dial_client.stores.conversation_store import (
    Conversation,
    Page,
    build_page,
    casefold_text,
    check_conversation_id,
    parse_cursor,
    split_search,
    to_sortable_time,
)
from dial_client.stores.store_core import Change, RowChange, StoreCore, StoredConversation, T


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
        self,
        limit: int = 50,
        *,
        cursor: str | None = None,
        search: str = "",
        owner: str | None = None,
        marks: Mapping[str, bool] = MappingProxyType({}),
    ) -> Page:
        """See `ConversationStore.list`."""
        last_key = parse_cursor(cursor) if cursor is not None else None
        words, now = split_search(search), time.monotonic()
        found = [
            record
            for record, messages in self._conversations.values()
            if (last_key is None or _build_sort_key(record) < last_key)
            and owner in (None, record.owner)
            and all((record.metadata.get(name) is True) == value for name, value in marks.items())
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

"""Stores edits of a conversation between its turns."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import anyio

from dial_client.conversations.history import build_closing_messages
from dial_client.conversations.turn_queue import POLL_INTERVAL, WillBeResumed
from dial_client.messages.errors import ConversationBusy
from dial_client.messages.message import Message
from dial_client.stores.conversation_store import Conversation, ConversationStore

BuildEdits = Callable[[Conversation], Sequence[Message]]
"""Returns the edits to append to a stored conversation; empty for none."""


class HistoryEditor:
    """Edits conversations under the same lease as a turn, so that no edit happens while a turn runs in any process.

    Args:
        store: The store of the conversations.
        patience: The most seconds that an edit waits for a running turn.
        lease: Seconds for which an edit holds its conversation.
        will_be_resumed: The same as for `TurnQueue`.
    """

    def __init__(
        self, store: ConversationStore, *, patience: float, lease: float, will_be_resumed: WillBeResumed
    ) -> None:
        self._store = store
        self._patience = patience
        self._lease = lease
        self._will_be_resumed = will_be_resumed

    async def edit(self, conversation_id: str, build: BuildEdits) -> bool:
        """Store the edits that `build` returns for the current conversation, and return True; False if it returns none.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: A turn ran longer than `patience`.
        """
        deadline = anyio.current_time() + self._patience
        while True:
            stored = await self._store.get(conversation_id)
            is_busy = stored.running or (bool(stored.turn) and await self._will_be_resumed(stored))
            if not is_busy:
                edits = build(stored)
                if not edits:
                    return False
                if await self._store_edits(stored, edits):
                    return True
            if anyio.current_time() >= deadline:
                raise ConversationBusy(conversation_id, "a turn of this conversation is under way: wait for its end")
            await anyio.sleep(POLL_INTERVAL)

    async def _store_edits(self, stored: Conversation, edits: Sequence[Message]) -> bool:
        """Store the edits and return True; return False if the conversation has changed since it was read."""
        edit_id = secrets.token_hex(16)
        closing = build_closing_messages(stored)
        count, lease = stored.message_count, self._lease
        with anyio.CancelScope(shield=True):
            if not await self._store.acquire(
                stored.id, edit_id, closing, expected_count=count, lease=lease, title=stored.title
            ):
                return False
            await self._store.release(stored.id, edit_id, edits)
        return True

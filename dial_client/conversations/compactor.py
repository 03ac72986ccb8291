"""Compacts conversations: estimates how full the context window is, and stores summaries of older messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dial_client.client.client_model import ClientModel
from dial_client.client.dial_client import DialClient
from dial_client.conversations.compaction import (
    KEPT_EXCHANGES,
    Compaction,
    OlderPart,
    compute_max_kept_chars,
    find_older_part,
    summarize,
)
from dial_client.conversations.history import repair_conversation
from dial_client.conversations.history_editor import HistoryEditor
from dial_client.conversations.history_edits import build_summary, find_shown
from dial_client.conversations.turn_queue import TurnQueue
from dial_client.messages.errors import ConversationBusy, MiddlewareError, ProviderError
from dial_client.messages.message import EntryKind, Message, StoredEntry
from dial_client.stores.conversation_store import Conversation, ConversationStore


class Compactor:
    """Compacts the conversations of a store.

    Args:
        dial: The client, whose tool definitions also take space in the context window.
        select_model: Returns the model of a conversation, which writes the summary and has the context window.
        store: The store of the conversations.
        editor: The editor that stores the summaries.
        turns: The queue with the latest turns, whose usage tells how many tokens a conversation has.
    """

    def __init__(
        self,
        dial: DialClient,
        select_model: Callable[[Conversation], ClientModel],
        store: ConversationStore,
        editor: HistoryEditor,
        turns: TurnQueue,
    ) -> None:
        self._dial = dial
        self._select_model = select_model
        self._store = store
        self._editor = editor
        self._turns = turns

    async def compact(self, conversation_id: str, keep: int, at: float) -> Compaction | None:
        """See `ConversationManager.compact`."""
        self._dial.model.require()
        stored = await self._store.get(conversation_id)
        model = self._select_model(stored)
        if stored.running:
            raise ConversationBusy(conversation_id, "a turn of this conversation is under way: wait for its end")
        part = find_older_part(stored, keep, compute_max_kept_chars(model))
        if part is None or (at and self.measure(stored) < at):
            return None
        messages = part.messages
        compaction = await summarize(model, messages)
        taint = ", ".join(self._dial.find_taint(messages))

        def build(current: Conversation) -> Sequence[Message]:
            if not _is_unchanged(current, part):
                return ()
            return (build_summary(compaction.summary, part.stop, start=part.start, taint=taint),)

        if not await self._editor.edit(conversation_id, build):
            raise ConversationBusy(conversation_id, "the conversation was edited while it was being summarized")
        return compaction

    async def compact_when_full(self, conversation_id: str, at: float) -> str:
        """Compact a conversation that fills at least the part `at` of the window, and return a note; empty for none.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        try:
            compaction = await self.compact(conversation_id, KEPT_EXCHANGES, at)
        except ConversationBusy:
            return ""  # a turn is running, which the next turn waits for
        except (ProviderError, MiddlewareError) as error:
            return f"the conversation nearly fills the model's context window, and it could not be summarized: {error}"
        return "" if compaction is None else compaction.note

    def measure(self, stored: Conversation) -> float:
        """Return the part of the context window that a stored conversation fills; 0 if the window's size is unknown.

        If the latest turn ran in this process, this uses the tokens that the provider reported; else an estimate that
        is rather too high.
        """
        model = self._select_model(stored)
        messages = repair_conversation(stored).messages
        last = stored.messages[-1] if stored.messages else None
        is_edited = last is not None and (last.replaces is not None or _changes_version(last.entry))
        turn = None if is_edited else self._turns.find(stored.id)
        usages = turn.recorder.request_usages if turn is not None else ()
        used = max((usage.input_tokens + usage.output_tokens for usage in usages), default=0)
        tokens = model.window_tokens
        if not used or not tokens:
            return model.window.estimate_fill(messages, self._dial.tools, tokens)
        # The estimate also counts requests that the endpoint refused as too long.
        return max(used / tokens, model.window.estimate_fill(messages, self._dial.tools))


def _changes_version(entry: StoredEntry | None) -> bool:
    return entry is not None and entry.kind in (EntryKind.BRANCH, EntryKind.REMOVAL)


def _is_unchanged(current: Conversation, part: OlderPart) -> bool:
    shown = {stored.position for stored in find_shown(current)}
    return all(stored.position in shown for stored in part.stored)

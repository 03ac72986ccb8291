"""The turns of a conversation, one after the other: in this process, and among all processes that use the store.

Within a process turns wait in the order in which they were requested. Among processes the lease in the store decides
(`ConversationStore.begin`); a turn that waits for it looks again every quarter of a second.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import anyio

from dial_client.audit.entries import Origin
from dial_client.conversations.history import (
    build_closing_messages,
    drop_unfinished_text,
    ends_with_answer,
    repair_history,
)
from dial_client.conversations.history_edits import apply_edits
from dial_client.conversations.message_tree import build_tree, extend
from dial_client.conversations.turn_input import TurnInput, build_first_messages, find_question
from dial_client.errors import ConversationBusy, DialError
from dial_client.messages.message import Message
from dial_client.stores.conversation_store import Conversation, ConversationStore
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

Start = Callable[[tuple[Message, ...], Mapping[str, Any], TurnObserver], TurnHandle]
"""Starts a turn on a history, with the settings of its conversation, and one more observer."""
_Beginning = tuple[tuple[Message, ...], Mapping[str, Any]]
WillBeResumed = Callable[[Conversation], Awaitable[bool]]

MAX_ENDED = 32
"""Turns that can still be found after their end."""

POLL_INTERVAL = 0.25
"""Seconds between two looks whether the turn of another process is over."""


async def never_resumed(stored: Conversation) -> bool:  # noqa: ARG001 - a `WillBeResumed`
    """Return False: the turn of a process that was killed is over."""
    return False


class NothingToResume(Exception):
    """The conversation has no interrupted turn. Never leaves the package."""


class TurnQueue:
    """Starts the turns of a conversation one after the other, and finds those that run.

    Args:
        store: keeps the conversations.
        patience: seconds a turn waits at most for those before it.
        lease: seconds for which a turn that begins holds its conversation.
        will_be_resumed: whether some process will resume the latest turn of a conversation, which nobody runs: until
            then no other turn begins.
        max_ended: turns that can still be found after their end.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        patience: float,
        lease: float,
        will_be_resumed: WillBeResumed = never_resumed,
        max_ended: int = MAX_ENDED,
    ) -> None:
        self._store = store
        self._patience = patience
        self._lease = lease
        self._will_be_resumed = will_be_resumed
        self._max_ended = max_ended
        # A slot is kept by the turns that wait for it or hold it.
        self._slots: WeakValueDictionary[str, _Slot] = WeakValueDictionary()
        self._ended: OrderedDict[str, TurnHandle] = OrderedDict()

    async def start_next(self, origin: Origin, turn_input: TurnInput | None, start: Start) -> TurnHandle:
        """Wait for the turns before this one, store the message, and start the turn.

        Args:
            origin: the ids of the conversation and the turn.
            turn_input: what the turn answers; None for a turn that resumes an interrupted one.
            start: starts the turn.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConversationBusy: the turns before this one took longer than `patience`.
            ConfigError: the conversation has no such message.
            NothingToResume: there is no interrupted turn.
        """
        deadline = anyio.current_time() + self._patience
        slot = self._slots.setdefault(origin.conversation, _Slot(self._remember))
        history, settings = await self._reserve(slot, origin, turn_input, deadline)
        try:
            slot.turn = start(history, settings, slot)
        except Exception:
            slot.release()
            await self._store.end(origin.conversation, origin.turn)
            raise
        return slot.turn

    def find(self, conversation_id: str, turn_id: str | None = None) -> TurnHandle | None:
        """Return the turn that runs in this process, or the last one if it ended not long ago; None if neither is it.

        Args:
            conversation_id: the conversation.
            turn_id: the turn that is looked for; None for any.
        """
        slot = self._slots.get(conversation_id)
        known = (slot.turn if slot is not None else None, self._ended.get(conversation_id))
        return next((turn for turn in known if turn is not None and turn_id in (None, turn.id)), None)

    def forget(self, conversation_id: str) -> None:
        """Cancel the turn of a conversation that was deleted, and find its turns no more."""
        self._ended.pop(conversation_id, None)
        slot = self._slots.get(conversation_id)
        if slot is not None and slot.turn is not None:
            slot.turn.cancel()

    async def _reserve(self, slot: _Slot, origin: Origin, turn_input: TurnInput | None, deadline: float) -> _Beginning:
        """Return the history the turn begins with, and its settings; both slots are then the turn's."""
        while True:
            if not await slot.acquire(deadline):
                raise _busy(origin.conversation)
            try:
                beginning = await self._begin(origin, turn_input, deadline)
            except BaseException:
                slot.release()
                raise
            if beginning is not None:
                return beginning
            slot.release()  # the task that resumes the turn before this one needs it
            await anyio.sleep(POLL_INTERVAL)

    async def _begin(self, origin: Origin, turn_input: TurnInput | None, deadline: float) -> _Beginning | None:
        """Store the message once no other process runs a turn; None where an interrupted turn has to be resumed first.

        Raises:
            ConversationBusy: the deadline is over.
        """
        question = find_question(turn_input)
        title = question.text if question is not None else ""
        while True:
            stored = await self._store.get(origin.conversation)
            must_resume = turn_input is not None and await self._has_to_be_resumed(stored)
            if stored.running or must_resume:
                if anyio.current_time() >= deadline:
                    raise _busy(origin.conversation)
                if must_resume:
                    return None
                await anyio.sleep(POLL_INTERVAL)
                continue
            added = await self._prepare(stored, turn_input)
            count, lease = stored.message_count, self._lease
            try:
                has_begun = await self._store.begin(
                    origin.conversation, origin.turn, added, expected_count=count, lease=lease, title=title
                )
            except anyio.get_cancelled_exc_class():
                if turn_input is not None:  # an interrupted turn is to be resumed all the same
                    await self._release(origin)
                raise
            if has_begun:
                extended = extend(stored, added)
                return repair_history(apply_edits(extended).messages), build_tree(extended).settings
            # Another process was faster.

    async def _release(self, origin: Origin) -> None:
        """End a turn that nobody starts any more: the store may have begun it, and would hold its conversation."""
        with anyio.CancelScope(shield=True), suppress(DialError):
            await self._store.end(origin.conversation, origin.turn)

    async def _has_to_be_resumed(self, stored: Conversation) -> bool:
        return bool(stored.turn) and not stored.running and await self._will_be_resumed(stored)

    async def _prepare(self, stored: Conversation, turn_input: TurnInput | None) -> tuple[Message, ...]:
        """Return the messages to store before the model is asked.

        Raises:
            ConfigError: the conversation has no such message.
            NothingToResume: there is no interrupted turn, or it has come to its end.
        """
        if turn_input is not None:
            closing = build_closing_messages(stored)
            return (*closing, *build_first_messages(extend(stored, closing), turn_input))
        if not stored.turn:
            raise NothingToResume
        if ends_with_answer(apply_edits(stored).messages):
            await self._store.end(stored.id, stored.turn)
            raise NothingToResume
        return build_closing_messages(drop_unfinished_text(stored))

    def _remember(self, turn: TurnHandle) -> None:
        self._ended[turn.conversation_id] = turn
        self._ended.move_to_end(turn.conversation_id)
        if len(self._ended) > self._max_ended:
            self._ended.popitem(last=False)


class _Slot(TurnObserver):
    """Where the turns of one conversation wait for each other in this process; released when its turn has ended."""

    def __init__(self, remember: Callable[[TurnHandle], None]) -> None:
        self._remember = remember
        # Not a lock: a turn ends in another task than the one that requested it.
        self._free = anyio.Semaphore(1)
        self.turn: TurnHandle | None = None

    async def acquire(self, deadline: float) -> bool:
        """Wait until no other turn holds the slot; False where the deadline comes first."""
        try:
            self._free.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(deadline - anyio.current_time()) as scope:
                await self._free.acquire()
            return not scope.cancelled_caught
        return True

    def release(self) -> None:
        """Let the next turn in."""
        self._free.release()

    def on_ended(self, turn: TurnHandle) -> None:
        """Let the next turn in; this one can be found for a while."""
        self.turn = None
        self._remember(turn)
        self.release()


def _busy(conversation_id: str) -> ConversationBusy:
    return ConversationBusy(conversation_id, f"another turn of the conversation {conversation_id!r} is under way")

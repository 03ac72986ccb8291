"""Stores a turn while it runs. The turn's observers do this, so it does not depend on a reader of the events.

`TurnPersister` stores, while the turn waits:

* a reply with tool calls, before any of them runs, so that after a crash the stored conversation shows each such call;
* the results of a round, when the last call of the round has ended;
* the last message, before the turn ends;
* the details of the turn (`turn_details`), at its end.

`LeaseHeartbeat` renews the turn's lease of its conversation. Once a second, if they have changed, it also stores the
results of the unfinished round and the partial text. So a killed process loses at most one second of them; the
conversation then shows of an unfinished call only that it may have run.
"""

from __future__ import annotations

import anyio

from dial_client.conversations.history import CUT_OFF
from dial_client.conversations.turn_details import build_turn_entry
from dial_client.messages.errors import ConversationNotFound, DialError
from dial_client.messages.message import Message
from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import ConversationStore
from dial_client.turns.turn_handle import TurnHandle, TurnObserver
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

HEARTBEAT_INTERVAL = 1.0
"""Seconds between two checks for unfinished results and text to store."""


class TurnPersister(TurnObserver):
    """Stores each message that a turn adds to its conversation once, in order, and the turn's details at its end.

    Args:
        store: The store of the conversation.
        model: The name of the turn's model.
    """

    def __init__(self, store: ConversationStore, model: str = "") -> None:
        self._store = store
        self._model = model
        self._stored = 0

    async def on_message(self, turn: TurnHandle) -> None:
        """Store the messages that are not stored yet. If the conversation was deleted, cancel the turn.

        Raises:
            ConversationBusy: Another turn has taken the conversation over, because this turn's lease expired.
            DialError: The store failed.
        """
        added = turn.recorder.complete_messages[self._stored :]
        if not added:
            return
        try:
            await self._store.append(turn.conversation_id, added, turn=turn.id)
        except ConversationNotFound:
            log.debug("conversation_deleted_while_running", messages=len(added))
            turn.cancel()
        self._stored += len(added)

    async def on_ending(self, turn: TurnHandle) -> None:
        """Store the last messages and release the conversation; for an abandoned turn, only end the lease.

        Raises as `on_message`.
        """
        if turn.is_abandoned:
            await self._store.renew(turn.conversation_id, turn.id, 0.0)
            return
        unstored = turn.recorder.complete_messages[self._stored :]
        details = () if turn.ending is None else (build_turn_entry(turn, turn.ending, self._model),)
        try:
            await self._store.release(turn.conversation_id, turn.id, (*unstored, *details))
        except DialError:
            # Release the conversation, so that the next turn does not have to wait until the lease expires.
            await self._store.release(turn.conversation_id, turn.id)
            raise


class LeaseHeartbeat(TurnObserver):
    """Renews a turn's lease of its conversation until the turn ends.

    This observer must precede `TurnPersister`: the lease must not be renewed after the conversation is released.

    Args:
        store: The store of the conversation.
        lease: Seconds after which the lease expires; it is renewed after a third of them.
    """

    def __init__(self, store: ConversationStore, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._stopped = anyio.Event()

    async def run_beside(self, turn: TurnHandle) -> None:
        """Renew the lease when it is due, or when the unfinished results or text have changed, and store these."""
        stored: tuple[Message, ...] = ()
        renewed = anyio.current_time()
        while not self._stopped.is_set():
            with anyio.move_on_after(min(HEARTBEAT_INTERVAL, self._lease / 3)):
                await self._stopped.wait()
            unfinished = _collect_unfinished(turn.recorder)
            is_due = anyio.current_time() - renewed >= self._lease / 3
            if self._stopped.is_set() or (unfinished == stored and not is_due):
                continue
            renewed, stored = anyio.current_time(), unfinished
            await self._renew(turn, unfinished)

    async def on_ending(self, turn: TurnHandle) -> None:  # noqa: ARG002 - the same for every turn
        """Stop renewing the lease."""
        self._stopped.set()

    def on_ended(self, turn: TurnHandle) -> None:  # noqa: ARG002 - the same for every turn
        """Stop renewing the lease, even if `on_ending` was not called."""
        self._stopped.set()

    async def _renew(self, turn: TurnHandle, unfinished: tuple[Message, ...]) -> None:
        try:
            is_held = await self._store.renew(turn.conversation_id, turn.id, self._lease, unfinished)
        except DialError as error:
            # The next heartbeat tries again. If the store keeps failing, the turn ends when it has to store a message.
            log.warning("turn_not_renewed", error=type(error).__name__)
            return
        if not is_held and not self._stopped.is_set():
            log.warning("turn_lost_its_conversation")
            turn.cancel()


def _collect_unfinished(recorder: TurnRecorder) -> tuple[Message, ...]:
    text = recorder.unfinished_text
    cut = (Message.assistant(f"{text}\n\n{CUT_OFF}"),) if text.strip() else ()
    return (*recorder.results_so_far, *cut)

"""Stores a turn while it runs, from within the turn: whether anybody reads its events makes no difference.

`TurnPersister` stores, while the turn waits,

* a reply with calls, before any of them is run: no call can run unknown to who reads the conversation after a crash;
* the results of a round, when the last of them is there;
* the last message, before the turn is over;
* the details of the turn (`turn_details`), at its end.

`LeaseHeartbeat` keeps the conversation reserved for the turn. Once a second, and only if there is more than before, it
stores the results of a round that is not over and the text that is being written. That much may be lost with the
program; of a call it is then known only that it may have run.
"""

from __future__ import annotations

import anyio

from dial_client.conversations.history import CUT_OFF
from dial_client.conversations.turn_details import build_turn_entry
from dial_client.errors import ConversationNotFound, DialError
from dial_client.messages.message import Message
from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import ConversationStore
from dial_client.turns.turn_handle import TurnHandle, TurnObserver
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

HEARTBEAT_INTERVAL = 1.0
"""Seconds between two looks at what is unfinished."""


class TurnPersister(TurnObserver):
    """Stores the messages a turn adds to its conversation, each once, in order, and at the end its details.

    Args:
        store: keeps the conversation.
        model: the name of the turn's model.
    """

    def __init__(self, store: ConversationStore, model: str = "") -> None:
        self._store = store
        self._model = model
        self._stored = 0

    async def on_message(self, turn: TurnHandle) -> None:
        """Store the messages that are not stored yet. A turn whose conversation was deleted is cancelled.

        Raises:
            ConversationBusy: another turn holds the conversation: this one was silent for too long.
            DialError: the store failed.
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
        """Store the rest and release the conversation; of an abandoned turn, store nothing. Raises as `on_message`."""
        if turn.is_abandoned:
            await self._store.renew(turn.conversation_id, turn.id, 0.0)
            return
        rest = turn.recorder.complete_messages[self._stored :]
        details = () if turn.ending is None else (build_turn_entry(turn, turn.ending, self._model),)
        try:
            await self._store.end(turn.conversation_id, turn.id, (*rest, *details))
        except DialError:
            # The next turn need not wait until the lease is over.
            await self._store.end(turn.conversation_id, turn.id)
            raise


class LeaseHeartbeat(TurnObserver):
    """Renews a turn's lease of its conversation until the turn ends.

    Comes before `TurnPersister` among the observers: the lease must not be renewed once the conversation is released.

    Args:
        store: keeps the conversation.
        lease: seconds for which the conversation stays reserved without a renewal; it is renewed three times as often.
    """

    def __init__(self, store: ConversationStore, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._stopped = anyio.Event()

    async def run_beside(self, turn: TurnHandle) -> None:
        """Renew the lease when it is due, and store what is unfinished when there is more of it."""
        stored: tuple[Message, ...] = ()
        renewed = anyio.current_time()
        while not self._stopped.is_set():
            with anyio.move_on_after(min(HEARTBEAT_INTERVAL, self._lease / 3)):
                await self._stopped.wait()
            unfinished = _unfinished(turn.recorder)
            is_due = anyio.current_time() - renewed >= self._lease / 3
            if self._stopped.is_set() or (unfinished == stored and not is_due):
                continue
            renewed, stored = anyio.current_time(), unfinished
            await self._renew(turn, unfinished)

    async def on_ending(self, turn: TurnHandle) -> None:  # noqa: ARG002 - the same for every turn
        """Stop."""
        self._stopped.set()

    def on_ended(self, turn: TurnHandle) -> None:  # noqa: ARG002 - the same for every turn
        """Stop, however the turn ended."""
        self._stopped.set()

    async def _renew(self, turn: TurnHandle, unfinished: tuple[Message, ...]) -> None:
        try:
            is_held = await self._store.renew(turn.conversation_id, turn.id, self._lease, unfinished)
        except DialError as error:
            # The next heartbeat tries again; a store that stays away ends the turn where it has to store a message.
            log.warning("turn_not_renewed", error=type(error).__name__)
            return
        if not is_held and not self._stopped.is_set():
            log.warning("turn_lost_its_conversation")
            turn.cancel()


def _unfinished(recorder: TurnRecorder) -> tuple[Message, ...]:
    text = recorder.unfinished_text
    cut = (Message.assistant(f"{text}\n\n{CUT_OFF}"),) if text.strip() else ()
    return (*recorder.results_so_far, *cut)

"""Stores what a turn does while it does it, from within the turn: whether anybody reads its events makes no difference.

Stored, and waited for, is

* a reply with calls, before any of them is run: none can run unknown to who reads the conversation after a crash;
* the results of a round, when the last of them is there;
* the last word, before the turn is over.

Beside that, once a second and only if there is more than before: the results of a round that is not over, and the text
that is being written. That much may be lost with the program; of a call it is then known only that it may have run.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dial_client.conversations.history import CUT_OFF
from dial_client.errors import ConversationNotFound, DialError
from dial_client.logs import get_logger
from dial_client.messages import Message
from dial_client.stores.conversation_store import ConversationStore
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

BEAT = 1.0
"""Seconds between two looks at what is unfinished."""


class TurnPersister:
    """Holds a conversation for one turn, and stores what the turn adds: each message once, in order.

    Args:
        store: keeps it.
        conversation_id: the conversation, which the turn has been given.
        turn: the turn's id.
        lease: seconds the turn holds the conversation without a word; it says one three times as often.
        stop: cancels the turn.
    """

    def __init__(
        self, store: ConversationStore, conversation_id: str, turn: str, lease: float, stop: Callable[[], None]
    ) -> None:
        self._store = store
        self._conversation_id = conversation_id
        self._turn = turn
        self._lease = lease
        self._stop = stop
        self.is_left = False
        """Whether the turn is left as it is, for another program to go on with."""
        self._stored = 0
        self._ended = anyio.Event()

    async def keep(self, recorder: TurnRecorder) -> None:
        """Store what the turn has added and is not stored yet. Of a conversation that is gone, nothing; the turn stops.

        Raises:
            ConversationBusy: another turn holds the conversation: this one was silent for too long.
            DialError: the store failed.
        """
        added = recorder.settled[self._stored :]
        if not added:
            return
        try:
            await self._store.append(self._conversation_id, added, turn=self._turn)
        except ConversationNotFound:
            log.debug("conversation_deleted_while_running", messages=len(added))
            self._stop()
        self._stored += len(added)

    async def end(self, recorder: TurnRecorder) -> None:
        """Store what is left, and give the conversation back; of a turn that is left, nothing. Raises as `keep`."""
        self.rest()
        if self.is_left:
            await self._store.renew(self._conversation_id, self._turn, 0.0)
            return
        try:
            await self._store.end(self._conversation_id, self._turn, recorder.settled[self._stored :])
        except DialError:
            # Whoever comes next need not wait until the lease is over.
            await self._store.end(self._conversation_id, self._turn)
            raise

    def rest(self) -> None:
        """Let the beat end, however the turn did."""
        self._ended.set()

    async def beat(self, recorder: TurnRecorder) -> None:
        """Go on holding the conversation until the end, and store what is unfinished."""
        told: tuple[Message, ...] = ()
        renewed = anyio.current_time()
        while not self._ended.is_set():
            with anyio.move_on_after(min(BEAT, self._lease / 3)):
                await self._ended.wait()
            unfinished = _unfinished(recorder)
            due = anyio.current_time() - renewed >= self._lease / 3
            if self._ended.is_set() or (unfinished == told and not due):
                continue
            renewed, told = anyio.current_time(), unfinished
            await self._renew(unfinished)

    async def _renew(self, unfinished: tuple[Message, ...]) -> None:
        try:
            held = await self._store.renew(self._conversation_id, self._turn, self._lease, unfinished)
        except DialError as error:
            # The next beat tries again; a store that stays away ends the turn where it has to store a message.
            log.warning("turn_not_renewed", error=type(error).__name__)
            return
        if not held and not self._ended.is_set():
            log.warning("turn_lost_its_conversation")
            self._stop()


def _unfinished(recorder: TurnRecorder) -> tuple[Message, ...]:
    said = recorder.said
    cut = (Message.assistant(f"{said}\n\n{CUT_OFF}"),) if said.strip() else ()
    return (*recorder.results_so_far, *cut)

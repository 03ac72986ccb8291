"""The turns that other processes run, read and stopped from here."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence

import anyio

from dial_client.errors import ConversationNotFound, DialError
from dial_client.serve.cluster.peers import READ, STOP, WISHED, PeerBus, events, wishes
from dial_client.serve.sse_response import BEGUN, end_of
from dial_client.stores.mailbox import Envelope
from dial_client.stores.sql_store import SQLStore

HEARD = 5.0
"""Seconds a wish is waited for: programs that use the database but serve nobody hear of none."""
GRACE = 3.0
"""Seconds in which the end of a turn has to be there that has given its conversation back."""
_SOON = 0.1
"""Seconds between two looks for what was wished."""
SILENCE = 2.0
"""Seconds of silence after which it is looked whether the turn still runs."""


class RemoteTurns:
    """What this process does about turns that are not its own.

    Args:
        store: keeps the conversations of all of them.
        elsewhere: hears of them.
    """

    def __init__(self, store: SQLStore, elsewhere: PeerBus) -> None:
        self._elsewhere = elsewhere
        self._store = store
        self._board = store.board

    async def stop(self, conversation_id: str) -> bool:
        """Have the turn of a conversation stopped by the process that runs it; False where that does not hear.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        turn, is_running = await self._store.turn_of(conversation_id)
        if not is_running:
            return True
        (wish,) = await self._board.pin([(wishes(turn), STOP)], WISHED)
        with anyio.move_on_after(HEARD):
            while await self._runs(conversation_id, turn):
                if wish not in {note.id for note in await self._board.read({wishes(turn): 0})}:
                    return True
                await anyio.sleep(_SOON)
        return not await self._board.take(wish) or not await self._runs(conversation_id, turn)

    async def events(self, conversation_id: str, turn: str, after: int) -> AsyncGenerator[str, None] | None:
        """Give the events of a turn behind a position, as `streams.of_turn` does; None where they are not to be had.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        if not (turn.isascii() and turn.isprintable()):
            return None
        is_running = await self._store.turn_of(conversation_id) == (turn, True)
        notes: Sequence[Envelope] = await self._board.read({events(conversation_id, turn): 0})
        if not notes and is_running:
            notes = await self._asked_for(conversation_id, turn)
        return self._told(conversation_id, turn, after, notes) if notes else None

    async def _asked_for(self, conversation_id: str, turn: str) -> Sequence[Envelope]:
        (wish,) = await self._board.pin([(wishes(turn), READ)], WISHED)
        notes: Sequence[Envelope] = ()
        with anyio.move_on_after(HEARD):
            while not notes:
                await anyio.sleep(_SOON)
                notes = await self._board.read({events(conversation_id, turn): 0})
        if not notes:
            await self._board.take(wish)
        return notes

    async def _told(
        self, conversation_id: str, turn: str, after: int, notes: Sequence[Envelope]
    ) -> AsyncGenerator[str, None]:
        yield BEGUN
        doubt = _Doubt(turn)
        with self._elsewhere.listening(events(conversation_id, turn)) as ear:
            ear.hear(notes)
            try:
                while True:
                    found = await ear.heard(SILENCE)
                    for at, text in (line for note in found for line in _lines(note)):
                        if at is None:
                            yield text
                            return
                        if at > after:
                            after = at
                            yield text
                    if not found:
                        doubt.grows(await self._likely_holder(conversation_id))
            except Exception as error:  # noqa: BLE001 - the reader is owed an end of the stream, whatever was wrong
                yield end_of(error, {})

    async def _runs(self, conversation_id: str, turn: str) -> bool:
        return await self._holder(conversation_id) == (turn, True)

    async def _holder(self, conversation_id: str) -> tuple[str, bool]:
        try:
            return await self._store.turn_of(conversation_id)
        except ConversationNotFound:
            return "", False

    async def _likely_holder(self, conversation_id: str) -> tuple[str, bool]:
        try:
            return await self._holder(conversation_id)
        except DialError:  # the database may be back before the doubt is too great
            return "", False


def _lines(note: Envelope) -> list[tuple[int | None, str]]:
    """Return positions and what is sent of them.

    Raises:
        TurnLost: the note has none.
    """
    try:
        lines = [(at, text) for at, text in json.loads(note.body)]
    except (TypeError, ValueError, RecursionError):
        lines = [(0, None)]
    if not all(isinstance(at, int | None) and isinstance(text, str) for at, text in lines):
        raise TurnLost("what this turn has done cannot be read here; the conversation has it")
    return lines


class TurnLost(DialError):
    """The process that ran a turn is gone, or has not said how the turn ended."""


class _Doubt:
    """Whether a turn that is silent will still say how it ended."""

    def __init__(self, turn: str) -> None:
        self._turn = turn
        self._since: float | None = None

    def grows(self, holder: tuple[str, bool]) -> None:
        """Take note of the turn that holds the conversation, or held it last, and of whether it still does.

        Raises:
            TurnLost: it is not this one any more, and this one has said nothing.
        """
        now = anyio.current_time()
        if holder == (self._turn, True):
            self._since = None
            return
        self._since = self._since or now
        if holder[0] == self._turn or now - self._since >= GRACE:
            raise TurnLost("how this turn ended is not known here; the conversation has what was done until then")

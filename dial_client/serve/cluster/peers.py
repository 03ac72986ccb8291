"""The other processes that serve over the same database: what this one tells them of its turns, and asks of theirs.

Whoever wants to read or to stop a turn pins a wish on the turn's topic; an answer to what a turn asked is pinned on the
topic of the process that asked. From the first wish to read a turn its process writes the turn's events down, as they
are sent, until the turn's end. Each process looks, in one query, for all that is wished of its turns and for all that
is read at it, and looks for nothing while there is neither.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from dial_client.logs import get_logger
from dial_client.serve.sse_response import end_of, text_of
from dial_client.serve.turn_registry import TurnRegistry
from dial_client.serve.wake_signal import WakeSignal
from dial_client.sinks import sse_encoder
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.mailbox import Envelope, Mailbox
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.turn_handle import TurnHandle

log = get_logger(__name__)

LOOK = 0.25
"""Seconds between two looks for wishes, while a turn runs here."""
BATCH = 0.15
"""The same while somebody reads elsewhere what runs here, or here what runs elsewhere: so late is what he reads."""
MOST = 1_000
"""Events that are written down at a time."""
KEPT = 600.0
"""Seconds for which a turn's events are there after its end, or a bit less."""
LIFE = 30.0
"""Seconds for which what a process asks and grants outlives it."""
WISHED = 60.0
"""Seconds for which a wish is there."""
_LAST_WORDS = 5.0
"""Seconds in which what is left to say has to be said when the process leaves."""

READ, STOP = "read", "stop"

Receive = Callable[[Mapping[str, Any]], None]
"""Takes an answer, or raises `KeyError` or `ValueError` where it is none."""


class PeerBus:
    """Tells other processes, and hears of them. Where conversations are in memory there are none.

    Args:
        store: keeps the conversations.
        turns: those that this process runs.
        model: the name by which the model is known here.
    """

    def __init__(self, store: ConversationStore, turns: TurnRegistry, model: str) -> None:
        self.board: Mailbox | None = store.board if isinstance(store, SQLStore) else None
        self.address = f"process:{uuid.uuid4().hex}"
        """The topic of what is said to this process, whichever turn it is about."""
        self._receivers: dict[str, Receive] = {}
        self._turns = turns
        self._model = model
        self._told: dict[str, _Told] = {}
        self._known: tuple[TurnHandle, ...] = ()
        """Those that ran at the last look: what was wished of them since may have been wished before they ended."""
        self._ears: set[TopicReader] = set()
        self._held: set[int] = set()
        self._renewed = -math.inf
        self._is_failing = False
        self._is_leaving = False
        self._signal = turns.started
        """Ends the pause between two looks; sent from here too."""

    async def run(self) -> None:
        """Tell and hear, until `leave` or until cancelled; then say the last words of the turns that have ended."""
        try:
            while not self._is_leaving:
                await self._tried(self._look)
                await self._signal.wait(self._pause())
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WORDS):
                while self._told and await self._tried(self._write):
                    pass
                await self._tried(self._take_down)

    @contextmanager
    def listening(self, topic: str) -> Iterator[TopicReader]:
        """Hear of what is pinned on a topic that one writer has to itself, for as long as this lasts."""
        ear = TopicReader(topic)
        self._ears.add(ear)
        self._wake()
        try:
            yield ear
        finally:
            self._ears.discard(ear)

    @contextmanager
    def receiving(self, request_id: str, receive: Receive) -> Iterator[None]:
        """Pass the answers of other processes to a request of this one to `receive`, for as long as this lasts."""
        self._receivers[request_id] = receive
        try:
            yield
        finally:
            del self._receivers[request_id]

    def leave(self) -> None:
        """Come to an end: the turns have."""
        self._is_leaving = True
        self._wake()

    def hold(self, note: int) -> None:
        """Keep a note that was pinned for `LIFE` seconds there for as long as this process lives."""
        if not self._held:
            self._renewed = anyio.current_time()
        self._held.add(note)
        self._wake()

    def let_go(self, note: int | None) -> None:
        """Keep it no longer; of None there is nothing to keep."""
        self._held.discard(note or 0)

    def _wake(self) -> None:
        self._signal.send()

    def _pause(self) -> float:
        if self._told or self._ears:
            is_behind = any(told.is_behind for told in self._told.values())
            return 0.0 if is_behind and not self._is_failing else BATCH
        if self._turns.talks or self._known:
            return LOOK
        # Not at once where it is due: it has failed then, and may again.
        return max(LOOK, self._renewed + LIFE / 3 - anyio.current_time()) if self._held else math.inf

    async def _look(self) -> bool:
        await self._hear()
        await self._write()
        await self._renew()
        return True

    async def _hear(self) -> None:
        running = self._turns.talks
        talks = {wishes(talk.id): talk for talk in (*self._known, *running)}
        ears = tuple(self._ears)  # one that comes meanwhile may be behind what is asked for
        if self.board is None or not (talks or ears):
            return
        wanted = dict.fromkeys([self.address, *talks], 0)
        for ear in ears:
            wanted[ear.topic] = min(ear.last, wanted.get(ear.topic, ear.last))
        found = await self.board.read(wanted)
        for ear in ears:
            ear.hear(found)
        notes = [note for note in found if note.topic == self.address or note.topic in talks]
        # What is taken is done: who wished it, and sees that it was taken, need wait no longer.
        taken = await self.board.take(*(note.id for note in notes))
        self._known = running
        for note in notes:
            if note.id in taken:
                self._heed(note, talks.get(note.topic))

    def _heed(self, note: Envelope, talk: TurnHandle | None) -> None:
        if talk is None:
            try:
                self._pass_on(note.content())
            except (KeyError, TypeError, ValueError, AttributeError) as error:  # another version's, or somebody else's
                log.warning("answer_unreadable", error=type(error).__name__)
        elif note.body == STOP:
            talk.cancel()
        elif note.body == READ and talk.id not in self._told:
            self._told[talk.id] = _Told(talk, sse_encoder.chunk_of(self._model, talk.id))

    def _pass_on(self, answer: Mapping[str, Any]) -> None:
        receive = self._receivers.get(answer["id"])
        if receive is not None:
            receive(answer)

    async def _write(self) -> bool:
        """Write down what has happened in the turns that are read elsewhere; say whether anything has."""
        if self.board is None:
            return False
        batches = [(told, await told.batch()) for told in self._told.values()]
        said = [(told, batch) for told, batch in batches if batch is not None]
        ids = await self.board.pin([(told.topic, sse_encoder.to_json(batch.lines)) for told, batch in said], KEPT)
        for (told, batch), note in zip(said, ids, strict=True):
            told.written(batch, note)
            if batch.is_last:
                del self._told[told.live.id]
        return bool(said)

    async def _renew(self) -> None:
        now = anyio.current_time()
        for told in self._told.values():
            if self.board is not None and now - told.renewed > KEPT / 3:
                await self.board.renew(told.notes, KEPT)
                told.renewed = now
        if self.board is not None and self._held and now - self._renewed >= LIFE / 3:
            await self.board.renew(self._held, LIFE)
            self._renewed = now

    async def _take_down(self) -> bool:
        if self.board is not None:
            await self.board.take(*self._held)
        return True

    async def _tried(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Do something that is done again at the next look where it fails: the database may be back by then."""
        try:
            done = await work()
        except Exception as error:  # noqa: BLE001 - whatever it is, who is here is served all the same
            if not self._is_failing:
                log.warning("others_out_of_reach", error=type(error).__name__)
            self._is_failing = True
            return False
        self._is_failing = False
        return done


class TopicReader:
    """What one reader hears of a topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last = 0
        """The id of the last note."""
        self._notes: list[Envelope] = []
        self._signal = WakeSignal()

    def hear(self, notes: Iterable[Envelope]) -> None:
        """Take those that are on its topic and new."""
        new = [note for note in notes if note.topic == self.topic and note.id > self.last]
        if new:
            self._notes += new
            self.last = new[-1].id
            self._signal.send()

    async def heard(self, seconds: float) -> list[Envelope]:
        """Give what is new, none if there is nothing for so long."""
        await self._signal.wait(seconds)
        notes, self._notes = self._notes, []
        return notes


@dataclass(frozen=True, slots=True)
class _Batch:
    lines: list[tuple[int | None, str]]
    """Positions, and what is sent of them; without a position the end."""
    at: int
    is_last: bool


class _Told:
    """A turn whose events are written down."""

    def __init__(self, live: TurnHandle, chunk: dict[str, Any]) -> None:
        self.live = live
        self.topic = events(live.conversation_id, live.id)
        self.notes: list[int] = []
        self.renewed = anyio.current_time()
        self._chunk = chunk
        self._at = 0

    @property
    def is_behind(self) -> bool:
        """Whether there is more than goes into a batch."""
        return self.live.log.last - self._at >= MOST

    async def batch(self) -> _Batch | None:
        """Give what has happened since the last one; None for nothing. The first says at least that there is one."""
        is_over, at = self.live.over, self._at
        lines: list[tuple[int | None, str]] = []
        try:
            for at, event in self.live.log.since(self._at, MOST):
                if text := text_of(event, f"{self.live.id}:{at}", self._chunk):
                    lines.append((at, text))
            is_last = is_over and at >= self.live.log.last
            end = await self._end() if is_last else ""
        except Exception as error:  # noqa: BLE001 - an event that cannot be written is the end, as it is for who reads here
            is_last, end = True, end_of(error, self._chunk)
        if is_last:
            lines.append((None, end))
        if lines or not self.notes:
            return _Batch(lines, at, is_last)
        self._at = at
        return None

    def written(self, batch: _Batch, note: int) -> None:
        self._at = batch.at
        self.notes.append(note)

    async def _end(self) -> str:
        try:
            await self.live.result()
        except Exception as error:  # noqa: BLE001 - its words are the end of the stream
            return end_of(error, self._chunk)
        return end_of(None, self._chunk)


def wishes(turn: str) -> str:
    """Give the topic of what others wish of a turn."""
    return f"wishes:{turn}"


def events(conversation_id: str, turn: str) -> str:
    """Give the topic of a turn's events, each note a JSON list of positions and what is sent of them."""
    return f"events:{conversation_id}/{turn}"

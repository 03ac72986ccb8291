"""A turn of a conversation while it runs: anybody may read its events, from any position, and leave again."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import islice

import anyio

from dial_client.conversations.persistence import TurnPersister
from dial_client.errors import ConversationBusy
from dial_client.events import Event, Finished
from dial_client.stores.conversation_store import ConversationStore
from dial_client.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle
from dial_client.turns.turn_recorder import TurnRecorder

KEPT_EVENTS = 10_000
"""Events of a turn that can be read again; older ones are forgotten, their messages are stored."""


class LiveTurn:
    """A turn that goes on whether anybody reads it or not; made by `ConversationManager.start`.

    Its events are numbered from 1. Who has read as far as a position reads on with ``events(after=position)``.
    """

    def __init__(
        self,
        store: ConversationStore,
        conversation_id: str,
        lease: float,
        on_end: Callable[[], None],
        turn: str | None = None,
    ) -> None:
        self.id = turn or uuid.uuid4().hex
        """Unlike that of any other turn."""
        self.conversation_id = conversation_id
        self._keeper = TurnPersister(store, conversation_id, self.id, lease, self.cancel)
        self._on_end: Callable[[], None] | None = on_end
        self._running: TurnHandle | None = None
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._last = 0
        self._over = False
        self._news: anyio.Event | None = None
        """What readers wait for, where there are any."""

    @property
    def running(self) -> TurnHandle:
        """The turn itself."""
        assert self._running is not None
        return self._running

    @property
    def last(self) -> int:
        """The position of the newest event; 0 before the first."""
        return self._last

    @property
    def over(self) -> bool:
        """Whether there will be no more events."""
        return self._over

    async def events(self, after: int = 0) -> AsyncGenerator[tuple[int, Event], None]:
        """Give events with their positions, `Finished` last; those still to come as they come.

        Leaving early changes nothing for the turn. Where events have been forgotten, or the turn is ahead of a slow
        reader by more than are kept, it goes on with the oldest there is: the jump of the position tells.

        Raises:
            ProviderError, LimitReached, ConversationBusy: as `result`, behind the last event.
        """
        while True:
            for at, event in self.since(after):
                after = at
                yield at, event
            if after >= self._last:
                if self._over:
                    break
                self._news = self._news or anyio.Event()
                await self._news.wait()
        await self.result()

    def since(self, after: int, most: int | None = None) -> list[tuple[int, Event]]:
        """Give the events that are there behind a position, or the first so many of them, each with its position."""
        at = max(after, self._last - len(self._events))
        first = at - self._last + len(self._events)
        return list(enumerate(islice(self._events, first, None if most is None else first + most), at + 1))

    async def result(self) -> Turn:
        """Wait for the end.

        Raises:
            ProviderError, LimitReached: as `TurnHandle.result`.
            ConversationBusy: it was left: another turn goes on with it.
        """
        turn = await self.running.result()
        if self.is_left:
            raise ConversationBusy("this program is being stopped: another one goes on with the turn")
        return turn

    def cancel(self) -> None:
        """Stop the turn; what was said and done until then is stored. Does nothing to one that is over."""
        if self._running is not None:
            self._running.cancel()

    def leave(self) -> None:
        """Cancel the turn, and leave it in the store as a killed program would: another one may go on with it.

        Its events and its result end in `ConversationBusy`.
        """
        if not self._over:
            self._keeper.is_left = True
        self.cancel()

    @property
    def is_left(self) -> bool:
        """Whether it was left for another program to go on with."""
        return self._keeper.is_left

    def begun(self, running: TurnHandle) -> None:
        """Name the turn that runs."""
        self._running = running

    async def keep(self, recorder: TurnRecorder) -> None:
        """See `turns.running.Witness`."""
        await self._keeper.keep(recorder)

    async def beat(self, recorder: TurnRecorder) -> None:
        """See `turns.running.Witness`."""
        await self._keeper.beat(recorder)

    async def end(self, recorder: TurnRecorder) -> None:
        """See `turns.running.Witness`."""
        await self._keeper.end(recorder)

    def heard(self, event: Event) -> None:
        """See `turns.running.Witness`."""
        if self.is_left and isinstance(event, Finished):
            return
        self._events.append(event)
        self._last += 1
        self._tell()

    def ended(self) -> None:
        """See `turns.running.Witness`."""
        self._over = True
        self._keeper.rest()
        self._tell()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.set()

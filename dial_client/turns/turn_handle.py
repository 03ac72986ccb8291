"""A turn under way: its events as they come, its end, and the way to stop it."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol

import anyio

from dial_client.audit.entries import Origin
from dial_client.errors import DialError, LimitReached, ProviderError
from dial_client.events import Event, Finished, MessageCompleted
from dial_client.limits import StopReason
from dial_client.turn_result import Turn
from dial_client.turns.turn_recorder import TurnRecorder

Work = Callable[["TurnHandle"], Awaitable[StopReason]]

BUFFERED_EVENTS = 1024
"""Events that wait for a slow reader before the turn waits for it too."""


class TurnObserver(Protocol):
    """Is told of everything a turn does, by the turn itself: readers may be slow, or none."""

    id: str
    """Of the turn."""
    conversation_id: str

    async def keep(self, recorder: TurnRecorder) -> None:
        """Put what was recorded where it outlives the program; the turn waits for it. What it raises ends the turn."""

    async def beat(self, recorder: TurnRecorder) -> None:
        """Run beside the turn, until `end` was called."""

    async def end(self, recorder: TurnRecorder) -> None:
        """Do as `keep`, for the last time."""

    def heard(self, event: Event) -> None:
        """Take note of an event that is handed on."""

    def ended(self) -> None:
        """Take note that there are no more events; the turn's result is there."""


class TurnHandle:
    """One turn, run by a task of the client's; made by `DialClient.start`.

    Iterate `events` for what happens (of a turn started as watched: it waits for its reader), await `result` for the
    `Turn`, call `cancel` to stop it from anywhere.
    """

    def __init__(
        self, work: Work, *, watched: bool, raise_at_limits: bool, witness: TurnObserver | None = None
    ) -> None:
        self.recorder = TurnRecorder()
        self._work = work
        self._watched = watched
        self._raise_at_limits = raise_at_limits
        self._witness = witness
        self.origin = Origin(turn=uuid.uuid4().hex) if witness is None else Origin(witness.conversation_id, witness.id)
        """Which turn this is, for the audit log."""
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._turn: Turn | None = None
        self._error: Exception | None = None
        # What is recorded is always handed on, so that the two agree wherever the turn is cut off.
        self._send, self._receive = anyio.create_memory_object_stream[Event](math.inf)
        self._unread = 0
        self._room = anyio.Event()

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self._done.is_set()

    @property
    def witness(self) -> TurnObserver | None:
        """Who is told of everything it does."""
        return self._witness

    async def emit(self, event: Event) -> None:
        """Record an event, and hand it to whoever reads, waiting while too many are unread; nobody need read."""
        self.recorder.record(event)
        if self._witness is not None and isinstance(event, MessageCompleted):
            with anyio.CancelScope(shield=True):
                await self._witness.keep(self.recorder)
        self._hand_on(event)
        if self._watched and self._unread >= BUFFERED_EVENTS:
            await self._room.wait()

    def announce(self, event: Event) -> None:
        """Hand on an event that comes from outside the turn, unless too many are unread."""
        if self._unread < BUFFERED_EVENTS:
            self._hand_on(event)

    def _hand_on(self, event: Event) -> None:
        if self._witness is not None:
            self._witness.heard(event)
        if self._watched:
            try:
                self._send.send_nowait(event)
                self._unread += 1
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    def cancel(self) -> None:
        """Stop the turn; what was said and done until then is in its `Turn`. Does nothing to one that is over."""
        self._scope.cancel()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Give what happens from now on, `Finished` last. Leaving early cancels the turn.

        Raises:
            ProviderError, LimitReached: as `result`, behind the last event.
        """
        try:
            while (event := await self._next()) is not None:
                yield event
            await self.result()
        finally:
            self._receive.close()
            await self.stopped()

    async def _next(self) -> Event | None:
        """Give the next event, None behind the last; without a detour through the event loop where one is waiting."""
        try:
            event = self._receive.receive_nowait()
        except anyio.WouldBlock:
            try:
                event = await self._receive.receive()
            except anyio.EndOfStream:
                return None
        except anyio.EndOfStream:
            return None
        self._unread -= 1
        if self._unread == BUFFERED_EVENTS // 2:
            self._room.set()
            self._room = anyio.Event()
        return event

    async def result(self) -> Turn:
        """Wait for the end.

        Raises:
            ProviderError: the model could not be reached or refused; its `messages` are what the turn had added.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._turn is not None
        return self._turn

    async def stopped(self) -> None:
        """Cancel what still runs, and wait until nothing does: connections closed, calls cancelled at their servers."""
        self.cancel()
        with anyio.CancelScope(shield=True):
            await self._done.wait()

    async def run(self) -> None:
        """Carry the turn out: the body of its task."""
        _CURRENT.set(self)
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - `result` raises it where somebody waits for it
            self._error = self._error or error
        finally:
            self._end()

    async def _run(self) -> None:
        reason, closing = StopReason.CANCELLED, ""
        try:
            with self._scope:
                reason = await self._work(self)
        except ProviderError as error:
            self._error, closing = error, "the model broke off"
        except Exception as error:  # noqa: BLE001 - what was done until then counts
            self._error, closing = error, "the turn broke off"
        if self._error is None and reason is StopReason.CANCELLED:
            closing = reason.sentence
        last = self.recorder.settle(closing) if closing else []
        for event in last:
            self.recorder.record(event)
        if isinstance(self._error, ProviderError):
            self._error.messages = self.recorder.turn(reason).messages
        if self._witness is not None:
            with anyio.CancelScope(shield=True):
                await self._witness.end(self.recorder)
        for event in last:
            self._hand_on(event)
        if self._error is None:
            self._finish(reason)

    def _finish(self, reason: StopReason) -> None:
        turn = self.recorder.turn(reason)
        if reason.is_limit and self._raise_at_limits:
            self._error = LimitReached(reason.sentence, turn)
        else:
            self._hand_on(Finished(turn))
            self._turn = turn

    def _end(self) -> None:
        if self._turn is None and self._error is None:
            self._error = DialError("the client was closed while the turn was running")
        self._done.set()
        self._send.close()
        if not self._watched:
            self._receive.close()
        if self._witness is not None:
            self._witness.ended()


_CURRENT: ContextVar[TurnHandle | None] = ContextVar("turn", default=None)


def current() -> TurnHandle | None:
    """Give the turn on whose behalf this runs, for an approver to know which; None outside of any."""
    return _CURRENT.get()

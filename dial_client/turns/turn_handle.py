"""A turn under way: its events as they come, its end, and the way to stop it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

import anyio

from dial_client.audit.entries import Origin
from dial_client.errors import ConversationBusy, DialError, LimitReached, OutputError, ProviderError
from dial_client.turn_data.events import Event, Finished, MessageCompleted
from dial_client.turn_data.limits import StopReason
from dial_client.turn_data.turn_result import Turn
from dial_client.turns.event_log import MAX_UNREAD, EventLog
from dial_client.turns.turn_recorder import TurnRecorder

Work = Callable[["TurnHandle"], Awaitable[StopReason]]


class TurnObserver:
    """Follows a turn from within: readers may be slow, or none. A subclass overrides the methods it needs."""

    async def run_beside(self, turn: TurnHandle) -> None:
        """Run in a task of its own from the start of the turn; has to return once the turn is over."""

    async def on_message(self, turn: TurnHandle) -> None:
        """Store what `TurnHandle.recorder` has; the turn waits for it, and an error ends the turn."""

    async def on_ending(self, turn: TurnHandle) -> None:
        """Store the rest: the turn adds no more messages, and waits for this before `Finished`."""

    def on_ended(self, turn: TurnHandle) -> None:
        """Let go of the turn: its result is there, and its log is closed. Must not raise."""


class TurnHandle:
    """One turn, run by a task of the client's; made by `DialClient.start` and `ConversationManager.start`.

    Await `result` for the `Turn`, read ``log.events(after=position)`` for what happens, call `cancel` to stop the turn
    from anywhere. `events` is for the one reader a turn waits for.

    Args:
        work: carries the turn out.
        log: where its events go.
        observers: follow the turn, in this order.
        origin: the ids of the turn and its conversation; by default a new turn of no conversation.
        raise_at_limits: a limit that ends the turn is an error.
        require_output: an end without a typed answer is an error.
    """

    def __init__(
        self,
        work: Work,
        log: EventLog,
        observers: Sequence[TurnObserver] = (),
        *,
        origin: Origin | None = None,
        raise_at_limits: bool = False,
        require_output: bool = False,
    ) -> None:
        self.log = log
        """All its events, for any number of readers."""
        self.recorder = TurnRecorder()
        self.origin = origin or Origin(turn=secrets.token_hex(16))
        """Which turn this is, for the audit log."""
        self.replacement: Turn | None = None
        """The result that a middleware puts in place of the recorded one; None for none."""
        self._work = work
        self.observers = tuple(observers)
        """They follow it from within, until it is over."""
        self._raise_at_limits = raise_at_limits
        self._require_output = require_output
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._is_abandoned = False
        self.ending: Turn | None = None
        """What the turn has come to, once it adds no more messages."""
        self._turn: Turn | None = None
        self._error: Exception | None = None

    @property
    def id(self) -> str:
        """Unlike that of any other turn."""
        return self.origin.turn

    @property
    def conversation_id(self) -> str:
        """The conversation it belongs to; empty for none."""
        return self.origin.conversation

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self._done.is_set()

    @property
    def is_abandoned(self) -> bool:
        """Whether it was left for another program to resume."""
        return self._is_abandoned

    @property
    def failure(self) -> Exception | None:
        """The error that has ended it; None for none."""
        return self._error

    async def emit(self, event: Event) -> None:
        """Record an event and log it, waiting while the paced reader has too many to read."""
        self.recorder.record(event)
        if isinstance(event, MessageCompleted):
            with anyio.CancelScope(shield=True):
                for observer in self.observers:
                    await observer.on_message(self)
        # What is recorded is always logged, so that the two agree wherever the turn is cut off.
        self.log.append(event)
        if self.log.unread >= MAX_UNREAD:
            await self.log.wait_for_room()

    def announce(self, event: Event) -> None:
        """Log an event that comes from outside the turn, unless too many are unread."""
        if self.log.unread < MAX_UNREAD:
            self.log.append(event)

    def cancel(self) -> None:
        """Stop the turn; what was said and done until then is in its `Turn`. Does nothing to one that is over."""
        self._scope.cancel()

    def abandon(self) -> None:
        """Cancel the turn, and leave it in the store as a killed program would: another program may resume it.

        For turns of conversations. Events and result end in `ConversationBusy`. Does nothing to a turn that is over.
        """
        if not self.over:
            self._is_abandoned = True
        self.cancel()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield all events, `Finished` last; the turn waits for this reader. Leaving early cancels the turn.

        Raises:
            ProviderError, LimitReached, ConversationBusy: as `result`, behind the last event.
        """
        try:
            async with aclosing(self.log.events()) as events:
                async for position, event in events:
                    self.log.mark_read(position)
                    yield event
        finally:
            self.log.release()
            await self.stopped()

    async def result(self) -> Turn:
        """Wait for the end, and return the turn.

        Raises:
            ProviderError: the model could not be reached or refused; its `messages` are what the turn had added.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
            OutputError: it ended without an answer of its ``output_type``.
            ConversationBusy: it was abandoned: another program resumes it.
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
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - `result` raises it where somebody waits for it
            self._error = self._error or error
        finally:
            self._end()

    async def _run(self) -> None:
        reason, closing = await self._carry_out()
        last = self.recorder.settle(closing) if closing else []
        for event in last:
            self.recorder.record(event)
        if isinstance(self._error, ProviderError):
            self._error.messages = self.recorder.turn(reason).messages
        self.ending = self._build_result(reason)
        with anyio.CancelScope(shield=True):
            for observer in self.observers:
                await observer.on_ending(self)
        for event in last:
            self.log.append(event)
        if self._error is None:
            self._finish(reason, self.ending)

    async def _carry_out(self) -> tuple[StopReason, str]:
        """Return why the turn stopped, and the words for whatever is still open; empty where nothing is."""
        reason = StopReason.CANCELLED
        try:
            with self._scope:
                reason = await self._work(self)
        except ProviderError as error:
            self._error = error
            return reason, "the model broke off"
        except Exception as error:  # noqa: BLE001 - what was done until then counts
            self._error = error
            return reason, "the turn broke off"
        return reason, reason.sentence if reason is StopReason.CANCELLED else ""

    def _build_result(self, reason: StopReason) -> Turn:
        turn = self.recorder.turn(reason)
        if self.replacement is not None:
            notes = dict.fromkeys((*self.replacement.notes, *turn.notes))
            turn = replace(self.replacement, notes=tuple(notes))
            if turn.output is not self.recorder.output:
                self.recorder.output_errors = () if turn.output is None else None
        return turn

    def _finish(self, reason: StopReason, turn: Turn) -> None:
        if self._is_abandoned:
            self._error = ConversationBusy(
                self.conversation_id, "this program is being stopped: another one goes on with the turn"
            )
        elif reason.is_limit and self._raise_at_limits:
            self._error = LimitReached(reason.sentence, turn)
        elif self._require_output and (errors := self.recorder.output_errors) is not None and not reason.is_callers:
            self._error = OutputError(reason.sentence, turn, errors)
        else:
            self.log.append(Finished(turn))
            self._turn = turn

    def _end(self) -> None:
        if self._turn is None and self._error is None:
            self._error = DialError("the client was closed while the turn was running")
        self._done.set()
        self.log.close(self._error)
        observers, self.observers = self.observers, ()  # a turn that is kept for its events keeps nothing else
        for observer in observers:
            observer.on_ended(self)

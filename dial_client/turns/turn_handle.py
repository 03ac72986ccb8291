"""The handle of a running turn (its events, its result, its cancellation), and the running turns of a client."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import Any, Generic
from weakref import WeakSet

import anyio
import anyio.lowlevel

from dial_client.hooks.audit.entries import Origin
from dial_client.hooks.call_context import Spend
from dial_client.hooks.owners import act_for
from dial_client.messages.errors import (
    ConversationBusy,
    DialError,
    LimitReached,
    OutputError,
    ProviderError,
    RequestRefused,
)
from dial_client.messages.events import Event, Finished, MessageCompleted, ServerChanged
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, PendingApproval, Role
from dial_client.messages.turn_result import OutputT_co, Turn
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.status import ServerStatus
from dial_client.tools.agent_progress import AgentProgress
from dial_client.tools.background_calls import BackgroundCall, BackgroundCalls
from dial_client.turns.event_log import MAX_UNREAD, EventLog
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

# Maximum characters of the reason of a failure in the log.
_MAX_REASON = 500
# Runs a turn, and returns why it ended.
TurnWork = Callable[["TurnHandle"], Awaitable[StopReason]]


class TurnObserver:
    """Is called by a running turn, whether or not its events are read. A subclass overrides the methods it needs."""

    async def run_beside(self, turn: TurnHandle) -> None:
        """Run in a separate task from the start of the turn. It must return when the turn has ended."""

    async def on_beginning(self, turn: TurnHandle) -> None:
        """Let the turn wait until it may begin. Its time limits have not begun; an error ends the turn."""

    async def on_message(self, turn: TurnHandle) -> None:
        """Store the content of `TurnHandle.recorder`. The turn waits for this method, and an error ends the turn."""

    async def on_held_call(self, turn: TurnHandle) -> None:
        """Store the calls of `TurnRecorder.held_calls`, and which of them have not run. As for `on_message`."""

    def on_steering(self, turn: TurnHandle) -> None:
        """Note that `TurnHandle.unsent` has another message. Must not raise."""

    async def on_ending(self, turn: TurnHandle) -> None:
        """Store the end of the turn. It adds no more messages, and waits for this method before `Finished`."""

    def on_ended(self, turn: TurnHandle) -> None:
        """Release the turn: its result is available, and its log is closed. Must not raise."""


@dataclass(eq=False, repr=False)
class TurnHandle(Generic[OutputT_co]):
    """One turn, run in a task of the client; returned by `DialClient.start` and `ConversationManager.start`.

    Await `result` for the `Turn`, read its events from ``log.events(after=position)``, and call `cancel` from any task
    to stop the turn. `events` is for a single reader that the turn waits for.

    Args:
        work: Runs the turn.
        log: Receives the events of the turn.
        observers: The observers of the turn, called in this order.
        question: The messages with which the turn begins.
        waiting: The calls at the end of the question that this turn makes (`TurnRecorder`).
        spend: Receives the usage of each request for the turn whose function runs this turn; None if there is none.
        origin: The ids of the turn and its conversation; by default a new turn without a conversation.
        raise_at_limits: Whether a limit that ends the turn is an error.
        require_output: Whether an end without a typed answer is an error.
        background_calls: The calls in the background of the conversation; by default of the turn alone.
        agents: What is stored of the agents of the turn; by default nothing.
        is_resumed: Whether the turn continues one that was interrupted.
    """

    _work: TurnWork
    log: EventLog
    """The events of the turn, for any number of readers."""
    observers: Sequence[TurnObserver] = ()
    """The observers of the turn; empty once it has ended."""
    _: KW_ONLY
    question: InitVar[tuple[Message, ...]] = ()
    waiting: InitVar[tuple[PendingApproval, ...]] = ()
    spend: InitVar[Spend | None] = None
    origin: Origin = field(default_factory=lambda: Origin(turn=secrets.token_hex(16)))
    """The ids of the turn and its conversation, for the audit log."""
    raise_at_limits: bool = False
    require_output: bool = False
    background_calls: BackgroundCalls = field(default_factory=BackgroundCalls)
    """The calls in the background of the conversation, or of the turn alone."""
    agents: AgentProgress = field(default_factory=AgentProgress)
    """The agents that the turn calls: what is stored of them, and how it is stored."""
    is_resumed: bool = False
    """Whether the turn continues one that was interrupted."""
    on_event: Callable[[Event], Awaitable[None]] | None = field(default=None, init=False)
    """Receives each event before the turn goes on, so that what follows from the event comes later; an error ends the
    turn. None if nobody does."""
    recorder: TurnRecorder = field(init=False)
    replacement: Turn[Any] | None = field(default=None, init=False)
    """A middleware's result, which replaces the recorded result; None if there is none."""
    is_abandoned: bool = field(default=False, init=False)
    """Whether the turn was left for another process to resume."""
    is_awaited: bool = field(default=False, init=False)
    """Whether somebody has stopped the turn and waits for its end, which must not take long."""
    is_stored: bool | None = field(default=None, init=False)
    """Whether the observers have stored the end of the turn; None until then."""
    ending: Turn[Any] | None = field(default=None, init=False)
    """The result of the turn, set once it adds no more messages."""
    failure: Exception | None = field(default=None, init=False)
    """The error that ended the turn; None if there is none."""
    _turn: Turn[OutputT_co] | None = field(default=None, init=False)
    _unsent: list[Message] = field(default_factory=list, init=False)
    has_ended: bool = field(default=False, init=False)
    """Whether the turn has ended."""
    # Set when the turn has ended; None if nobody waits, because an event takes a hundredth of a silent turn's memory.
    _ended: anyio.Event | None = field(default=None, init=False)
    _end_callbacks: tuple[Callable[[TurnHandle[Any]], None], ...] = field(default=(), init=False)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope, init=False)

    def __post_init__(
        self, question: tuple[Message, ...], waiting: tuple[PendingApproval, ...], spend: Spend | None
    ) -> None:
        self.recorder = TurnRecorder(question, waiting, spend)

    @property
    def id(self) -> str:
        """The turn's id, unique among all turns."""
        return self.origin.turn

    @property
    def conversation_id(self) -> str:
        """The id of the turn's conversation; empty if it has none."""
        return self.origin.conversation

    @property
    def owner(self) -> str:
        """The person that the turn is for; empty if the program does not name one."""
        return self.origin.owner

    @property
    def background(self) -> tuple[BackgroundCall[Any], ...]:
        """The calls in the background that run, and those whose result the model has not got."""
        return self.background_calls.calls

    @property
    def is_cancelled(self) -> bool:
        """Whether the turn was cancelled; it has not ended yet while its end is stored."""
        return self._scope.cancel_called

    def call_when_ended(self, callback: Callable[[TurnHandle[Any]], None]) -> None:
        """Call `callback` once the turn has ended, or now if it has. It must not raise, and costs no task."""
        if self.has_ended:
            callback(self)
        else:
            self._end_callbacks = (*self._end_callbacks, callback)

    async def emit(self, event: Event) -> None:
        """Record and log an event; wait while the paced reader has too many unread events."""
        self.recorder.record(event)
        if self.observers and isinstance(event, MessageCompleted):
            with anyio.CancelScope(shield=True):
                for observer in self.observers:
                    await observer.on_message(self)
        # Every recorded event is logged, so that recorder and log agree even if the turn is cancelled.
        self.log.append(event)
        if self.on_event is not None:
            async with self._ended_by_errors():
                await self.on_event(event)
        if self.log.unread >= MAX_UNREAD:
            await self.log.wait_for_room()
        if isinstance(event, MessageCompleted) and event.message.tool_calls:
            await anyio.lowlevel.checkpoint_if_cancelled()  # while the calls were stored: none of them begins

    async def hold_call(self, pending: PendingApproval) -> None:
        """Record that a call waits for approval, and let the observers store that it has not run."""
        self.recorder.held[pending.waiting_id] = pending
        await self._store_held_calls()

    async def release_call(self, call_id: str) -> None:
        """Let the observers store that a held call may have run, before it runs; does nothing for other calls."""
        if self.recorder.held.get(call_id) is not None:
            self.recorder.held[call_id] = None
            await self._store_held_calls()

    async def _store_held_calls(self) -> None:
        async with self._ended_by_errors():
            with anyio.CancelScope(shield=True):
                for observer in self.observers:
                    await observer.on_held_call(self)

    @asynccontextmanager
    async def _ended_by_errors(self) -> AsyncIterator[None]:
        """End the turn by an error of the context: the calls' task group would make another error of it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - `result` raises it
            # No call must run that is not stored: after a crash it would be made again.
            self.failure = self.failure or error
            self._scope.cancel()
            await anyio.lowlevel.checkpoint()

    def announce(self, event: Event) -> None:
        """Log an event from outside the turn, unless too many events are unread."""
        if self.log.unread < MAX_UNREAD:
            self.log.append(event)

    def steer(self, message: str | Message) -> bool:
        """Send a message of the user to the running turn, and return True; return False if the turn has ended.

        The model gets the message with the results of the next tool calls, after `MessageCompleted`; from then on it is
        part of the conversation (`Message.steers`). If the turn ends before, `take_unsent` returns the message.

        Raises:
            TypeError: The message is neither a text nor a message of the user.
        """
        sent: Any = Message.user(message) if isinstance(message, str) else message
        if not isinstance(sent, Message) or sent.role is not Role.USER:
            raise TypeError("a turn is steered by a text or by a Message of the user")
        if self.ending is None and not self.has_ended:
            self._unsent.append(replace(sent, steers=True))
            for observer in self.observers:
                observer.on_steering(self)
            return True
        return False

    @property
    def unsent(self) -> tuple[Message, ...]:
        """The messages of `steer` that the model has not got yet."""
        return tuple(self._unsent)

    def take_unsent(self) -> tuple[Message, ...]:
        """Return the messages of `steer` that the model has not got, and forget them.

        After the end of the turn, send them as the next question. Before, they are withdrawn.
        """
        unsent = tuple(replace(message, steers=False) for message in self._unsent)
        self._unsent.clear()
        return unsent

    def cancel(self) -> None:
        """Cancel the turn; its `Turn` has the messages and calls up to then. Does nothing if the turn has ended."""
        if not self.has_ended:
            self._scope.cancel()

    def abandon(self) -> None:
        """Cancel the turn, and leave it in the store as a killed process would: another process may resume it.

        Only for turns of conversations. `events` and `result` raise `ConversationBusy`. Does nothing if the turn has
        ended.
        """
        if not self.has_ended:
            self.is_abandoned = self.background_calls.is_left = True
        self.cancel()

    async def events(self) -> AsyncGenerator[Event[OutputT_co], None]:
        """Yield all events, `Finished` last; the turn waits for this reader. Stopping early cancels the turn.

        Raises:
            DialError: The error of `result`, after the last event.
        """
        try:
            async with aclosing(self.log.events()) as events:
                async for position, event in events:
                    self.log.mark_read(position)
                    typed: Any = event  # the log is of turns with any type of output
                    yield typed
        finally:
            self.log.release()
            await self.stop()

    async def result(self) -> Turn[OutputT_co]:
        """Wait until the turn has ended, and return it.

        Raises:
            ProviderError: The model could not be reached, or refused the request; the error's `messages` are the
                question and those that the turn had added.
            RequestRefused: A middleware refused a request to the model, or its reply.
            MiddlewareError: A middleware failed.
            LimitReached: A limit was met and ``on_limit="raise"`` was set.
            OutputError: The turn ended without an answer of its ``output_type``.
            ConversationBusy: The turn was abandoned: another process resumes it.
            DialError: The client was closed while the turn was running.
        """
        await self._wait()
        if self.failure is not None:
            raise self.failure
        assert self._turn is not None
        return self._turn

    async def stop(self) -> None:
        """Cancel the turn, and wait until it has closed its connections and cancelled its calls at their servers."""
        if self.has_ended:
            return
        self.is_awaited = True
        self.cancel()
        with anyio.CancelScope(shield=True):
            await self._wait()

    async def _wait(self) -> None:
        self._ended = self._ended or anyio.Event()
        if self.has_ended:
            self._ended.set()
        await self._ended.wait()

    async def run(self) -> None:
        """Run the turn; this is the body of its task. `result` raises any error."""
        reason, open_calls_end = StopReason.CANCELLED, ""
        try:
            try:
                with self._scope, act_for(self.owner):
                    for observer in self.observers:
                        await observer.on_beginning(self)
                    work = self._work(self)
                    del self._work  # what it has captured would take 1 KB as long as the turn runs
                    reason = await work
                if reason is StopReason.CANCELLED:
                    open_calls_end = reason.sentence if self.failure is None else "the turn broke off"
            except Exception as error:  # noqa: BLE001 - the turn keeps its messages and calls up to the error
                self.failure = error
                if isinstance(error, RequestRefused):
                    self.recorder.drop_reply()
                broken = "model" if isinstance(error, ProviderError) else "turn"
                open_calls_end = f"the {broken} broke off"
            await self._end_background()
            await self._complete(reason, self.recorder.settle(open_calls_end) if open_calls_end else [])
        except Exception as error:  # noqa: BLE001 - an observer failed
            self.failure = self.failure or error
        finally:
            self._end()

    async def _end_background(self) -> None:
        """Stop the calls in the background if the turn was cancelled, or if no later turn can get their results."""
        calls = self.background_calls
        if self.is_cancelled or not calls.is_kept:
            for name in await calls.stop_calls(self.id if calls.is_kept else None):
                self.recorder.note(f"the call of {name!r} was stopped in the background when the turn ended")

    async def _complete(self, reason: StopReason, last_events: Sequence[Event]) -> None:
        """Record the last events, let the observers store the end of the turn, and log the events."""
        for event in last_events:
            self.recorder.record(event)
        if isinstance(self.failure, ProviderError | RequestRefused):
            self.failure.messages = self.recorder.build_turn(reason).messages
        self.ending = turn = self.recorder.build_turn(reason)
        if self.replacement is not None:
            notes = dict.fromkeys((*self.replacement.notes, *turn.notes))
            self.ending = replace(self.replacement, notes=tuple(notes))
            if self.ending.output is not self.recorder.output:
                self.recorder.output_errors = () if self.ending.output is None else None
        with anyio.CancelScope(shield=True):
            self.is_stored = False
            for observer in self.observers:
                await observer.on_ending(self)
            self.is_stored = True
        for event in last_events:
            self.log.append(event)
        if self.failure is None:
            self._finish(reason, self.ending)

    def _finish(self, reason: StopReason, turn: Turn[Any]) -> None:
        if self.is_abandoned:
            self.failure = ConversationBusy(
                self.conversation_id, "this process is shutting down: another process resumes the turn"
            )
        elif reason.is_limit and self.raise_at_limits:
            self.failure = LimitReached(reason.sentence, turn)
        elif self.require_output and (errors := self.recorder.output_errors) is not None and not reason.is_callers:
            self.failure = OutputError(reason.sentence, turn, errors)
        else:
            self.log.append(Finished(turn))
            self._turn = turn

    def _end(self) -> None:
        self._log_failure()
        if self._turn is None and self.failure is None:
            self.failure = DialError("the client was closed while the turn was running")
        self.has_ended = True
        if self._ended is not None:
            self._ended.set()
        self.log.close(self.failure)
        observers, self.observers = self.observers, ()  # a turn kept for its events must not keep its observers
        for observer in observers:
            observer.on_ended(self)
        callbacks, self._end_callbacks = self._end_callbacks, ()
        for callback in callbacks:
            callback(self)

    def _log_failure(self) -> None:
        """Log why the turn failed. A limit, and a turn that another process resumes, are no failures."""
        error = self.failure
        if error is None or self.is_abandoned or isinstance(error, LimitReached):
            return
        fields = {"turn": self.id, "conversation": self.conversation_id, "error": type(error).__name__}
        if isinstance(error, DialError):
            log.warning("turn_failed", **fields, reason=to_one_line(str(error), _MAX_REASON))
        else:  # a defect, here or in the program
            log.warning("turn_failed", **fields, trace="".join(traceback.format_exception(error)))


class TurnTasks:
    """Starts turns, and keeps track of the running turns."""

    def __init__(self) -> None:
        # The running turns, which their tasks keep alive, and ended turns that are still in use.
        self._turns: WeakSet[TurnHandle] = WeakSet()

    def start(self, turn: TurnHandle, tasks: BackgroundTasks) -> TurnHandle:
        """Start a turn and its observers, each in a background task; return the turn."""
        self._turns.add(turn)
        turn.background_calls.tasks = tasks
        tasks.start_soon(turn.run)
        for observer in turn.observers:
            if type(observer).run_beside is not TurnObserver.run_beside:  # a task is not for free
                tasks.start_soon(observer.run_beside, turn)
        return turn

    @property
    def are_running(self) -> bool:
        """Whether a turn is running."""
        return not all(turn.has_ended for turn in self._turns)

    def announce(self, server: str, status: ServerStatus) -> None:
        """Report the changed status of a server to every running turn."""
        for turn in tuple(self._turns):
            turn.announce(ServerChanged(server, status.state.value))

    async def aclose(self) -> None:
        """Cancel all turns, and wait until they have ended."""
        for turn in tuple(self._turns):
            await turn.stop()

"""The running turns of this process: limits their number and ends them on shutdown; the name of the served model.

A turn that a limit keeps from running waits for a place, as a turn: it is stored, its client reads its events, it can
be stopped at every process, and if it is durable it survives this process. As many may wait as may run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import anyio
from anyio import CapacityLimiter

from dial_client.messages.events import StatusChanged
from dial_client.serve.http_messages import HttpError, TooManyTurns
from dial_client.serve.turns.owner_counts import SharedPlaces
from dial_client.turns.status_text import QUEUED
from dial_client.turns.turn_handle import TurnHandle, TurnObserver


@dataclass(slots=True)
class ServedModel:
    """The name of the model for clients of the API. The name changes when the configuration changes."""

    name: str


class WakeSignal:
    """Wakes the task that waits for the signal. A signal without a waiting task ends the next wait at once."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def send(self) -> None:
        """Wake the task."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a signal, at most `seconds`."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


MAX_TURNS = 64
# The most seconds that a turn waits for a place; one that is resumed waits without an end, because it is accepted.
MAX_WAIT = 60.0


def _ignore(turn: TurnHandle) -> None:
    pass


def build_stopping_error() -> HttpError:
    """Return the error of a request that came too late; another process, or the next one, accepts it."""
    headers = {"retry-after": "5"}
    return HttpError(503, "the server is shutting down", "stopping", kind="server_error", headers=headers)


class TurnRegistry(TurnObserver):
    """Holds the running turns, whose observer it is: they wait for a place when they begin.

    Args:
        max_turns: Maximum number of running turns; as many may wait, and further turns are rejected.
        hand_over: On shutdown, leave the turns of conversations to other processes instead of cancelling them.
        max_wait: The most seconds that a turn waits for a place.
    """

    def __init__(self, max_turns: int = MAX_TURNS, *, hand_over: bool = False, max_wait: float = MAX_WAIT) -> None:
        self.max_turns = max_turns
        self.find_limit: Callable[[str], int | None] = lambda _: None
        """Returns the most turns of a person at once; None for no limit."""
        self.shared: SharedPlaces | None = None
        """The places of persons at all processes; None for one process."""
        self._max_wait = max_wait
        self._places = CapacityLimiter(max_turns)
        # The places of each person at this process, and the turns that have one of all processes, too.
        self._owned: dict[str, CapacityLimiter] = {}
        self._sharing: set[TurnHandle] = set()
        self._queued: set[TurnHandle] = set()
        self.on_added: Callable[[TurnHandle], None] = _ignore
        """Called with each turn that is counted."""
        self._hand_over = hand_over
        self._running: set[TurnHandle] = set()
        # The ids of turns, with the number of requests of each that wait for a person.
        self._waiting: Counter[str] = Counter()
        # The turns that are about to start, by person.
        self._starting = Counter[str]()
        self.is_closed = False
        """True if no further turn may start."""
        self._is_ended = False
        self.ended = anyio.Event()
        """Set when the turns were ended, and the service stops."""
        # Requests that are no turns, and have the time to finish that turns have.
        self._held = 0
        self._released = WakeSignal()

    @property
    def conversation_turns(self) -> tuple[TurnHandle, ...]:
        """The running turns that belong to conversations."""
        return tuple(turn for turn in self._prune() if turn.conversation_id)

    def count(self) -> tuple[int, int, int]:
        """Return the numbers of the turns that run, of those among them that wait for a person, and of the queue."""
        running = self._prune()
        return len(running) - len(self._queued), self._count_waiting(), len(self._queued)

    def _count_waiting(self) -> int:
        return sum(turn.id in self._waiting for turn in self._prune())

    @contextmanager
    def reserve(self, owner: str) -> Iterator[None]:
        """Reserve a place for a turn of a person while it starts; `add` then counts the turn until it ends.

        Raises:
            HttpError: The server shuts down, or too many turns are running and waiting.
        """
        if self.is_closed:
            raise build_stopping_error()
        running, limit = self._prune(), self.find_limit(owner)
        free = 2 * self.max_turns + min(self._count_waiting(), self.max_turns)
        if len(running) + self._starting.total() >= free:
            raise TooManyTurns(f"{self.max_turns} turns are running, and as many wait")
        if limit is not None and sum(turn.owner == owner for turn in running) + self._starting[owner] >= 2 * limit:
            raise TooManyTurns(f"{limit} of your turns are running, and as many wait", "turns_limit_exceeded")
        self._starting[owner] += 1
        try:
            yield
        finally:
            self._starting[owner] -= 1
            self._starting = +self._starting

    async def on_beginning(self, turn: TurnHandle) -> None:
        """Wait for a place of the turn's person, then for one of this process: who came first goes on first.

        Raises:
            TooManyTurns: There was none for too long.
        """
        limit = self.find_limit(turn.owner)
        self._queued.add(turn)
        try:
            with anyio.fail_after(math.inf if turn.is_resumed else self._max_wait):
                if limit is not None:
                    await self._take_owned(turn, limit)
                await _acquire(self._places, turn)
        except TimeoutError:
            raise TooManyTurns(f"this turn has waited {self._max_wait:g} s for other turns to end") from None
        finally:
            self._queued.discard(turn)

    async def _take_owned(self, turn: TurnHandle, limit: int) -> None:
        places = self._owned.setdefault(turn.owner, CapacityLimiter(limit))
        places.total_tokens = limit
        await _acquire(places, turn)
        if self.shared is not None:
            await self.shared.take(turn.owner, limit, lambda: _announce_wait(turn))
            self._sharing.add(turn)

    def on_ended(self, turn: TurnHandle) -> None:
        """Release the places of a turn for those that wait."""
        owned = self._owned.get(turn.owner)
        for places in (self._places, owned):
            if places is not None:
                with suppress(RuntimeError):  # the turn has ended before it had one
                    places.release_on_behalf_of(turn)
        if owned is not None and not owned.borrowed_tokens:
            del self._owned[turn.owner]
        if turn in self._sharing and self.shared is not None:
            self._sharing.discard(turn)
            self.shared.release(turn.owner)

    @contextmanager
    def wait_for_person(self, turns: Iterable[str]) -> Iterator[None]:
        """Within the context, these turns, given by their ids, wait for a person and take no place."""
        ids = tuple(turns)
        self._set_waiting(self._waiting + Counter(ids))
        try:
            yield
        finally:
            self._set_waiting(self._waiting - Counter(ids))

    def _set_waiting(self, waiting: Counter[str]) -> None:
        self._waiting = waiting
        # Turns that wait for a person, perhaps for a day, must not keep others out; but their number is limited too.
        self._places.total_tokens = self.max_turns + min(self._count_waiting(), self.max_turns)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count a request that is no turn: on shutdown it has the same time to finish.

        Raises:
            HttpError: The server shuts down.
        """
        if self.is_closed:
            raise build_stopping_error()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._released.send()

    def add(self, turn: TurnHandle) -> None:
        """Count a turn until it ends."""
        self._running.add(turn)
        self.on_added(turn)
        if self._is_ended:  # the turn was starting while the others were ended
            self._stop(turn)

    async def end(self, grace: float) -> None:
        """Wait up to `grace` seconds for running turns, cancel or hand over the rest, and wait until they stop."""
        self.is_closed = True
        running = self._prune()
        with anyio.move_on_after(grace):
            for turn in running:
                with suppress(Exception):  # the client of the turn gets the error
                    await turn.result()
            while self._held:
                await self._released.wait(grace)
        self._is_ended = True
        self.ended.set()
        for turn in running:
            self._stop(turn)
        for turn in running:
            await turn.stop()

    def _stop(self, turn: TurnHandle) -> None:
        if self._hand_over and turn.conversation_id:
            turn.abandon()
        else:
            turn.cancel()

    def _prune(self) -> tuple[TurnHandle, ...]:
        """Forget the turns that have ended, and return those that are running."""
        self._running = {turn for turn in self._running if not turn.has_ended}
        return tuple(self._running)


async def _acquire(places: CapacityLimiter, turn: TurnHandle) -> None:
    try:
        places.acquire_on_behalf_of_nowait(turn)
    except anyio.WouldBlock:
        _announce_wait(turn)
        await places.acquire_on_behalf_of(turn)


def _announce_wait(turn: TurnHandle) -> None:
    turn.announce(StatusChanged(QUEUED))

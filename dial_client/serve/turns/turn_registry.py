"""The running turns of this process: limits their number and ends them on shutdown; the name of the served model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import anyio

from dial_client.serve.http_messages import HttpError
from dial_client.turns.turn_handle import TurnHandle


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


def _ignore(turn: TurnHandle) -> None:
    pass


def build_stopping_error() -> HttpError:
    """Return the error of a request that came too late; another process, or the next one, accepts it."""
    headers = {"retry-after": "5"}
    return HttpError(503, "the server is shutting down", "stopping", kind="server_error", headers=headers)


class TurnRegistry:
    """Holds the running turns.

    Args:
        max_turns: Maximum number of running turns; further turns are rejected.
        hand_over: On shutdown, leave the turns of conversations to other processes instead of cancelling them.
    """

    def __init__(self, max_turns: int = MAX_TURNS, *, hand_over: bool = False) -> None:
        self.max_turns = max_turns
        self.guard: Callable[[], AbstractContextManager[None]] = nullcontext
        """Within this context a turn starts; an `HttpError` refuses the turn."""
        self.on_added: Callable[[TurnHandle], None] = _ignore
        """Called with each turn that is counted."""
        self._hand_over = hand_over
        self._running: set[TurnHandle] = set()
        # The ids of turns, with the number of requests of each that wait for a person.
        self._waiting: Counter[str] = Counter()
        self._starting = 0
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

    def count(self) -> tuple[int, int]:
        """Return the numbers of the running turns, and of those among them that wait for a person."""
        running = self._prune()
        return len(running), sum(turn.id in self._waiting for turn in running)

    def count_owned(self, owner: str) -> int:
        """Return the number of the running turns of an owner."""
        return sum(turn.owner == owner for turn in self._prune())

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a place for a turn while it starts; `add` then counts the turn until it ends.

        Raises:
            HttpError: The server shuts down, or too many turns are running.
        """
        if self.is_closed:
            raise build_stopping_error()
        running = self._prune()
        # Turns that wait for a person, perhaps for a day, must not keep others out; but their number is limited too.
        waiting = min(sum(turn.id in self._waiting for turn in running), self.max_turns)
        if len(running) - waiting + self._starting >= self.max_turns:
            message = f"{self.max_turns} turns are running: try again later"
            raise HttpError(429, message, "too_many_turns", kind="rate_limit_error", headers={"retry-after": "2"})
        with self.guard():
            self._starting += 1
            try:
                yield
            finally:
                self._starting -= 1

    @contextmanager
    def wait_for_person(self, turns: Iterable[str]) -> Iterator[None]:
        """Within the context, these turns, given by their ids, wait for a person and take no place."""
        ids = tuple(turns)
        self._waiting.update(ids)
        try:
            yield
        finally:
            self._waiting.subtract(ids)
            self._waiting = +self._waiting

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

"""The turns of a client that are under way, each in a background task."""

from __future__ import annotations

from collections.abc import Iterable

from dial_client.background_tasks import BackgroundTasks
from dial_client.events import Event
from dial_client.turns.turn_handle import TurnHandle, TurnObserver


class TurnTasks:
    """Runs turns, and knows which are under way."""

    def __init__(self) -> None:
        self._turns: set[TurnHandle] = set()

    def start(self, turn: TurnHandle, observers: Iterable[TurnObserver], tasks: BackgroundTasks) -> None:
        """Start a turn, and its observers beside it."""
        self._turns.add(turn)
        tasks.start_soon(self._run, turn)
        for observer in observers:
            tasks.start_soon(observer.run_beside, turn)

    def announce(self, event: Event) -> None:
        """Report an event that comes from outside to every turn."""
        for turn in tuple(self._turns):
            turn.announce(event)

    async def aclose(self) -> None:
        """Cancel all turns, and wait for their ends."""
        for turn in tuple(self._turns):
            await turn.stopped()

    async def _run(self, turn: TurnHandle) -> None:
        try:
            await turn.run()
        finally:
            self._turns.discard(turn)

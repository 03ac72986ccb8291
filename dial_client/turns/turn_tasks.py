"""The running turns of a client, each in a background task."""

from __future__ import annotations

from dial_client.messages.events import ServerChanged
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.status import ServerStatus
from dial_client.turns.turn_handle import TurnHandle


class TurnTasks:
    """Starts turns, and keeps track of the running turns."""

    def __init__(self) -> None:
        self._turns: set[TurnHandle] = set()

    def start(self, turn: TurnHandle, tasks: BackgroundTasks) -> None:
        """Start a turn and its observers, each in a background task."""
        self._turns.add(turn)
        tasks.start_soon(self._run, turn)
        for observer in turn.observers:
            tasks.start_soon(observer.run_beside, turn)

    @property
    def are_running(self) -> bool:
        """Whether a turn is running."""
        return bool(self._turns)

    def announce(self, server: str, status: ServerStatus) -> None:
        """Report the changed status of a server to every running turn."""
        for turn in tuple(self._turns):
            turn.announce(ServerChanged(server, status.state.value))

    async def aclose(self) -> None:
        """Cancel all turns, and wait until they have ended."""
        for turn in tuple(self._turns):
            await turn.stop()

    async def _run(self, turn: TurnHandle) -> None:
        try:
            await turn.run()
        finally:
            self._turns.discard(turn)

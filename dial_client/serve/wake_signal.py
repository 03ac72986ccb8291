"""A signal that wakes one task."""

from __future__ import annotations

import anyio


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

"""A lock that takes little memory as long as no task waits for it."""

from __future__ import annotations

from types import TracebackType

import anyio


class LightLock:
    """A lock for one task at a time, which also another task may release.

    The locks of anyio have room for 64 waiting tasks from the start, which takes 0.8 KB for each of them in each turn.
    This one makes a semaphore when the first task has to wait. The tasks get the lock in the order in which they asked.
    """

    __slots__ = ("_handed_on", "_is_taken")

    def __init__(self) -> None:
        self._is_taken = False
        self._handed_on: anyio.Semaphore | None = None

    async def acquire(self) -> None:
        """Wait until the lock is free, and take it. A free one is taken at once, also in a cancelled scope."""
        if self._is_taken:
            self._handed_on = self._handed_on or anyio.Semaphore(0)
            await self._handed_on.acquire()
        self._is_taken = True

    def release(self) -> None:
        """Hand the lock on to the task that has waited longest, or free it."""
        if self._handed_on is not None and self._handed_on.statistics().tasks_waiting:
            self._handed_on.release()
        else:
            self._is_taken = False

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

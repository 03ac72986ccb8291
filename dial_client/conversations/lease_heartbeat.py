"""Looks after the leases of all running turns of a program in one task.

A task, a timer and an event of its own would be a tenth of the memory that a silent turn takes.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context, copy_context
from typing import Protocol

import anyio

from dial_client.runtime.background_tasks import BackgroundTasks

# Seconds between two checks for unfinished results and text to store.
HEARTBEAT_INTERVAL = 1.0


class Beat(Protocol):
    """What is done for one turn at each heartbeat."""

    @property
    def is_running(self) -> bool:
        """False once the turn needs no heartbeat any more."""

    @property
    def is_due(self) -> bool:
        """True if there is anything to store now: most heartbeats of a silent turn have nothing to do."""

    async def renew(self) -> None:
        """Store it, in a task of its own: a database that hangs must not delay the leases of other turns."""


class LeaseHeartbeat:
    """Calls each `Beat` about once a second, the next time a second after the call has ended.

    Args:
        lease: Seconds after which a lease expires that is not renewed.
    """

    def __init__(self, lease: float) -> None:
        self._interval = min(HEARTBEAT_INTERVAL, lease / 3)
        # Each beat with its time and the context variables of its turn, the earliest first: the interval is the same
        # for all of them. The context has the id of the request, which belongs in what is logged.
        self._waiting: deque[tuple[float, Beat, Context]] = deque()
        # The tasks of which one runs the heartbeat; None while no turn runs.
        self._tasks: BackgroundTasks | None = None

    def add(self, beat: Beat, tasks: BackgroundTasks) -> None:
        """Call a beat until its turn needs no heartbeat, in the context variables of the caller."""
        self._schedule(beat, copy_context(), tasks)

    def _schedule(self, beat: Beat, context: Context, tasks: BackgroundTasks) -> None:
        if self._tasks is not tasks:
            # Those of a client that was closed, perhaps with its event loop, are gone with their turns.
            self._waiting.clear()
            self._tasks = tasks
            # Without the variables of the turn that happens to be the first: the task outlives that turn.
            Context().run(tasks.start_soon, self._run, tasks)
        self._waiting.append((anyio.current_time() + self._interval, beat, context))

    async def _run(self, tasks: BackgroundTasks) -> None:
        try:
            while self._waiting and self._tasks is tasks:
                due, beat, context = self._waiting.popleft()
                await anyio.sleep_until(due)
                if not beat.is_running:
                    continue
                if beat.is_due:
                    context.run(tasks.start_soon, self._renew, beat, context, tasks)
                else:
                    self._schedule(beat, context, tasks)
        finally:
            if self._tasks is tasks:
                self._tasks = None

    async def _renew(self, beat: Beat, context: Context, tasks: BackgroundTasks) -> None:
        try:
            await beat.renew()
        finally:
            if beat.is_running and not tasks.is_closed:
                self._schedule(beat, context, tasks)

"""Where tasks live that outlast the call that started them.

A task group belongs to the task that entered it, so a client that holds one could be left only from there. This one
lives in a task of its own: whoever opens it keeps no cancel scope, and anybody may close it.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from types import FunctionType, MethodType
from typing import TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from dial_client.logs import get_logger

log = get_logger(__name__)

Args = TypeVarTuple("Args")


class BackgroundTasks:
    """A task group with a task of its own. Made by `BackgroundTasks.open`, on asyncio and on trio."""

    def __init__(self) -> None:
        self._group: TaskGroup = anyio.create_task_group()
        self._opened = anyio.Event()
        self._closed = anyio.Event()
        self._host: object = None

    @classmethod
    async def open(cls) -> BackgroundTasks:
        """Start the task that hosts the others."""
        nursery = cls()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            import trio

            trio.lowlevel.spawn_system_task(nursery._run)
        else:
            # asyncio itself remembers a task only weakly.
            nursery._host = asyncio.create_task(nursery._run())
        with anyio.CancelScope(shield=True):
            await nursery._opened.wait()
        return nursery

    def start_soon(self, fn: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """Start a task with the caller's context variables. What it raises is logged and harms no other task.

        Raises:
            RuntimeError: the nursery is closed.
        """
        if self._closed.is_set():
            raise RuntimeError("the nursery is closed")
        self._group.start_soon(self._contained, fn, args)

    async def aclose(self) -> None:
        """Cancel what still runs and wait for its end. May be called twice, from any task but one of its own."""
        self._group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._closed.wait()

    async def _run(self) -> None:
        try:
            async with self._group:
                self._opened.set()
                await anyio.sleep_forever()
        finally:
            self._closed.set()

    async def _contained(self, fn: Callable[[*Args], Awaitable[object]], args: tuple[*Args]) -> None:
        try:
            await fn(*args)
        # The star: on trio an error may come in one group with a cancellation, which has to go on.
        except* Exception:  # noqa: BLE001 (whatever it is, the other tasks go on)
            name = fn.__qualname__ if isinstance(fn, FunctionType | MethodType) else repr(fn)
            log.warning("task_failed", task=name, trace=traceback.format_exc())

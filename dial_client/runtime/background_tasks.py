"""Background tasks, which outlive the call that started them.

A task group belongs to the task that entered it, and has to be left in that task. This group has a task of its own: it
may be opened and closed in any task, and the task that opens it enters no cancel scope.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from types import FunctionType, MethodType
from typing import TypeVarTuple

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

Args = TypeVarTuple("Args")


class BackgroundTasks:
    """A task group with a task of its own, on asyncio and on trio; created by `BackgroundTasks.open`."""

    def __init__(self) -> None:
        self._group: TaskGroup = anyio.create_task_group()
        self._opened = anyio.Event()
        self._closed = anyio.Event()
        self._host: object = None
        self.loop = current_token()
        """The event loop that runs the tasks."""

    @classmethod
    async def open(cls) -> BackgroundTasks:
        """Start the task that runs the group."""
        import asyncio

        tasks = cls()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            import trio

            trio.lowlevel.spawn_system_task(tasks._run)
        else:
            # asyncio itself remembers a task only weakly.
            tasks._host = asyncio.create_task(tasks._run())
        try:
            with anyio.CancelScope(shield=True):
                await tasks._opened.wait()
        except BaseException:  # asyncio's own `Task.cancel` passes the shield, and nobody has the tasks to close them
            tasks._group.cancel_scope.cancel()
            raise
        return tasks

    @property
    def is_closed(self) -> bool:
        """True if the tasks were closed, or have ended with their event loop."""
        return self._closed.is_set()

    def start_soon(self, fn: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """Start a task with the caller's context variables. An error is logged and ends no other task.

        Raises:
            RuntimeError: the background tasks are closed.
        """
        if self._closed.is_set():
            raise RuntimeError("the background tasks are closed")
        self._group.start_soon(self._contained, fn, args)

    async def aclose(self) -> None:
        """Cancel all tasks and wait for their end. May be called twice, and from any task but those of the group."""
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
        except* Exception:  # noqa: BLE001 (any error: the other tasks go on)
            name = fn.__qualname__ if isinstance(fn, FunctionType | MethodType) else repr(fn)
            log.warning("task_failed", task=name, trace=traceback.format_exc())

"""Background tasks, which continue after the call that started them.

A task group has to be entered and left in the same task. This group runs in a separate task, so any task may open and
close it, and the task that opens it does not enter a cancel scope.
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
    """A task group that runs in a separate task, on asyncio and on trio; created by `BackgroundTasks.open`."""

    def __init__(self) -> None:
        self._group: TaskGroup = anyio.create_task_group()
        self._opened = anyio.Event()
        self._closing = anyio.Event()
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
            # asyncio keeps only a weak reference to a task.
            tasks._host = asyncio.create_task(tasks._run())
        try:
            with anyio.CancelScope(shield=True):
                await tasks._opened.wait()
        except BaseException:  # `asyncio.Task.cancel` ignores the shield, and no caller could close the group later
            tasks._group.cancel_scope.cancel()
            raise
        return tasks

    @property
    def is_closed(self) -> bool:
        """Whether the tasks were closed, or have ended with their event loop."""
        return self._closed.is_set()

    def start_soon(self, fn: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """Start a task with the caller's context variables. An error in the task is logged; other tasks continue.

        Raises:
            RuntimeError: The background tasks are closed.
        """
        if self._closed.is_set():
            raise RuntimeError("the background tasks are closed")
        self._group.start_soon(self._run_and_log, fn, args)

    async def aclose(self, grace: float = 0.0) -> None:
        """Wait `grace` seconds until all tasks have ended, and cancel the others.

        May be called repeatedly, but not from a task of the group.
        """
        self._closing.set()
        with anyio.CancelScope(shield=True):
            if grace > 0:
                with anyio.move_on_after(grace):
                    await self._closed.wait()
            self._group.cancel_scope.cancel()
            await self._closed.wait()

    async def _run(self) -> None:
        try:
            async with self._group:
                self._opened.set()
                await self._closing.wait()
        finally:
            self._closed.set()

    async def _run_and_log(self, fn: Callable[[*Args], Awaitable[object]], args: tuple[*Args]) -> None:
        try:
            await fn(*args)
        # `except*`, because on trio a group may contain an error and a cancellation, which has to be raised again.
        except* Exception:  # noqa: BLE001 - the other tasks continue after any error
            name = fn.__qualname__ if isinstance(fn, FunctionType | MethodType) else repr(fn)
            log.warning("task_failed", task=name, trace=traceback.format_exc())

"""Batches requests: those that arrive while a transaction runs share the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio

from dial_client.messages.errors import DialError

T = TypeVar("T")


class BatchRequest(Generic[T]):
    """A request to the database, and its result."""

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    def finish(self, error: Exception | None = None) -> None:
        """Set the error, if there is one, and wake the waiting task."""
        self.error = error or self.error
        self.done.set()


R = TypeVar("R", bound=BatchRequest[Any])


class Batcher(Generic[R]):
    """Collects requests, and processes all waiting ones as one batch; only for asyncio.

    Args:
        process: Processes a batch in its order, and finishes each request; must not raise.
    """

    def __init__(self, process: Callable[[Sequence[R]], Awaitable[None]]) -> None:
        self._process = process
        self._waiting: list[R] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: R) -> None:
        """Add a request and wait until it is finished; a request is finished even if the caller is cancelled.

        Raises:
            DialError: The request failed.
        """
        self._waiting.append(request)
        if self._task is None or self._task.done():
            # In a separate task, so that the cancellation of one caller does not cancel other requests.
            self._task = asyncio.create_task(self._process_all())
        with anyio.CancelScope(shield=True):
            await request.done.wait()
        if request.error is not None:
            raise request.error

    async def aclose(self) -> None:
        """Wait until all requests are finished."""
        if self._task is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task])

    async def _process_all(self) -> None:
        batch: list[R] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._process(batch)
        finally:
            # If this task is cancelled with its event loop, every waiting request fails instead of waiting for ever.
            unprocessed, self._waiting = self._waiting, []
            for request in (*batch, *unprocessed):
                if not request.done.is_set():
                    request.finish(DialError("the program ended before the database answered"))

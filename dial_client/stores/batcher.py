"""Batches: requests that come while a transaction runs wait, and share the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio

from dial_client.errors import DialError

T = TypeVar("T")


class BatchRequest(Generic[T]):
    """A request to the database, and its result."""

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    def finish(self, error: Exception | None = None) -> None:
        """Set the error, if there is one, and wake the task that waits."""
        self.error = error or self.error
        self.done.set()


R = TypeVar("R", bound=BatchRequest[Any])


class Batcher(Generic[R]):
    """Collects requests and processes all that wait in one batch, under asyncio.

    Args:
        process: processes a batch in its order, and finishes each request; does not raise.
    """

    def __init__(self, process: Callable[[Sequence[R]], Awaitable[None]]) -> None:
        self._process = process
        self._waiting: list[R] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: R) -> None:
        """Wait until a request is finished. Once begun it is finished, even if the caller is cancelled meanwhile.

        Raises:
            DialError: the request failed.
        """
        self._waiting.append(request)
        if self._task is None or self._task.done():
            # A task of its own: a caller that is cancelled cancels no other request.
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
            # Cancelled with its event loop: no request waits for ever, and none is processed that was cancelled.
            left, self._waiting = self._waiting, []
            for request in (*batch, *left):
                if not request.done.is_set():
                    request.finish(DialError("the program ended before the database answered"))

"""Writes messages to a pipe whole and in order, although their senders may be cancelled.

What the pipe takes at once is written by the task that sends: a task between would delay each message. The rest is
written by a task of its own, because half a message would break the protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

# Messages that wait while the other side does not read.
MAX_WAITING = 16


class PipeWriter:
    """Writes to a pipe. While a message waits, the messages after it wait too.

    Args:
        write_now: Writes what the pipe takes without waiting, and returns the rest.
        write: Writes all, and waits while the other side does not read.
    """

    def __init__(
        self, write_now: Callable[[memoryview], memoryview], write: Callable[[memoryview], Awaitable[None]]
    ) -> None:
        self._write_now, self._write = write_now, write
        # The first one is being written, and stays here until it is: it may be half a message.
        self._waiting: deque[memoryview] = deque()
        self._changed = anyio.Event()
        self._is_closed = self._is_over = False

    async def send(self, data: bytes) -> bool:
        """Write a message, or let it wait; return True if it is written. A cancelled sender has sent it or nothing.

        Raises:
            anyio.ClosedResourceError: The writer is closed.
            anyio.BrokenResourceError: The other side is gone.
        """
        while len(self._waiting) >= MAX_WAITING and not (self._is_over or self._is_closed):
            await self._changed.wait()
        if self._is_closed:
            raise anyio.ClosedResourceError
        if self._is_over:
            raise anyio.BrokenResourceError
        rest = memoryview(data)
        if not self._waiting:
            try:  # noqa: SIM105 - runs for each message, and costs nothing
                rest = self._write_now(rest)
            except OSError:
                pass  # `run` meets the same error, and tells whoever watches the other side
        if rest:
            self._waiting.append(rest)
            self._notify()
        return not rest

    async def run(self, on_written: Callable[[], None] = lambda: None) -> None:
        """Write what has to wait until the writer is closed and nothing waits; `on_written` follows each message.

        Raises:
            OSError: As `write`; the writer is of no use any more.
        """
        try:
            while self._waiting or not self._is_closed:
                if not self._waiting:
                    await self._changed.wait()
                    continue
                await self._write(self._waiting[0])
                self._waiting.popleft()
                self._notify()
                on_written()
        finally:
            self._is_over = True
            self._notify()

    def close(self) -> None:
        """Accept no more messages."""
        self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

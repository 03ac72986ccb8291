"""Reads from a pipe, and writes messages to one whole and in order, although their senders may be cancelled.

On asyncio the event loop watches a pipe that is read once, and not anew for each read, which is half of a read:
`anyio.wait_readable` tells the event loop about a descriptor and takes it back each time, which takes two system calls,
and sixty calls of functions. A program that hands messages on does that twice for each message.

What a pipe takes at once is written by the task that sends: a task between would delay each message. The rest is
written by a task of its own, because half a message would break the protocol.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel


class PipeReader:
    """Reads a pipe; one task at a time.

    Args:
        descriptor: The descriptor to read from. `close` has to be called before the descriptor is closed.
        limit: Maximum bytes of a read.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor, self._limit = descriptor, limit
        self.take: Callable[[bytes], bool] = lambda _: False
        """Called with what was read for a task that waits; returns True if the task need not be woken for it: that
        would take a round of the event loop. Not called on trio, and on other loops that watch no pipes."""
        # The event loop of asyncio that watches the descriptor; None if none does.
        self._loop: Any = None
        # The task that waits, as a future; None if none waits.
        self._waiter: Any = None
        # What was read for a task, until it has got that: it may be cancelled before.
        self._unclaimed: bytes | Exception | None = None

    async def read(self) -> bytes:
        """Wait for bytes, and return them; empty at the end. A read that is cancelled loses nothing.

        Raises:
            anyio.ClosedResourceError: `wake` or `close` was called meanwhile.
            OSError: The pipe cannot be read; of a regular file a `PermissionError`, because nothing can wait for it.
        """
        if not self._watch():
            await anyio.wait_readable(self._descriptor)
            return os.read(self._descriptor, self._limit)
        if self._unclaimed is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except BaseException:
                self.close()
                raise
            finally:
                self._waiter = None
        found, self._unclaimed = self._unclaimed, None
        if isinstance(found, bytes) and found:
            return found
        self.close()  # there is nothing more to watch
        if isinstance(found, Exception):
            raise found
        return b""

    def wake(self) -> None:
        """End a read that waits."""
        if self._waiter is None:
            anyio.notify_closing(self._descriptor)
        elif not self._waiter.done():
            self._unclaimed = anyio.ClosedResourceError()
            self._waiter.set_result(None)

    def close(self) -> None:
        """Watch the pipe no more: its descriptor may be closed then. A later read watches it again."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._descriptor)

    def _watch(self) -> bool:
        """Let the event loop watch the pipe; return False if it cannot: on trio, and on some loops of asyncio."""
        if self._loop is None:
            loop: Any = anyio.lowlevel.current_token().native_token
            if not hasattr(loop, "add_reader"):
                return False
            try:
                loop.add_reader(self._descriptor, self._receive)
            except NotImplementedError:
                return False
            self._loop = loop
        return True

    def _receive(self) -> None:
        """Read for the task that waits: called by the event loop, which has seen that there is something to read."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            self.close()  # what arrives stays in the pipe until a task wants it: the other side shall wait
            return
        try:
            chunk = os.read(self._descriptor, self._limit)
        except BlockingIOError:
            return
        except OSError as error:
            self._unclaimed = error
        else:
            try:
                if chunk and self.take(chunk):
                    return
                self._unclaimed = chunk
            except Exception as error:  # noqa: BLE001 - the event loop would only log it: the task that waits gets it
                self._unclaimed = error
        waiter.set_result(None)


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

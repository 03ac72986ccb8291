"""Reads a pipe. On asyncio the event loop watches the pipe once, and not anew for each read, which is half of a read.

`anyio.wait_readable` tells the event loop about a descriptor and takes it back each time: two system calls, and sixty
calls of functions. A program that hands messages on does that twice for each message.
"""

from __future__ import annotations

import os
from typing import Any

import anyio
import anyio.lowlevel


class PipeReader:
    """Reads a pipe; one task at a time.

    Args:
        descriptor: The descriptor to read from. `close` has to be called before the descriptor is closed.
        most: Maximum bytes of a read.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor, self._most = descriptor, most
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
            return os.read(self._descriptor, self._most)
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
            self._unclaimed = os.read(self._descriptor, self._most)
        except BlockingIOError:
            return
        except OSError as error:
            self._unclaimed = error
        waiter.set_result(None)

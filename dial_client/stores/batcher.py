"""What is asked for while a transaction is under way waits, and goes into the next one together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio

from dial_client.errors import DialError

T = TypeVar("T")


class BatchRequest(Generic[T]):
    """Something that is asked for, and what came of it."""

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.over = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        """Let go of whoever waits."""
        self.error = error or self.error
        self.over.set()


W = TypeVar("W", bound=BatchRequest[Any])


class Batcher(Generic[W]):
    """Grants wishes, all that wait at once, under asyncio.

    Args:
        grant: grants them, in their order, and ends each; does not raise.
    """

    def __init__(self, grant: Callable[[Sequence[W]], Awaitable[None]]) -> None:
        self._grant = grant
        self._wishes: list[W] = []
        self._granting: asyncio.Task[None] | None = None

    async def ask(self, wish: W) -> None:
        """Wait until a wish is granted. Once begun it is finished, even if the caller is cancelled meanwhile.

        Raises:
            DialError: it came to nothing.
        """
        self._wishes.append(wish)
        if self._granting is None or self._granting.done():
            # A task of its own: a caller that is cancelled takes nobody else's wishes with it.
            self._granting = asyncio.create_task(self._grant_all())
        with anyio.CancelScope(shield=True):
            await wish.over.wait()
        if wish.error is not None:
            raise wish.error

    async def aclose(self) -> None:
        """Wait until what was asked for is granted."""
        if self._granting is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._granting])

    async def _grant_all(self) -> None:
        wishes: list[W] = []
        try:
            while self._wishes:
                wishes, self._wishes = self._wishes, []
                await self._grant(wishes)
        finally:
            # Cancelled with its event loop: nothing waits for ever, and nothing is granted that was called off.
            left, self._wishes = self._wishes, []
            for wish in (*wishes, *left):
                if not wish.over.is_set():
                    wish.end(DialError("the program ended before the database answered"))

"""Another process of a service, of which a test needs only its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.inner import Peers, SQLStore


class OtherProcess:
    """Sends these events, by the ids of their turns, to whoever asks for them."""

    def __init__(self, store: SQLStore, turns: Mapping[str, Sequence[Any]]) -> None:
        self.peers = Peers(SQLStore(store.where))
        self._turns = turns
        self._readers: list[tuple[str, str]] = []
        self.peers.handle(read=self._on_read)

    def _on_read(self, content: Mapping[str, Any], sender: str) -> None:
        if (events := self._turns.get(content["turn"])) is not None:
            self._readers.append((content["reader"], sender))
            self.peers.start_soon(self.peers.send, "events", {"reader": content["reader"], "events": events}, sender)

    async def send(self, events: Sequence[Any]) -> None:
        """Send more events to all that have asked."""
        for reader, sender in self._readers:
            await self.peers.send("events", {"reader": reader, "events": events}, sender)


@asynccontextmanager
async def other_process(store: SQLStore, turns: Mapping[str, Sequence[Any]]) -> AsyncIterator[OtherProcess]:
    """Run another process, which dies at the end."""
    process = OtherProcess(store, turns)
    async with anyio.create_task_group() as group:
        group.start_soon(process.peers.run)
        await process.peers.send("hello", {})  # when it is connected
        yield process
        group.cancel_scope.cancel()
    await process.peers.store.aclose()

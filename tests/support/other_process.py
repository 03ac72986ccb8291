"""Another process of a service, of which a test needs only its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.inner import Peers, SQLStore


@asynccontextmanager
async def other_process(store: SQLStore, turns: Mapping[str, Sequence[Any]] | None = None) -> AsyncIterator[Peers]:
    """Be a process that sends these events, by the ids of their turns, to whoever asks. It dies at the end."""
    peers = Peers(SQLStore(store.where))

    def send_events(content: Mapping[str, Any], sender: str) -> None:
        if (events := (turns or {}).get(content["turn"])) is not None:
            peers.start_soon(peers.send, "events", {"reader": content["reader"], "events": events}, sender)

    peers.handle(read=send_events)
    async with anyio.create_task_group() as group:
        group.start_soon(peers.run)
        await peers.send("hello", {})  # when it is connected
        try:
            yield peers
        finally:
            peers.close()
    await peers.store.aclose()

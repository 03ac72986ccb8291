"""Measures the overhead of a durable turn over a plain turn: ``python -m benchmarks.durable [URL]``.

Each turn has one tool round with a scripted model, that is two requests, in a conversation of the same store. Plain and
durable turns alternate. URL is the database of the store and the workflows; the default is SQLite in a temporary
folder.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio
from mcp.server import MCPServer

from dial_client import ConversationManager, DialClient, SQLStore
from dial_client.durable import DurableTurns
from dial_client.testing import ScriptedProvider

TURNS = 30
REPLIES = [{"tool_calls": [{"name": "noop", "arguments": {}}]}, "Done."]


async def measured(database: str) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each plain turn and of each durable turn."""
    server = MCPServer("noop")
    server.add_tool(lambda: "ok", name="noop", description="Does nothing.")
    store, plain, durable = SQLStore(database), [], []
    async with DialClient(ScriptedProvider(REPLIES * 2 * (TURNS + 1)), servers={"noop": server}) as dial:
        manager = ConversationManager(dial, store)
        async with DurableTurns(dial, store, database.replace("talk.db", "turns.db")) as turns:
            for _ in range(TURNS + 1):
                conversation = await manager.create()
                started_at = time.perf_counter()
                await manager.chat(conversation.id, "Go on.")
                plain.append((time.perf_counter() - started_at) * 1000)
                started_at = time.perf_counter()
                await turns.result(await turns.submit(conversation.id, "Go on."))
                durable.append((time.perf_counter() - started_at) * 1000)
    await store.aclose()
    return plain[1:], durable[1:]


def main() -> None:
    """Measure, and print both medians and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        database = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'talk.db'}"
        plain, durable = anyio.run(measured, database)
    plain_ms, durable_ms = statistics.median(plain), statistics.median(durable)
    ratio = durable_ms / plain_ms
    print(f"plain {plain_ms:.1f} ms   durable {durable_ms:.1f} ms   ratio {ratio:.2f}   median of {TURNS} turns each")


if __name__ == "__main__":
    main()

"""Measures what a durable turn costs beside a plain one: ``python -m benchmarks.durable [URL]``.

Both are turns of one round of two exchanges with a scripted model, in conversations of one store; plain and durable
turns take turns. URL is where store and workflows are kept; by default SQLite in a folder that is gone afterwards.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio
from mcp.server import MCPServer

from dial_client import ConversationManager, DialClient, ScriptedProvider, SQLStore
from dial_client.durable import DurableTurns

TURNS = 30
REPLIES = [{"tool_calls": [{"name": "noop", "arguments": {}}]}, "Done."]


async def measured(where: str) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each plain and of each durable turn."""
    server = MCPServer("noop")
    server.add_tool(lambda: "ok", name="noop", description="Does nothing.")
    store, plain, durable = SQLStore(where), [], []
    async with DialClient({"noop": server}, ScriptedProvider(REPLIES * 2 * (TURNS + 1))) as dial:
        manager = ConversationManager(dial, store)
        async with DurableTurns(dial, store, where.replace("talk.db", "turns.db")) as turns:
            for _ in range(TURNS + 1):
                conversation = await manager.create()
                began = time.perf_counter()
                await manager.chat(conversation.id, "Go on.")
                plain.append((time.perf_counter() - began) * 1000)
                began = time.perf_counter()
                await turns.result(await turns.submit(conversation.id, "Go on."))
                durable.append((time.perf_counter() - began) * 1000)
    await store.aclose()
    return plain[1:], durable[1:]


def main() -> None:
    """Measure, and print both medians and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        where = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'talk.db'}"
        plain, durable = anyio.run(measured, where)
    one, other = statistics.median(plain), statistics.median(durable)
    print(f"plain {one:.1f} ms   durable {other:.1f} ms   ratio {other / one:.2f}   median of {TURNS} turns each")


if __name__ == "__main__":
    main()

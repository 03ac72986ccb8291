"""A program for tests that kill it: sends a message in a conversation and prints the events, a line of JSON each.

``python -m tests.support.conversation_program JSON``: the JSON is the job that `main` reads. After ``reads`` events
the program reads no more events, and waits to be killed.
"""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio

from dial_client import ConversationManager, DialClient, SQLStore
from dial_client.messages.events import to_dict
from dial_client.testing import ScriptedProvider

LIFETIME = 100.0


def server(ran: str) -> dict[str, Any]:
    """Return the entry of the server that logs its calls in the file `ran`."""
    return {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "call_counter.py"), ran]}


async def main(job: dict[str, Any]) -> None:
    store = SQLStore(job["store"])
    servers = {"counting": server(job["ran"])} | job.get("servers", {})
    async with DialClient(ScriptedProvider(job["replies"]), servers=servers) as dial:
        manager = ConversationManager(dial, store, lease=job["lease"])
        async with aclosing(manager.stream_chat(job["conversation"], "Do it!")) as events:
            read = 0
            async for event in events:
                print(json.dumps(to_dict(event)), flush=True)
                read += 1
                if read >= job["reads"]:
                    break
            with anyio.move_on_after(LIFETIME):
                await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))

"""A program for a test that kills it: its model writes a snippet that leaves names for the next one.

``python -m tests.support.kept_program FOLDER KEYS`` prints ``kept`` once the turn has ended, and stays.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

from dial_client import ConversationManager, DialClient, SQLStore, Turn
from dial_client.testing import ScriptedProvider
from tests.inner import sealed_states

LIFETIME = 100.0
ID = "the-conversation"


class KeptJob:
    """A conversation in a folder."""

    def __init__(self, folder: Path, keys: Path) -> None:
        self._folder = folder
        sealed_states.find_key_folder = lambda: keys

    async def _chat(self, source: str, question: str, *, is_new: bool = False, lifetime: float = 0.0) -> Turn:
        call: dict[str, Any] = {"name": "run_code", "arguments": {"code": source, "keep": True}, "id": "call_1"}
        model = ScriptedProvider([{"tool_calls": [call]}, "Done."])
        async with (
            SQLStore(f"sqlite:///{self._folder}/talk.db") as store,
            DialClient(model, tools=[count], tool_format="code") as dial,
        ):
            manager = ConversationManager(dial, store)
            if is_new:
                await manager.create(conversation_id=ID)
            turn = await manager.chat(ID, question)
            print("kept", flush=True)
            with anyio.move_on_after(lifetime):
                await anyio.sleep_forever()
            return turn

    async def begin(self) -> None:
        """Run a turn whose snippet leaves names, and stay."""
        source = "rows = [await count(n=n) for n in range(2)]\ndef more(n):\n    rows.append(n)\n    return rows"
        await self._chat(source, "begin", is_new=True, lifetime=LIFETIME)

    async def go_on(self) -> Turn:
        """Return a turn whose snippet uses them."""
        return await self._chat("more(3)", "go on")


def count(n: int) -> int:
    """Count on."""
    return n + 1


if __name__ == "__main__":
    anyio.run(KeptJob(Path(sys.argv[1]), Path(sys.argv[2])).begin)

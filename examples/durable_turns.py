"""Run turns that outlive their process: after ``kill -9``, start this program again, and the turn continues.

``pip install 'dial-client[durable]'``; with ``postgresql://…`` other machines take the turn over.
"""

import asyncio
import os

from dial_client import DialClient, DurableTurns, SQLStore

MODEL = os.environ.get("DIAL_MODEL", "local")
SERVERS = {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]}}
FOLDER = os.environ.get("DIAL_FOLDER", ".")


async def main() -> None:
    async with (
        SQLStore(f"sqlite:///{FOLDER}/conversations.db") as store,
        DialClient(MODEL, servers=SERVERS) as dial,
        DurableTurns(dial, store, f"sqlite:///{FOLDER}/workflows.db") as turns,
    ):
        conversation = await turns.manager.create("Tokyo")
        turn_id = await turns.submit(conversation.id, "What time is it in Tokyo?")  # stored before this returns
        message = await turns.result(turn_id)  # any program with these databases may wait for it
        print(message.text)


asyncio.run(main())

"""Use several servers: one that cannot start does not affect the others."""

import asyncio
import os

from dial_client import DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")
SERVERS = {
    "time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]},
    "gone": {"command": "no-such-program"},
}


async def main() -> None:
    async with DialClient(MODEL, servers=SERVERS) as dial:
        for name, status in dial.servers.items():
            print(name, status.state.value, status.tools)
        turn = await dial.run("What time is it in Tokyo?", tools=["time/get_*"])
        print(turn.text)


asyncio.run(main())

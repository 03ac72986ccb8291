"""A chat loop: each question follows the earlier ones, and an empty line ends it."""

import asyncio
import os

from dial_client import DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")


async def main() -> None:
    async with DialClient(MODEL) as dial:
        chat = dial.conversation()
        while question := await asyncio.to_thread(input, "> "):
            print((await chat.send(question)).text)


asyncio.run(main())

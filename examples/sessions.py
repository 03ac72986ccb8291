"""Keep a conversation in a database: when the program starts again, the model still knows what was said."""

import asyncio
import os

from dial_client import DialClient, SQLStore

MODEL = os.environ.get("DIAL_MODEL", "local")
DATABASE = f"sqlite:///{os.environ.get('DIAL_FOLDER', '.')}/chats.db"


async def main() -> None:
    async with SQLStore(DATABASE) as store, DialClient(MODEL) as dial:
        chat = dial.conversation(store, id="ada")
        print((await chat.send("Hello, I am Ada.")).text, len(chat.messages))


asyncio.run(main())

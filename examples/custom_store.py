"""Store conversations in your own way: here each change is also logged as a line."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from dial_client import Conversation, ConversationManager, DialClient, MemoryStore, Message

MODEL = os.environ.get("DIAL_MODEL", "local")


class LoggedStore(MemoryStore):
    """A `ConversationStore`. A store for another database implements the protocol, and needs no base class."""

    async def create(self, title: str = "", messages: Sequence[Message] = (), **options: Any) -> Conversation:
        conversation = await super().create(title, messages, **options)
        print(f"created {title!r}")
        return conversation

    async def delete(self, conversation_id: str) -> None:
        await super().delete(conversation_id)
        print("deleted")


async def main() -> None:
    async with DialClient(MODEL) as dial:
        manager = ConversationManager(dial, LoggedStore())
        conversation = await manager.create("Greetings")
        print((await manager.chat(conversation.id, "Hello, I am Ada.")).text)
        print((await manager.chat(conversation.id, "What is my name?")).text)
        await manager.delete(conversation.id)


asyncio.run(main())

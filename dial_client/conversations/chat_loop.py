"""`Chat`: a conversation whose turns follow each other, for the ordinary chat loop.

chat = dial.conversation()                                  in memory
chat = dial.conversation(store=store, id="ada")             stored, and continued when the program starts again
turn = await chat.send("Hello, I am Ada.")
async for event in chat.stream("What is my name?"): ...
chat.messages                                               the questions and answers so far
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, overload

from dial_client.conversations.conversation_client import ConversationClient
from dial_client.messages.errors import ConfigError, ConversationNotFound
from dial_client.messages.events import Event
from dial_client.messages.message import Message
from dial_client.messages.turn_result import Turn
from dial_client.runtime.foreign_names import refuse_attributes
from dial_client.stores.conversation_store import ConversationStore
from dial_client.turns.turn_keywords import TurnKeywords

OutputT = TypeVar("OutputT")


@refuse_attributes(run="`await chat.send(text)`", chat="`await chat.send(text)`", ask="`await chat.send(text)`")
class Chat:
    """One conversation of a client, returned by `DialClient.conversation`. Its turns run one after the other.

    A turn is stored while it runs, as by a `ConversationManager`.

    Args:
        dial: The client that answers.
        store: The store of the conversation, which the caller closes; by default it is kept in memory.
        id: The id of the conversation, in printable ASCII, which is created if the store does not have it; by default a
            new conversation with a random id.
        owner: The person that the conversation belongs to. A conversation of another owner is not found
            (`ConversationNotFound`), also if it has this id.
        metadata: Data of the program, of JSON types, for a conversation that is created.

    Raises:
        ConfigError: The id has other characters, or is empty; or the owner cannot be stored.
        TypeError: `store` is no `ConversationStore`, or `id` is no string.
    """

    def __init__(
        self,
        dial: ConversationClient,
        store: ConversationStore | None = None,
        id: str | None = None,  # noqa: A002 - the name of the attribute
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        # Loaded here: a client without conversations starts faster.
        from dial_client.conversations.conversation_manager import ConversationManager
        from dial_client.stores.conversation_store import check_conversation_id
        from dial_client.stores.memory_store import MemoryStore

        if id is not None:
            check_conversation_id(id)
            if not (id and id.isascii() and id.isprintable()):
                raise ConfigError(f"{id!r} cannot be the id of a conversation", hint="use printable ASCII")
        manager = ConversationManager(dial, MemoryStore() if store is None else store)
        self.manager = manager if owner is None else manager.for_owner(owner)
        """The manager of the conversation's store: for versions, undo, summaries, settings and exports."""
        self._metadata = metadata
        self.id = id or secrets.token_hex(16)
        self.messages: tuple[Message, ...] = ()
        """The messages of the conversation at the end of the last turn; `read` reads them before the first turn."""

    @overload
    async def send(
        self, message: str | Message, *, output_type: type[OutputT], **keywords: Unpack[TurnKeywords]
    ) -> Turn[OutputT]: ...

    @overload
    async def send(
        self, message: str | Message, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> Turn[Any]: ...

    async def send(
        self, message: str | Message, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> Turn[Any]:
        """Send a message, wait for the answer, and return the turn.

        Args:
            message: The user's text or `Message`.
            output_type: The type of the answer, as for `DialClient.run`.
            keywords: Further keywords of this turn, as for `DialClient.run`.

        Raises:
            DialError: As for `DialClient.run`, or the store failed.
            ConversationBusy: An earlier turn of the conversation ran for too long.
        """
        await self.read()
        try:
            return await self.manager.chat(self.id, message, output_type=output_type, **keywords)
        finally:
            await self.read()

    @overload
    def stream(
        self, message: str | Message, *, output_type: type[OutputT], **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event[OutputT], None]: ...

    @overload
    def stream(
        self, message: str | Message, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event[Any], None]: ...

    async def stream(
        self, message: str | Message, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event[Any], None]:
        """Send a message, and yield the events of the turn, `Finished` last. Leaving the loop early cancels the turn.

        Arguments and errors are those of `send`.
        """
        await self.read()
        events = self.manager.stream_chat(self.id, message, output_type=output_type, **keywords)
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            await self.read()

    async def read(self) -> tuple[Message, ...]:
        """Read the conversation from its store, or create it there, and return its messages.

        Raises:
            ConversationNotFound: The conversation belongs to another owner.
            DialError: The store failed.
        """
        try:
            stored = await self.manager.get(self.id)
        except ConversationNotFound:
            stored = await self.manager.create(conversation_id=self.id, metadata=self._metadata)
        self.messages = stored.messages
        return self.messages

"""The methods that send a message in a conversation, and return the turn's result or events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar, overload

from dial_client.conversations.turn_input import ConversationInput, check_turn_input
from dial_client.messages.events import Event
from dial_client.messages.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle

OutputT = TypeVar("OutputT")


class ChatMethods(ABC):
    """The methods that run a turn of a conversation until it ends."""

    @abstractmethod
    async def _start(
        self,
        conversation_id: str,
        message: ConversationInput | None,
        *,
        stream: bool,
        stream_events: bool = False,
        turn_id: str | None = None,
        output_type: Any = None,
    ) -> TurnHandle:
        """Start the next turn; if `message` is None, resume the interrupted turn."""

    @overload
    async def chat(
        self, conversation_id: str, message: ConversationInput, *, output_type: type[OutputT]
    ) -> Turn[OutputT]: ...

    @overload
    async def chat(self, conversation_id: str, message: ConversationInput, *, output_type: Any = None) -> Turn[Any]: ...

    async def chat(self, conversation_id: str, message: ConversationInput, *, output_type: Any = None) -> Turn[Any]:
        """Send a message in a conversation, and wait for the answer. Raises as `stream_chat`."""
        check_turn_input(message)
        turn = await self._start(conversation_id, message, stream=False, output_type=output_type)
        try:
            return await turn.result()
        finally:
            await turn.stop()

    async def stream_chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
        output_type: Any = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a message in a conversation, and yield the turn's events, `Finished` last.

        Leaving the loop early cancels the turn and stores the partial text; use `contextlib.aclosing`, so that this
        happens at once. The turn waits for a slow reader; a turn of `start` does not.

        Args:
            conversation_id: The id of the conversation.
            message: The user's text, or another input that `ConversationManager.start` accepts.
            stream: True to ask the model for a streamed reply.
            on_started: Called with the turn once it runs. Its `TurnHandle.cancel` stops it from anywhere; the last
                event is then `Finished` with a turn whose stop reason is ``cancelled``.
            output_type: The type of the answer, as for `DialClient.run`.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: Another turn of the conversation is running, with ``when_busy="refuse"`` or for too long.
            ProviderError: The model could not be reached, or refused the request; the partial text is stored.
            LimitReached: A limit was met, and the client has ``on_limit="raise"``.
            OutputError: No answer is of `output_type`.
            ConfigError: The message to edit, to answer again or to continue does not exist.
            DialError: The store failed, which ended the turn.
        """
        check_turn_input(message)
        turn = await self._start(conversation_id, message, stream=stream, stream_events=True, output_type=output_type)
        try:
            if on_started is not None:
                on_started(turn)
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            await turn.stop()

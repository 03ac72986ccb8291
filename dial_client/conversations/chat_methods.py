"""The ways to send a message in a conversation and wait for its turn: the result, or the events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar, overload

from dial_client.conversations.turn_input import TurnInput, check_turn_input
from dial_client.turn_data.events import Event
from dial_client.turn_data.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle

OutputT = TypeVar("OutputT")


class ChatMethods(ABC):
    """The methods that run a turn of a conversation to its end."""

    @abstractmethod
    async def _start(
        self,
        conversation_id: str,
        message: TurnInput | None,
        *,
        stream: bool,
        stream_events: bool = False,
        turn_id: str | None = None,
        output_type: Any = None,
    ) -> TurnHandle:
        """Start the next turn; without a message, one that resumes an interrupted turn."""

    @overload
    async def chat(self, conversation_id: str, message: TurnInput, *, output_type: type[OutputT]) -> Turn[OutputT]: ...

    @overload
    async def chat(self, conversation_id: str, message: TurnInput, *, output_type: Any = None) -> Turn[Any]: ...

    async def chat(self, conversation_id: str, message: TurnInput, *, output_type: Any = None) -> Turn[Any]:
        """Send a message in a conversation, and wait for the answer. Raises as `stream_chat`."""
        check_turn_input(message)
        turn = await self._start(conversation_id, message, stream=False, output_type=output_type)
        try:
            return await turn.result()
        finally:
            await turn.stopped()

    async def stream_chat(
        self,
        conversation_id: str,
        message: TurnInput,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
        output_type: Any = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a message in a conversation, and yield the turn's events, `Finished` last.

        Leaving early cancels the turn, and the text up to then is stored; use `contextlib.aclosing`, so that this
        happens at once. The turn waits for a reader that is slow; `start` has one that does not.

        Args:
            conversation_id: which conversation.
            message: the person's text, or as for `ConversationManager.start`.
            stream: ask the model for its reply in pieces.
            on_started: is given the turn once it runs: its `TurnHandle.cancel` stops it from anywhere, and the events
                go on to a `Finished` whose turn says ``cancelled``.
            output_type: the type of the answer, as for `DialClient.run`.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConversationBusy: another turn of it is under way, and ``when_busy="refuse"`` or it took too long.
            ProviderError: the model could not be reached or refused; the text up to then is stored.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
            OutputError: there is no answer of `output_type`.
            ConfigError: there is no such message to edit, to answer again, or to continue.
            DialError: the store failed; the turn is over.
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
            await turn.stopped()

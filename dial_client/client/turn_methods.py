"""The methods that run one turn, and return its result, its events or server-sent events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, overload

from dial_client.messages.events import Event
from dial_client.messages.limits import Limits
from dial_client.messages.message import Message
from dial_client.messages.turn_result import Turn
from dial_client.sinks import sse_encoder
from dial_client.turns.turn_handle import TurnHandle

OutputT = TypeVar("OutputT")

TurnInput = str | Message | Sequence[Message]
"""A conversation: its messages, a single message, or the text of a single user message."""


class TurnMethods(ABC):
    """The methods that run a turn by `start`.

    Each takes a `TurnInput`. The arguments `limits` and `system` replace the client's for this turn.
    """

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name of the model's provider."""

    @abstractmethod
    def start(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        stream: bool = True,
        stream_events: bool = True,
        output_type: Any = None,
    ) -> TurnHandle:
        """Start a turn, and return its handle without waiting for the result."""

    async def response(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any = None,
    ) -> Message:
        """Run a turn, and return its last message. Raises as `run`."""
        turn: Turn = await self.run(messages, limits=limits, system=system, output_type=output_type)
        return turn.message

    @overload
    async def run(
        self, messages: TurnInput, *, limits: Limits | None = None, system: str | None = None, output_type: None = None
    ) -> Turn: ...

    @overload
    async def run(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: type[OutputT],
    ) -> Turn[OutputT]: ...

    @overload
    async def run(
        self, messages: TurnInput, *, limits: Limits | None = None, system: str | None = None, output_type: Any
    ) -> Turn[Any]: ...

    async def run(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any = None,
    ) -> Turn[Any]:
        """Run a turn, and return it when it has ended. Replies are not streamed, unless the endpoint requires it.

        Args:
            messages: The conversation, which is never changed.
            limits: The limits of this turn, in place of the client's.
            system: The instructions of this turn, in place of the client's.
            output_type: The type of ``turn.output``: any type that `pydantic.TypeAdapter` accepts, or a JSON Schema as
                a mapping. If an answer is not of this type, the model is asked to correct it, at most twice.

        Raises:
            ProviderError: The model could not be reached, or refused the request.
            MiddlewareError: A middleware failed.
            LimitReached: A limit was met, and the client has ``on_limit="raise"``.
            OutputError: No answer is of `output_type`. With ``on_limit="answer"``, ``turn.output`` is None instead.
            ConfigError: `output_type` is an invalid JSON Schema.
            TypeError: `messages` is not a conversation, or `output_type` is not a type that JSON can be parsed as.
        """
        turn = self.start(
            messages, limits=limits, system=system, stream=False, stream_events=False, output_type=output_type
        )
        try:
            return await turn.result()
        finally:
            await turn.stop()

    async def stream(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, and yield its events as they happen, `Finished` last. Leaving the loop early cancels the turn.

        With an `output_type`, `OutputDelta` has the partial answer as a value of that type.

        Raises: as `run`, after the last event.
        """
        turn = self.start(messages, limits=limits, system=system, output_type=output_type)
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event

    async def stream_response(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any = None,
    ) -> AsyncGenerator[str, None]:
        """Run a turn, and yield server-sent events: strings that end in a blank line, in the format of `sse_encoder`.

        An error of the turn becomes an ``error`` event, and `LimitReached` a ``done`` event. The last event is always
        ``data: [DONE]``.

        Raises:
            TypeError: `messages` is not a conversation.
        """
        conversation = to_messages(messages)
        events = self.stream(conversation, limits=limits, system=system, output_type=output_type)
        async with aclosing(sse_encoder.encode(events, model=self.model_name)) as encoded:
            async for text in encoded:
                yield text


def to_messages(conversation: TurnInput) -> tuple[Message, ...]:
    """Return the messages of a conversation.

    Raises:
        TypeError: `conversation` is neither a string, a `Message` nor a sequence of `Message`s.
    """
    if isinstance(conversation, str):
        return (Message.user(conversation),)
    if isinstance(conversation, Message):
        return (conversation,)
    # Callers without a type checker may pass any type.
    items: Any = conversation
    if not isinstance(items, Sequence) or isinstance(items, bytes | bytearray):
        raise TypeError(f"expected a text, a Message or a sequence of Messages, not {type(items).__name__}")
    for index, message in enumerate(items):
        if not isinstance(message, Message):
            kind = type(message).__name__
            hint = {"str": ": use Message.user(text)", "dict": ": use Message.from_dict(data)"}.get(kind, "")
            raise TypeError(f"expected Messages, but item {index} is of type {kind}{hint}")
    return tuple(items)

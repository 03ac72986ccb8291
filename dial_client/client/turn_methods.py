"""The ways to run one turn: its result, its events, or its server-sent events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, overload

from dial_client.messages.message import Message
from dial_client.sinks import sse_encoder
from dial_client.turn_data.events import Event
from dial_client.turn_data.limits import Limits
from dial_client.turn_data.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle

OutputT = TypeVar("OutputT")

TurnInput = str | Message | Sequence[Message]
"""A conversation: its messages, its only message, or the text of the user's only message."""


class TurnMethods(ABC):
    """The methods that run a turn, on top of `start`.

    Each takes a `TurnInput`, and for this turn alone `limits` and `system` in place of the client's.
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
        """Start a turn without waiting for it."""

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
        """Run a turn; the model is asked without streaming where its endpoint allows that.

        Args:
            messages: the conversation; never changed.
            limits: of this turn, in place of the client's.
            system: instructions of this turn, in place of the client's.
            output_type: the type of ``turn.output``: whatever `pydantic.TypeAdapter` takes, or a JSON Schema as a
                mapping. An answer that is not of this type goes back to the model, twice at most.

        Raises:
            ProviderError: the model could not be reached or refused the request.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
            OutputError: there is no answer of `output_type`; with ``on_limit="answer"``, ``turn.output`` is None.
            ConfigError: `output_type` is an invalid JSON Schema.
            TypeError: `messages` is no conversation, or `output_type` no type that JSON can be read as.
        """
        turn = self.start(
            messages, limits=limits, system=system, stream=False, stream_events=False, output_type=output_type
        )
        try:
            return await turn.result()
        finally:
            await turn.stopped()

    async def stream(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, and yield its events as they happen, `Finished` last. Leaving early cancels the turn.

        With an `output_type`, `OutputDelta` has the answer so far as a value of that type.

        Raises: as `run`, behind the last event.
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
        """Run a turn, and yield server-sent events: strings that end in a blank line, in the form of `sse_encoder`.

        An error after the first event is an ``error`` event; ``data: [DONE]`` is always the last.

        Raises:
            TypeError: `messages` is no conversation.
        """
        conversation = to_messages(messages)
        events = self.stream(conversation, limits=limits, system=system, output_type=output_type)
        async with aclosing(sse_encoder.encode(events, model=self.model_name)) as encoded:
            async for text in encoded:
                yield text


def to_messages(conversation: TurnInput) -> tuple[Message, ...]:
    """Return the messages of a conversation.

    Raises:
        TypeError: it is neither a text, a `Message` nor a sequence of `Message`s.
    """
    if isinstance(conversation, str):
        return (Message.user(conversation),)
    if isinstance(conversation, Message):
        return (conversation,)
    # Callers without a type checker may give anything.
    given: Any = conversation
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray):
        raise TypeError(f"expected a text, a Message or a sequence of Messages, not {type(given).__name__}")
    for index, message in enumerate(given):
        if not isinstance(message, Message):
            kind = type(message).__name__
            hint = {"str": ": use Message.user(text)", "dict": ": use Message.from_dict(data)"}.get(kind, "")
            raise TypeError(f"expected Messages, but item {index} is of type {kind}{hint}")
    return tuple(given)

"""`ConversationClient`: what conversations need of a client."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, Unpack

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.limits import Limits
from dial_client.messages.message import Message, ToolSpec
from dial_client.turns.client_model import ClientModel
from dial_client.turns.turn_handle import TurnHandle, TurnObserver
from dial_client.turns.turn_keywords import TurnInput, TurnKeywords


class ConversationClient(Protocol):
    """The members of `DialClient` that conversations use. They cannot import it, because it creates conversations."""

    model: ClientModel
    limits: Limits

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered to the model."""
        ...

    def start(  # noqa: PLR0913 - the options of a turn, all but one by name
        self,
        messages: TurnInput,
        *,
        stream: bool = True,
        stream_events: bool = True,
        client_tools: Sequence[ToolSpec] = (),
        observers: Sequence[TurnObserver] = (),
        origin: Origin | None = None,
        tool_format: str | None = None,
        hidden_tools: Collection[str] = (),
        depth: int = 0,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> TurnHandle:
        """Start a turn, and return its handle."""
        ...

    def find_taint(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the sources of untrusted content in a conversation."""
        ...

"""`ConversationClient`: what conversations need of a client; `Chat` loads it without the manager and its stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dial_client.messages.limits import Limits
from dial_client.messages.message import Message, ToolSpec
from dial_client.turns.client_model import ClientModel
from dial_client.turns.context_report import ContextReport
from dial_client.turns.turn_handle import TurnHandle


class ConversationClient(Protocol):
    """The members of `DialClient` that conversations use. They cannot import it, because it creates conversations."""

    limits: Limits

    @property
    def model(self) -> ClientModel:
        """The model of turns that choose none."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered to the model."""
        ...

    @property
    def start(self) -> Callable[..., TurnHandle]:
        """Starts a turn, and returns its handle (`DialClient.start`)."""
        ...

    @property
    def measure_context(self) -> Callable[..., ContextReport]:
        """Returns what fills the context window (`DialClient.measure_context`)."""
        ...

    def find_taint(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the sources of untrusted content in a conversation."""
        ...

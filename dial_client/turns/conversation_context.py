"""The immutable state of a turn at one level of the recursion. Its depth cannot exceed its limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dial_client.messages.message import Message


class DepthExceeded(Exception):
    """The depth of a context exceeds its `max_depth`. Users never see this error: `resolution` checks the depth."""


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """The conversation at one level of the recursion; each level gets a new context.

    Raises:
        DepthExceeded: `depth` is greater than `max_depth`.
    """

    messages: tuple[Message, ...]
    """The caller's messages, followed by the messages of this turn."""
    max_depth: int
    depth: int = 0
    """Number of completed rounds of tool calls."""

    def __post_init__(self) -> None:
        if self.depth > self.max_depth:
            raise DepthExceeded(f"depth {self.depth} is beyond {self.max_depth}")

    @property
    def may_descend(self) -> bool:
        """Whether one more round of tool calls is allowed."""
        return self.depth < self.max_depth

    def extend(self, *messages: Message) -> ConversationContext:
        """Return the context at the same level, with more messages."""
        return replace(self, messages=self.messages + messages)

    def descend(self, reply: Message, results: Iterable[Message]) -> ConversationContext:
        """Return the context of the next level, with the model's reply and the results of its calls in their order."""
        return replace(self, messages=(*self.messages, reply, *results), depth=self.depth + 1)

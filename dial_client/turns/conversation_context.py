"""The frozen state of a turn at one level of the recursion, and the guard that is in the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dial_client.messages import Message


class DepthExceeded(Exception):
    """A context deeper than its `max_depth` was asked for. Never leaves the package: `resolution` looks first."""


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """Everything the model is asked with at one level; each level gets a new one.

    Raises:
        DepthExceeded: on making one that is deeper than `max_depth`.
    """

    messages: tuple[Message, ...]
    """The caller's messages, and behind them all that this turn has added."""
    max_depth: int
    depth: int = 0
    """Rounds of tool calls that lie behind."""

    def __post_init__(self) -> None:
        if self.depth > self.max_depth:
            raise DepthExceeded(f"depth {self.depth} is beyond {self.max_depth}")

    @property
    def may_descend(self) -> bool:
        """Whether there is a level below this one."""
        return self.depth < self.max_depth

    def extend(self, *messages: Message) -> ConversationContext:
        """Give the same level with more said."""
        return replace(self, messages=self.messages + messages)

    def descend(self, reply: Message, results: Iterable[Message]) -> ConversationContext:
        """Give the next level: the model's reply, then the result of each of its calls, in their order."""
        return replace(self, messages=(*self.messages, reply, *results), depth=self.depth + 1)

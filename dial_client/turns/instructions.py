"""The instructions of a turn: which of them go with a request, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dial_client.model import Instruction, InstructionSource, ToolFormat

GUIDANCE = (
    "Use tools where they help: one after another where a call needs another's result, several at once where none "
    "does. If a call fails, read why and try another way. Stop calling as soon as you know enough, and answer. "
    "If something could not be done, say what and why."
)
"""How to use native tools, for conversations without instructions of their own."""


@dataclass(frozen=True, slots=True)
class TurnInstructions:
    """The instructions that requests of a turn may carry."""

    conversation: tuple[Instruction, ...] = ()
    """The system messages of the conversation; sent with every request."""
    servers: Callable[[], str] = str
    """Returns what the servers say about themselves; sent where tools are on offer."""
    guidance: str | None = None
    """How to use tools; None for `GUIDANCE`, where neither the conversation nor the format has instructions."""
    starting: Callable[[], str] = str
    """Returns which servers are still starting; sent while there are any."""

    def select(self, *, has_tools: bool, tool_format: ToolFormat) -> tuple[Instruction, ...]:
        """Return the instructions of one request; the format adds its own behind them."""
        starting = self.starting()
        behind = (Instruction(InstructionSource.HOST, starting),) if starting else ()
        if not has_tools:
            return (*self.conversation, *behind)
        guidance = self.guidance
        if guidance is None:
            guidance = GUIDANCE if tool_format is ToolFormat.NATIVE and not self.conversation else ""
        before = (Instruction(InstructionSource.HOST, guidance),) if guidance else ()
        if servers := self.servers():
            behind = (Instruction(InstructionSource.SERVERS, servers), *behind)
        return (*before, *self.conversation, *behind)

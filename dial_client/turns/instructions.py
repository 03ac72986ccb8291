"""The instructions of a turn: which of them a request contains, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dial_client.messages.model import Instruction, InstructionSource, ToolFormat

GUIDANCE = (
    "Use tools where they help: one after another where a call needs another's result, several at once where none "
    "does. If a call fails, read why and try another way. Stop calling as soon as you know enough, and answer. "
    "If something could not be done, say what and why."
)
"""Instructions on the use of native tools, for conversations without system messages."""


@dataclass(frozen=True, slots=True)
class TurnInstructions:
    """The instructions that the requests of a turn may contain."""

    conversation: tuple[Instruction, ...] = ()
    """The system messages of the conversation; sent with every request."""
    servers: Callable[[], str] = str
    """Returns the instructions of the servers; sent if tools are offered."""
    guidance: str | None = None
    """Instructions on tool use; None for `GUIDANCE`, if neither the conversation nor the format has instructions."""
    starting: Callable[[], str] = str
    """Returns a text about the servers that are still starting; empty if there are none."""

    def select(self, *, has_tools: bool, tool_format: ToolFormat) -> tuple[Instruction, ...]:
        """Return the instructions of one request, to which the tool format adds its own."""
        starting = self.starting()
        trailing = (Instruction(InstructionSource.HOST, starting),) if starting else ()
        if not has_tools:
            return (*self.conversation, *trailing)
        guidance = self.guidance
        if guidance is None:
            guidance = GUIDANCE if tool_format is ToolFormat.NATIVE and not self.conversation else ""
        leading = (Instruction(InstructionSource.HOST, guidance),) if guidance else ()
        if servers := self.servers():
            trailing = (Instruction(InstructionSource.SERVERS, servers), *trailing)
        return (*leading, *self.conversation, *trailing)

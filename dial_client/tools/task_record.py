"""What is stored of a call that a server has answered with a task: enough to poll the task after a restart.

Only the host writes these records. What a history, a model or a server says about a task is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dial_client.messages.message import ToolCallRequest
from dial_client.runtime.json_fields import expect_text


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A call that goes on as a task of its server."""

    id: str
    """The id by which the model names the call once it is in the background."""
    call: ToolCallRequest
    """The call as it was made."""
    server: str
    """The server's name in the configuration."""
    tool: str
    """The server's own name of the tool."""
    turn: str
    """The turn that has made the call."""
    task: str
    """The server's id of the task."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON types."""
        texts = {"server": self.server, "tool": self.tool, "turn": self.turn, "task": self.task}
        return {"id": self.id, "call": self.call.to_dict(), **texts}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the form of `to_dict`.

        Raises:
            ValueError: `data` is no such record.
        """
        try:
            texts = [expect_text(data[name]) for name in ("server", "tool", "turn", "task")]
            return cls(expect_text(data["id"]), ToolCallRequest.from_dict(data["call"]), *texts)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the task of a call: {error!r}") from error

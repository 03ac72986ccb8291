"""The status of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dial_client.callbacks.server_callbacks import ServerLog

MAX_REASON_CHARS = 400
"""Characters of a sentence about a server; what servers write has no bound of its own."""


class ServerState(StrEnum):
    """The state of a server."""

    STARTING = "starting"
    SLEEPING = "sleeping"
    """Not started yet: its tools are those of the last run, and the first call starts it."""
    READY = "ready"
    RESTARTING = "restarting"
    """It was ready and has died; its tools stay on offer, and calls wait."""
    FAILED = "failed"
    STOPPED = "stopped"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of a server at one moment. Texts of the server are as it wrote them, but bounded in length."""

    name: str
    """As in the configuration."""
    state: ServerState
    protocol_version: str | None = None
    """The negotiated version of MCP (``2025-11-25``); None before the first connection, and kept after the last."""
    tools: tuple[str, ...] = ()
    """By the server's own names."""
    error: str | None = None
    """Why it failed or, if it was restarted, why it last died: one line a person can act on."""
    restarts: int = 0
    """How often it was restarted, successfully or not."""
    notes: tuple[str, ...] = ()
    """Oddities that harm nothing."""
    stderr: tuple[str, ...] = ()
    """The last lines of its standard error."""
    logs: tuple[ServerLog, ...] = ()
    """Its last log messages."""
    instructions: str | None = None
    """Its instructions for the model."""
    server_name: str | None = None
    """Its own name; not unique."""
    server_version: str | None = None

    @property
    def why_unavailable(self) -> str:
        """Why no call can be made now."""
        return {
            ServerState.FAILED: self.error or "it failed",
            ServerState.RESTARTING: f"it is being restarted: {self.error or 'it died'}",
            ServerState.STARTING: "it is still starting",
            ServerState.SLEEPING: "it was not started yet",
            ServerState.DISABLED: "it is disabled",
            ServerState.STOPPED: "it was stopped",
            ServerState.READY: "the connection was closed",
        }[self.state]

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON types."""
        return {
            "name": self.name,
            "state": self.state.value,
            "protocol_version": self.protocol_version,
            "tools": list(self.tools),
            "error": self.error,
            "restarts": self.restarts,
            "notes": list(self.notes),
            "stderr": list(self.stderr),
            "logs": [message.to_dict() for message in self.logs],
            "instructions": self.instructions,
            "server_name": self.server_name,
            "server_version": self.server_version,
        }


OnChange = Callable[[str, ServerStatus], None]
"""Is called with the name and the status after every change of the state or of the tools."""

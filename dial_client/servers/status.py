"""What is known of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dial_client.callbacks.server_callbacks import ServerLog

MAX_REASON_CHARS = 400
"""Characters of a sentence about a server; what servers write has no bound of its own."""


class ServerState(StrEnum):
    """Where a server is in its life."""

    STARTING = "starting"
    SLEEPING = "sleeping"
    """Not started yet: its tools are those of the last time, and the first call starts it."""
    READY = "ready"
    RESTARTING = "restarting"
    """It was ready and has died; its tools stay on offer, and calls wait for it."""
    FAILED = "failed"
    STOPPED = "stopped"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of a server at one moment. Its own words are as it wrote them, but bounded in length."""

    name: str
    """As in the configuration."""
    state: ServerState
    protocol_version: str | None = None
    """The negotiated version of MCP (``2025-11-25``); None before the first connection, and kept after the last."""
    tools: tuple[str, ...] = ()
    """By the server's own names."""
    error: str | None = None
    """Why it failed or, where it was started again, why it last died: one line a person can act on."""
    restarts: int = 0
    """How often it was started again, whether it came up or not."""
    notes: tuple[str, ...] = ()
    """What is odd about it but harms nothing."""
    stderr: tuple[str, ...] = ()
    """Its last lines on standard error."""
    logs: tuple[ServerLog, ...] = ()
    """Its last log messages."""
    instructions: str | None = None
    """What it wants a model to know."""
    server_name: str | None = None
    """What it calls itself; not unique."""
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
"""Told the name and the status after every change of the state or of the tools."""

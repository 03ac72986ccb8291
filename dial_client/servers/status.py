"""The status of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dial_client.hooks.server_callbacks import ServerLog

AddNote = Callable[[str], None]
"""Adds a note for the user to the status of a server."""

MAX_REASON_CHARS = 400
"""Maximum characters of an error in a server's status; texts written by servers are unbounded."""


class ServerState(StrEnum):
    """The state of a server."""

    STARTING = "starting"
    SLEEPING = "sleeping"
    """A lazy server that is not started yet: it offers the tools of the last run, and the first call starts it."""
    READY = "ready"
    RESTARTING = "restarting"
    """The server was ready and has died; its tools stay on offer, and calls wait."""
    FAILED = "failed"
    STOPPED = "stopped"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of a server at one moment. Texts written by the server are unchanged, except that they are cut."""

    name: str
    """The server's name in the configuration."""
    state: ServerState
    protocol_version: str | None = None
    """The negotiated version of MCP (``2025-11-25``); None before the first session. It stays after the last one."""
    tools: tuple[str, ...] = ()
    """The tools, by the server's own names."""
    error: str | None = None
    """Why the server failed or, after a restart, why it died last: one line that helps the user to fix it."""
    restarts: int = 0
    """The number of restarts, successful or not."""
    notes: tuple[str, ...] = ()
    """Harmless irregularities of the server."""
    stderr: tuple[str, ...] = ()
    """The last lines of the server's standard error."""
    logs: tuple[ServerLog, ...] = ()
    """The server's last log messages."""
    instructions: str | None = None
    """The server's instructions for the model."""
    server_name: str | None = None
    """The name the server reports; not unique."""
    server_version: str | None = None
    """The version the server reports."""

    @property
    def why_unavailable(self) -> str:
        """The reason why no call can be made now."""
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
"""Called with the server's name and status after every change of its state or its tools."""

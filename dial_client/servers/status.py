"""The status of a server, written by its connection and its session, and values that tasks can wait for.

ServerStatus         what is known of a server at one moment
ServerStatusWriter   the current status: it is changed step by step, and tasks wait for changes
Observable           any value whose changes tasks wait for
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from dial_client.hooks.server_callbacks import ServerLog
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool


# Adds a note for the user to the status of a server.
AddNote = Callable[[str], None]

# Maximum characters of an error in a server's status; texts written by servers are unbounded.
MAX_REASON_CHARS = 400

log = get_logger(__name__)

Value = TypeVar("Value")

# The identifier of the extension of MCP with which a server declares that it has skills (SEP-2640).
SKILLS = "io.modelcontextprotocol/skills"
MAX_NOTES = 50
# Log messages kept for a server; older ones are dropped.
MAX_LOGS = 100
# Characters kept of a server's instructions.
MAX_INSTRUCTIONS = 20_000


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
    NEEDS_CREDENTIALS = "needs_credentials"
    """The person for whom the program acts has not filled in ``${user.NAME}``; the error names what is missing."""


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
            ServerState.NEEDS_CREDENTIALS: self.error or "it needs credentials",
        }[self.state]

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON types."""
        fields = asdict(self) | {"state": self.state.value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


# Called with the server's name and status after every change of its state or its tools.
OnChange = Callable[[str, ServerStatus], None]


class Observable(Generic[Value]):
    """A value whose changes tasks of one event loop can wait for."""

    def __init__(self, value: Value) -> None:
        self._value = value
        # Set when the value changes; None if no task waits.
        self._changed: anyio.Event | None = None

    @property
    def value(self) -> Value:
        """The current value."""
        return self._value

    def set(self, value: Value) -> None:
        """Replace the value. All waiting tasks check their predicates again, even if the value is equal."""
        self._value = value
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def wait_until(self, predicate: Callable[[Value], bool], seconds: float = math.inf) -> Value:
        """Wait until the predicate is true of the value, at most `seconds`, and return the value."""
        # A turn asks many times for what is true already: only a task that waits needs a cancel scope.
        if not predicate(self._value):
            with anyio.move_on_after(seconds):
                while not predicate(self._value):
                    self._changed = self._changed or anyio.Event()
                    await self._changed.wait()
        return self._value


class ServerStatusWriter(Observable[ServerStatus]):
    """The status and the tools of one server. The value is the status without tools, log messages and stderr lines.

    Args:
        name: The server's name in the configuration.
        on_change: Is called after each change of the state or the tools.
        is_enabled: False for a server that must not be started.
        on_tools: Is called with each change of `tools`, before `on_change`.
    """

    def __init__(
        self, name: str, on_change: OnChange | None, *, is_enabled: bool, on_tools: Callable[[], None] | None = None
    ) -> None:
        super().__init__(ServerStatus(name, ServerState.STARTING if is_enabled else ServerState.DISABLED))
        self.name = name
        self.tools: tuple[Tool, ...] = ()
        """The tools the model can be offered.

        While the server sleeps, or is restarted, these are the last known tools. A server that failed, or
        is starting without cached tools, has none.
        """
        self._by_name: dict[str, Tool] = {}
        self.revision = 0
        """A number that grows with each change of `tools`."""
        self.declares_skills = False
        """True if the server has declared that it has skills."""
        self.declares_directories = False
        """True if the server has declared that clients may list the directories of its skills."""
        self.was_settled = False
        """True once the first start has succeeded or failed."""
        self.restart_delay: float | None = None
        """Seconds from the end of the last session to the next start; None for no restart, or before it is decided."""
        self.logs: deque[ServerLog] = deque(maxlen=MAX_LOGS)
        self.read_stderr: Callable[[], tuple[str, ...]] = tuple
        """Returns the last lines on the standard error of the process of the last session."""
        self._on_change, self._on_tools = on_change, on_tools

    @property
    def state(self) -> ServerState:
        """The current state."""
        return self._value.state  # read several times in each call

    @property
    def error(self) -> str | None:
        """Why the server failed or was last restarted."""
        return self.value.error

    @property
    def summary(self) -> ServerStatus:
        """The server's status without its tools, logs and lines of standard error: reading it copies nothing."""
        return self.value

    @property
    def status(self) -> ServerStatus:
        """A snapshot of the server's complete status."""
        names = tuple(tool.name for tool in self.tools)
        return replace(self.value, tools=names, stderr=self.read_stderr(), logs=tuple(self.logs))

    def set_server(self, client: Client) -> None:
        """Record the name, version and instructions that the server reports, and the negotiated protocol version."""
        info, instructions = client.server_info, client.instructions
        extensions: Mapping[str, Any] = client.server_capabilities.extensions or {}
        self.declares_skills = SKILLS in extensions
        skills = extensions.get(SKILLS)
        self.declares_directories = isinstance(skills, Mapping) and skills.get("directoryRead") is True
        self.set(
            replace(
                self.value,
                protocol_version=client.protocol_version,
                instructions=instructions[:MAX_INSTRUCTIONS] if instructions else None,
                server_name=info.name if info else None,
                server_version=info.version if info else None,
            )
        )

    def set_tools(self, tools: tuple[Tool, ...]) -> bool:
        """Replace the tools, without notification; return True if they differ from the previous tools."""
        if tools == self.tools:
            return False
        self.tools, self.revision = tools, self.revision + 1
        self._by_name = {tool.name: tool for tool in reversed(tools)}  # of tools with one name the first one counts
        if self._on_tools is not None:
            self._on_tools()
        return True

    def find_tool(self, name: str) -> Tool | None:
        """Return the tool with the server's own name for it; None if there is none."""
        return self._by_name.get(name)

    def add_note(self, note: str) -> None:
        """Add a note about a harmless irregularity of the server."""
        notes = self.value.notes
        if len(notes) < MAX_NOTES and note not in notes:
            self.set(replace(self.value, notes=(*notes, note)))
            log.debug("server_is_odd", server=self.name, note=note)

    def publish(self, state: ServerState, error: str | None, restart_delay: float | None = None) -> bool:
        """Set the state and the error, and wake all waiting tasks; return True if the state or the error changed.

        A disabled server stays disabled.
        """
        error = to_one_line(error, MAX_REASON_CHARS) if error else None
        before = self.value
        self.restart_delay = restart_delay
        if before.state is ServerState.DISABLED or (state, error) == (before.state, before.error):
            self.set(before)
            return False
        self.was_settled = True
        if state in (ServerState.FAILED, ServerState.STOPPED, ServerState.NEEDS_CREDENTIALS):
            self.set_tools(())
        self.set(replace(before, state=state, error=error))
        event = "server_ready" if state is ServerState.READY else "server_down"
        version, count = before.protocol_version, len(self.tools)
        log.debug(event, server=self.name, state=state.value, protocol_version=version, tools=count)
        self.notify()
        return True

    def notify(self) -> None:
        """Call the client's `on_change` callback."""
        if self._on_change is not None:
            self._on_change(self.name, self.status)

"""The status of one server, in one value that its supervisor and its session write and everybody else waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from dial_client.callbacks.server_callbacks import ServerLog
from dial_client.runtime.logs import get_logger
from dial_client.servers.observable import Observable
from dial_client.servers.status import MAX_REASON_CHARS, OnChange, ServerState, ServerStatus
from dial_client.text.safe_text import one_line

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

log = get_logger(__name__)

MAX_NOTES = 50
MAX_LOGS = 100
"""Log messages of a server that are kept: the last ones."""
MAX_INSTRUCTIONS = 20_000
"""Characters of a server's own instructions that are kept."""


class ObservableStatus:
    """The status and the tools of one server.

    Args:
        name: the server's name in the configuration.
        on_change: is told of each change of the state or of the tools.
        is_enabled: False for a server that is not to be started.
    """

    def __init__(self, name: str, on_change: OnChange | None, *, is_enabled: bool) -> None:
        self.name = name
        self.tools: tuple[Tool, ...] = ()
        self.revision = 0
        """Grows with each change of `tools`."""
        self.is_settled = False
        """True once the first start has come to a result."""
        self.restart_delay: float | None = None
        """Seconds from the end of the last session to the next start; None if there is none, or not yet known."""
        self.logs: deque[ServerLog] = deque(maxlen=MAX_LOGS)
        self._status = Observable(ServerStatus(name, ServerState.STARTING if is_enabled else ServerState.DISABLED))
        self._notes: dict[str, None] = {}
        self._read_stderr: Callable[[], tuple[str, ...]] = tuple
        self._on_change = on_change

    @property
    def state(self) -> ServerState:
        """The state of the moment."""
        return self._status.value.state

    @property
    def error(self) -> str | None:
        """Why the server failed or was last restarted."""
        return self._status.value.error

    @property
    def is_waking(self) -> bool:
        """True if a server whose tools are on offer is being started."""
        return (self.is_settled or bool(self.tools)) and self.state in (ServerState.SLEEPING, ServerState.STARTING)

    def snapshot(self) -> ServerStatus:
        """Return all that is known of the server at this moment."""
        return replace(
            self._status.value,
            tools=tuple(tool.name for tool in self.tools),
            notes=tuple(self._notes),
            stderr=self._read_stderr(),
            logs=tuple(self.logs),
        )

    async def wait_until(self, predicate: Callable[[], bool]) -> None:
        """Wait until the predicate, which is looked at whenever the state is published, is true."""
        await self._status.wait_until(lambda _: predicate())

    def start_session(self, read_stderr: Callable[[], tuple[str, ...]]) -> None:
        """Record that a session begins, and where the last lines of standard error are read from now on."""
        self.restart_delay = None
        self._read_stderr = read_stderr

    def count_restart(self) -> None:
        """Record that the server is started again."""
        status = self._status.value
        self._status.set(replace(status, restarts=status.restarts + 1))

    def set_server(self, client: Client) -> None:
        """Record what the server says about itself: name, version, instructions, and the negotiated protocol."""
        info, instructions = client.server_info, client.instructions
        self._status.set(
            replace(
                self._status.value,
                protocol_version=client.protocol_version,
                instructions=instructions[:MAX_INSTRUCTIONS] if instructions else None,
                server_name=info.name if info else None,
                server_version=info.version if info else None,
            )
        )

    def set_tools(self, tools: tuple[Tool, ...]) -> bool:
        """Replace the tools; True if they differ from the ones before. Nobody is notified."""
        if tools == self.tools:
            return False
        self.tools, self.revision = tools, self.revision + 1
        return True

    def add_note(self, note: str) -> None:
        """Keep an oddity of the server that harms nothing."""
        if len(self._notes) < MAX_NOTES and note not in self._notes:
            self._notes[note] = None
            log.debug("server_is_odd", server=self.name, note=note)

    def publish(self, state: ServerState, error: str | None, restart_delay: float | None = None) -> bool:
        """Set the state and wake every waiting task; True if it changed. A disabled server stays disabled."""
        error = one_line(error, MAX_REASON_CHARS) if error else None
        before = self._status.value
        is_change = before.state is not ServerState.DISABLED and (state, error) != (before.state, before.error)
        self.restart_delay = restart_delay
        if is_change:
            self.is_settled = True
            if state in (ServerState.FAILED, ServerState.STOPPED):
                self.set_tools(())
        self._status.set(replace(before, state=state, error=error) if is_change else before)
        if is_change:
            event = "server_ready" if state is ServerState.READY else "server_down"
            version, count = before.protocol_version, len(self.tools)
            log.debug(event, server=self.name, state=state.value, protocol_version=version, tools=count)
            self.notify()
        return is_change

    def notify(self) -> None:
        """Notify the client that the state or the tools have changed."""
        if self._on_change is not None:
            self._on_change(self.name, self.snapshot())

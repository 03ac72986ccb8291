"""Starts the servers of a configuration once, for all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from dial_client.client.dial_client import DialClient
from dial_client.messages.message import ToolSpec
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings

MAX_SECONDS = 10.0
"""Timeout in seconds for servers to become ready."""


@dataclass(frozen=True, slots=True)
class ServerOutcome:
    """The states, tools and problems of the started servers."""

    statuses: Mapping[str, ServerStatus] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds from the start of all servers until each server was ready. Servers that are not ready are missing."""
    tools: tuple[ToolSpec, ...] = ()
    notes: tuple[str, ...] = ()
    """The problems with tools, one line each."""


class ServerRun:
    """Starts the servers once, for all checks.

    Args:
        servers: The servers' settings.
        seconds: Timeout for servers to become ready.
    """

    def __init__(self, servers: Mapping[str, ServerSettings], seconds: float) -> None:
        self._servers = servers
        self._seconds = seconds
        self._outcome = ServerOutcome()
        self._is_known = anyio.Event()

    async def run(self) -> None:
        """Start the servers, record the outcome, and stop the servers."""
        dial = DialClient(servers=self._servers)
        try:
            await dial.open()
            self._outcome = await _watch(dial, self._seconds)
        finally:
            self._is_known.set()
            await dial.aclose()

    async def wait_for_outcome(self) -> ServerOutcome:
        """Wait for the outcome, which `run` determines."""
        await self._is_known.wait()
        return self._outcome


async def _watch(dial: DialClient, seconds_to_start: float) -> ServerOutcome:
    started_at, seconds = anyio.current_time(), dict[str, float]()
    with anyio.move_on_after(seconds_to_start):
        while True:
            statuses = dial.servers
            ready = [name for name, status in statuses.items() if status.state is ServerState.READY]
            seconds.update({name: anyio.current_time() - started_at for name in ready if name not in seconds})
            if all(status.state is not ServerState.STARTING for status in statuses.values()):
                break
            await dial.wait_for_server_change()
    return ServerOutcome(dict(dial.servers), seconds, dial.tools, dial.notes)

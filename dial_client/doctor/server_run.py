"""The servers of a configuration, started once for all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from dial_client.client.dial_client import DialClient
from dial_client.messages.message import ToolSpec
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings

MAX_SECONDS = 10.0
"""Seconds that servers have to become ready."""


@dataclass(frozen=True, slots=True)
class ServerOutcome:
    """What became of the servers."""

    statuses: Mapping[str, ServerStatus] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """From the start of all servers until each was ready; the others are not in it."""
    tools: tuple[ToolSpec, ...] = ()
    notes: tuple[str, ...] = ()
    """The problems with tools, a line each."""


class ServerRun:
    """Starts the servers once, for all checks.

    Args:
        servers: their settings.
        seconds: that servers have to become ready.
    """

    def __init__(self, servers: Mapping[str, ServerSettings], seconds: float) -> None:
        self._servers = servers
        self._seconds = seconds
        self._outcome = ServerOutcome()
        self._is_known = anyio.Event()

    async def run(self) -> None:
        """Start the servers, note what becomes of them, and stop them again."""
        dial = DialClient(self._servers)
        try:
            await dial.open()
            self._outcome = await _watch(dial, self._seconds)
        finally:
            self._is_known.set()
            await dial.aclose()

    async def outcome(self) -> ServerOutcome:
        """Wait until it is known what became of the servers; `run` does the work."""
        await self._is_known.wait()
        return self._outcome


async def _watch(dial: DialClient, seconds_to_start: float) -> ServerOutcome:
    began, seconds = anyio.current_time(), dict[str, float]()
    with anyio.move_on_after(seconds_to_start):
        while True:
            statuses = dial.servers
            ready = [name for name, status in statuses.items() if status.state is ServerState.READY]
            seconds.update({name: anyio.current_time() - began for name in ready if name not in seconds})
            if all(status.state is not ServerState.STARTING for status in statuses.values()):
                break
            await dial.wait_for_server_change()
    return ServerOutcome(dict(dial.servers), seconds, dial.tools, dial.notes)

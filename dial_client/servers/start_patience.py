"""How long turns wait for servers that are starting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio

from dial_client.servers.connection import Connection
from dial_client.servers.observable import Observable
from dial_client.servers.status import ServerState

STARTUP_PATIENCE = 10.0
"""Seconds a turn waits for a server that is starting, counted from the server's start."""
CACHED_TOOLS_SECONDS = 1.0
"""Seconds after a server's start when the cached tools of the last run are offered."""
_POLL_SECONDS = 0.5
"""Seconds between two checks of whether a download is still running."""


class StartPatience:
    """Decides which servers turns wait for.

    A turn waits for a server marked ``required`` until the server is ready or has failed. For other servers it waits
    at most `seconds` after their start, and at most `CACHED_TOOLS_SECONDS` if tools are cached. If a server's package
    is recognizably being downloaded, and no server has tools yet, the turn waits for the download.

    Args:
        seconds: The time limit in seconds; infinite to wait for every server.
        connections: The servers by name. The mapping may change.
        announcements: A counter that is increased when turns stop waiting for a server.
    """

    def __init__(self, seconds: float, connections: Mapping[str, Connection], announcements: Observable[int]) -> None:
        self._seconds = seconds
        self._connections = connections
        self._announcements = announcements
        self._skipped: set[Connection] = set()

    async def wait(self) -> None:
        """Wait until a turn may begin."""
        await self._announcements.wait_until(lambda _: not self.awaited)

    @property
    def awaited(self) -> Mapping[str, str]:
        """The names of the servers that a turn waits for now, each with its running download; empty for no download."""
        return {
            name: _describe_download(connection)
            for name, connection in self._connections.items()
            if not connection.is_settled and connection not in self._skipped
        }

    @property
    def left_out(self) -> Mapping[str, str]:
        """The servers that are still starting but that turns no longer wait for, in the form of `awaited`."""
        return {
            name: _describe_download(connection)
            for name, connection in self._connections.items()
            if connection in self._skipped and not connection.tools and _is_starting(connection)
        }

    def skip_starting(self) -> tuple[str, ...]:
        """Stop waiting for the servers that are still starting, and return their names."""
        starting = {name: connection for name, connection in self._connections.items() if _is_starting(connection)}
        self._skip(starting.values())
        return tuple(starting)

    async def limit(self, connection: Connection) -> None:
        """Wait for the first start of a server; after the time limit let turns begin without it."""
        if connection.settings is not None and connection.settings.required:
            return
        if await _wait_settled(connection, min(CACHED_TOOLS_SECONDS, self._seconds)):
            return
        if not connection.offer_cached_tools():
            if await _wait_settled(connection, self._seconds - CACHED_TOOLS_SECONDS):
                return
            while _describe_download(connection) and not self._has_tools():
                if await _wait_settled(connection, _POLL_SECONDS):
                    return
        self._skip((connection,))

    def _has_tools(self) -> bool:
        return any(connection.tools for connection in self._connections.values())

    def _skip(self, connections: Iterable[Connection]) -> None:
        self._skipped.update(connections)
        self._announcements.set(self._announcements.value + 1)


def _is_starting(connection: Connection) -> bool:
    return connection.summary.state is ServerState.STARTING


def _describe_download(connection: Connection) -> str:
    if not connection.status.stderr or not _is_starting(connection):
        return ""
    from dial_client.servers.package_downloads import describe_download

    return describe_download(connection.settings, connection.status.stderr)


async def _wait_settled(connection: Connection, seconds: float) -> bool:
    with anyio.move_on_after(max(0.0, seconds)):
        await connection.wait_settled()
    return connection.is_settled

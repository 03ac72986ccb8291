"""All servers of a client: started side by side, each by the task that owns it, and leaving nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import anyio

from dial_client.connection import Connection
from dial_client.host_side import HostSide
from dial_client.life import FRESH_SECONDS, Target
from dial_client.nursery import Nursery
from dial_client.server_status import ServerState

Connect = Callable[[str, Target, HostSide], Connection]
"""Makes the connection to one server; it is not started yet."""


class Connections(Mapping[str, Connection]):
    """All servers of a client, by their names in the configuration."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        host: HostSide = HostSide(),  # noqa: B008 - frozen
        connect: Connect = Connection,
    ) -> None:
        self._connections = {name: connect(name, target, host) for name, target in targets.items()}

    def __getitem__(self, name: str) -> Connection:
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def start(self, nursery: Nursery) -> None:
        """Start all servers side by side, without waiting for any."""
        for connection in self.values():
            connection.start(nursery)

    async def ready(self) -> None:
        """Wait until of every server it is known whether it can be used."""
        for connection in self.values():
            await connection.ready()

    async def fresh(self) -> None:
        """Wait until announced changes of tools are in, at most `FRESH_SECONDS`: good to do before a round."""
        with anyio.move_on_after(FRESH_SECONDS):
            for connection in self.values():
                await connection.fresh()

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often each server was started again."""
        return {name: connection.status.restarts for name, connection in self.items()}

    def notes_since(self, restarts: Mapping[str, int]) -> tuple[str, ...]:
        """Say, a line each, which servers have died since there were so many `restarts`, and are up again."""
        now = (connection.status for connection in self.values())
        back = (s for s in now if s.state is ServerState.READY and s.restarts > restarts.get(s.name, 0))
        return tuple(f"server {s.name!r} died and was started again: {s.error}" for s in back)

    async def aclose(self) -> None:
        """Stop all servers side by side, and wait until nothing of them is left. May be called twice, from any task."""
        for connection in self.values():
            connection.stop()
        with anyio.CancelScope(shield=True):
            for connection in self.values():
                await connection.ended()

"""The servers of a client: their tools, status and notes, and the methods that change servers or wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dial_client.client import client_setup
from dial_client.client.function_methods import check_name
from dial_client.messages.message import ToolSpec
from dial_client.servers.connection import Connection
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import ServerStatus
from dial_client.tools.approval import ApprovalChecker
from dial_client.tools.apps import Apps
from dial_client.tools.executor import ToolExecutor
from dial_client.tools.tool_selection import ToolSnapshots
from dial_client.turn_data.limits import Limits


class ServerMethods:
    """The methods of a client that have to do with its servers."""

    approvals: ApprovalChecker
    """Decides which calls run."""
    _servers: ServerManager
    _tools: ToolSnapshots
    _executor: ToolExecutor
    limits: Limits

    @property
    def apps(self) -> Apps:
        """The MCP Apps of all servers, for a program that shows them (`Callbacks.apps`)."""
        return Apps(self._servers, self._tools.catalog, self._executor, self.limits)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as they are offered to the model, sorted by name."""
        return self._tools.catalog().tools

    @property
    def tool_name_client_map(self) -> Mapping[str, Connection]:
        """For each offered name the connection to the server that has the tool; functions have none."""
        routes = self._tools.catalog().routes
        servers = {name: self._servers.get(route.spec.server) for name, route in routes.items()}
        return MappingProxyType({name: server for name, server in servers.items() if server is not None})

    @property
    def servers(self) -> Mapping[str, ServerStatus]:
        """The status of each server: state, era, tools, why it failed, its last lines on stderr."""
        return MappingProxyType({name: connection.status for name, connection in self._servers.items()})

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems with servers and tools, a line each: why one is missing, what is odd."""
        return (
            *self._servers.notes,
            *self._tools.catalog().notes,
            *self.approvals.notes(self._servers, self._tools.functions),
        )

    async def add_server(self, name: str, entry: Any) -> ServerStatus:
        """Connect one more server, and return its status once it is ready or known not to be.

        Its tools are on offer in the next round, of running turns too. Cancelling this takes the server back.

        Args:
            name: a name no other server has.
            entry: as for the class.

        Raises:
            ConfigError: the entry is wrong, or there is a server of this name.
            TypeError: the entry can be no server.
        """
        target = client_setup.server_target(name, entry)
        if self._tools.functions.tools:
            check_name(self._tools.functions.name, (name,))
        return await self._servers.add(name, target)

    async def remove_server(self, name: str) -> None:
        """Stop a server, leaving nothing behind; calls in flight become error results.

        Raises:
            ConfigError: there is no server of this name.
        """
        self.approvals.forget(name)
        await self._servers.remove(name)

    async def restart_server(self, name: str) -> ServerStatus:
        """Stop a server and start it anew, one that was given up too. Raises as `remove_server`."""
        return await self._servers.restart(name)

    async def ready_for_turn(self) -> None:
        """Wait until a turn can begin: as `ready`, but not longer than the start-up patience of the client.

        Raises:
            ServerStartError: a server marked ``required`` did not start.
        """
        await self._servers.patience.wait()
        self._servers.require()

    @property
    def awaited_servers(self) -> Mapping[str, str]:
        """The servers that a turn waits for now, and what is being downloaded for each; empty for nothing."""
        return self._servers.patience.awaited

    def skip_starting(self) -> tuple[str, ...]:
        """Let turns begin without the servers that are still starting, and return the names of these servers.

        Their tools join when the servers are ready.
        """
        return self._servers.patience.skip_starting()

    async def wait_for_server_change(self) -> None:
        """Wait until the state or the tools of a server change: `servers` and `tools` may differ afterwards."""
        before = self._servers.announcements.value
        await self._servers.announcements.wait_until(lambda count: count != before)

"""The servers of a client: their tools, status and notes, and the methods that change servers or wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dial_client.client import client_setup
from dial_client.client.function_methods import check_name
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolSpec
from dial_client.servers.connection import Connection
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import ServerStatus
from dial_client.tools.approval import ApprovalChecker
from dial_client.tools.apps import Apps
from dial_client.tools.executor import ToolExecutor
from dial_client.tools.tool_selection import ToolSnapshots


class ServerMethods:
    """The methods of `DialClient` for its servers."""

    approvals: ApprovalChecker
    """Decides for each tool call whether it may run."""
    _servers: ServerManager
    _tools: ToolSnapshots
    _executor: ToolExecutor
    limits: Limits

    @property
    def apps(self) -> Apps:
        """The MCP Apps of all servers, for a program that shows them (`Callbacks.apps`)."""
        return Apps(self._servers, self._tools.get_catalog, self._executor, self.limits)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered to the model, sorted by name."""
        return self._tools.get_catalog().tools

    @property
    def tool_name_client_map(self) -> Mapping[str, Connection]:
        """The connection to the server of each tool, by the tool's offered name; without functions."""
        routes = self._tools.get_catalog().routes
        servers = {name: self._servers.get(route.spec.server) for name, route in routes.items()}
        return MappingProxyType({name: server for name, server in servers.items() if server is not None})

    @property
    def servers(self) -> Mapping[str, ServerStatus]:
        """The status of each server, by name: state, protocol version, tools, error, last lines of stderr."""
        return MappingProxyType({name: connection.status for name, connection in self._servers.items()})

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems with servers and tools, one line each, such as why a tool is missing."""
        return (
            *self._servers.notes,
            *self._tools.get_catalog().notes,
            *self.approvals.check_patterns(self._servers, self._tools.functions),
        )

    async def add_server(self, name: str, entry: Any) -> ServerStatus:
        """Connect another server, and return its status once it is ready or has failed.

        Its tools are offered from the next round on, also in running turns. Cancelling this call removes the server.

        Args:
            name: The name of the server, which no other server has.
            entry: The server's entry, as for `DialClient`.

        Raises:
            ConfigError: The entry is wrong, or another server has this name.
            TypeError: An object of this type cannot be a server.
        """
        target = client_setup.read_server_target(name, entry)
        if self._tools.functions.tools:
            check_name(self._tools.functions.name, (name,))
        return await self._servers.add(name, target)

    async def remove_server(self, name: str) -> None:
        """Stop a server and remove it; calls in flight end with error results.

        Raises:
            ConfigError: There is no server of this name.
        """
        self.approvals.forget(name)
        await self._servers.remove(name)

    async def replace_server(self, name: str, entry: Any) -> ServerStatus:
        """Stop a server, and connect another entry under its name; return its status once it is ready or has failed.

        The server stays in `servers` meanwhile. Calls in flight end with error results. Arguments are those of
        `add_server`.

        Raises:
            ConfigError: The entry is wrong, or there is no server of this name.
            TypeError: An object of this type cannot be a server.
        """
        target = client_setup.read_server_target(name, entry)
        self.approvals.forget(name)
        return await self._servers.replace(name, target)

    async def restart_server(self, name: str) -> ServerStatus:
        """Restart a server, also one that was given up, and return its status. Raises as `remove_server`."""
        return await self._servers.restart(name)

    async def ready_for_turn(self) -> None:
        """Wait until a turn can begin: for every ``required`` server, for others at most ``startup_patience`` seconds.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
        """
        await self._servers.patience.wait()
        self._servers.require()

    @property
    def awaited_servers(self) -> Mapping[str, str]:
        """The servers that a turn waits for now, by name; each value describes a running download, or is empty."""
        return self._servers.patience.awaited

    def skip_starting(self) -> tuple[str, ...]:
        """Let turns begin without the servers that are still starting, and return the names of these servers.

        Their tools are offered once the servers are ready.
        """
        return self._servers.patience.skip_starting()

    async def wait_for_server_change(self) -> None:
        """Wait until the state or the tools of a server change, as `servers` and `tools` then show."""
        before = self._servers.announcements.value
        await self._servers.announcements.wait_until(lambda count: count != before)

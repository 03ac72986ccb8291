"""The MCP Apps of all servers: their HTML, and the requests that a displayed app sends."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import ServerError
from dial_client.messages.events import discard_event
from dial_client.messages.mcp_apps import AppResource, build_error_result
from dial_client.messages.message import ToolCallRequest
from dial_client.runtime.deadline import Deadline
from dial_client.servers.connection import Connection
from dial_client.servers.resources import ask_server, read_app_resource, wait_for_connection
from dial_client.tools.catalog import Catalog
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.taint import Taint, is_untrusted


@dataclass(frozen=True, eq=False, slots=True)
class Apps:
    """The MCP Apps of all servers: ``dial.apps``."""

    _connections: Mapping[str, Connection]
    # Runs calls, so that the calls of apps are validated and approved too.
    _executor: ToolExecutor

    async def read(self, server: str, uri: str) -> AppResource:
        """Return the HTML of an app (`App.uri`), and the origins that it may access.

        Raises:
            ServerGone: The server is not available.
            ServerError: There is no such server or resource, or the resource is not the HTML of an app.
        """
        return await read_app_resource(self._connections, server, uri)

    async def read_resource(self, server: str, uri: str) -> dict[str, Any]:
        """Return the ``ReadResourceResult`` of a resource, for a ``resources/read`` of an app of the same server.

        Raises:
            ServerGone: The server is not available.
            ServerError: There is no such server or resource.
        """
        read = await ask_server(self._connections, server, lambda client: client.read_resource(uri))
        return read.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def call(
        self, server: str, tool: str, arguments: Mapping[str, Any], *, origin: Origin | None = None
    ) -> dict[str, Any]:
        """Call a tool for an app of the same server, and return the ``CallToolResult`` for ``tools/call``.

        The call needs the same approval as a call of the model. If it is denied or fails, the result has ``isError``.
        The model does not see the call.

        Args:
            server: The name of the app's server in the configuration.
            tool: The tool's own name at that server.
            arguments: The arguments of the call.
            origin: The ids of the conversation and turn, for the approver and the audit log.

        Raises:
            ServerError: The server has no such tool, or apps may not call it.
        """
        connection = await wait_for_connection(self._connections, server)
        route = self._executor.catalog().app_routes.get((server, tool))
        if route is None:
            raise ServerError(server, f"it has no tool {tool!r} for apps")
        spec = replace(route.spec, app_uri=f"ui://{server}")  # any app URI makes the executor return the whole result
        routes = {spec.name: replace(route, spec=spec)}
        taint = Taint((f"{server}/{tool}",)) if is_untrusted(connection) else None
        executor = self._executor.derive(lambda: Catalog(routes=routes), CallScope(taint=taint), origin or Origin())
        request = ToolCallRequest(f"app_{secrets.token_hex(8)}", spec.name, dict(arguments))
        result = await executor.execute(request, discard_event, Deadline(self._executor.limits.timeout))
        sent = result.app.result if result.app is not None else None
        return dict(sent) if sent is not None else build_error_result(result.error or "The call failed.")

    def describe_tool(self, server: str, tool: str) -> dict[str, Any] | None:
        """Return the definition of a tool as its server lists it, for ``hostContext.toolInfo``; None if unknown."""
        connection = self._connections.get(server)
        definition = next((listed for listed in connection.tools if listed.name == tool), None) if connection else None
        return definition.model_dump(mode="json", by_alias=True, exclude_none=True) if definition is not None else None

"""Requests of one client of 2026-07-28 over standard input and output.

There each request names its revision and its client. The SDK (mcp 2.3, `mcp.server.runner._serve_modern_stream`) makes
models, a connection and a cancel scope of that anew for each request; a client says the same each time, so here they
are made once for what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server import Server, runner
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dial_client.gateway.client_dispatcher import ClientDispatcher
from dial_client.gateway.standard_streams import StandardInput, StandardOutput

# False if another version of the SDK has no such class.
CAN_SERVE = hasattr(runner, "_NoServerRequestsDispatchContext")

# The members of ``_meta`` in which a client declares its revision, its name and its capabilities.
_ENVELOPE = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)

Params = Mapping[str, Any] | None


class ModernRequests:
    """Answers the requests of one client.

    Args:
        server: The server.
        lifespan_state: What the server's lifespan has made for the connection.
        incoming: The messages of the client.
        outgoing: The messages to the client.
    """

    def __init__(
        self, server: Server[Any], lifespan_state: object, incoming: StandardInput, outgoing: StandardOutput
    ) -> None:
        self._server, self._lifespan_state = server, lifespan_state
        self._dispatcher = ClientDispatcher(incoming, outgoing)
        self._outbound = NotifyOnlyOutbound(self._dispatcher)
        # The values of `_ENVELOPE` in the last request that was right; None before the first one.
        self._declared: list[Any] | None = None
        self._runner = self._build_runner(LATEST_MODERN_VERSION, None, None)

    async def run(self) -> None:
        """Answer requests until the client has closed the connection."""
        await self._dispatcher.run(self._answer, self._take_notification)

    async def _answer(self, context: DispatchContext[TransportContext], method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            asked = (params or {}).get("protocolVersion")
            data = {"supported": list(MODERN_PROTOCOL_VERSIONS)} | ({"requested": asked} if asked else {})
            problem = "the connection has begun in revision 2026-07-28, which has no handshake"
            raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, problem, data)
        meta = (params or {}).get("_meta")
        declared = [meta.get(key) for key in _ENVELOPE] if isinstance(meta, dict) else None
        if declared is None or declared != self._declared:
            self._accept(method, params)
            self._declared = declared
        try:
            return await self._runner.on_request(_without_requests(context), method, params)
        except (MCPError, ValidationError):
            raise
        except Exception as error:
            known = runner.modern_error_data(error)
            raise MCPError(known.code, known.message, known.data) from error

    def _accept(self, method: str, params: Params) -> None:
        """Check what the client declares now, and make a connection of the SDK of it."""
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        envelope = route.protocol_version, route.client_info, route.client_capabilities
        self._runner = self._build_runner(*envelope)

    async def _take_notification(self, context: DispatchContext[TransportContext], method: str, params: Params) -> None:
        await self._runner.on_notify(_without_requests(context), method, params)

    def _build_runner(self, version: str, client: Any, capabilities: Any) -> ServerRunner[Any]:
        # No part of the gateway leaves anything to be done when a `Connection` ends.
        connection = Connection.from_envelope(version, client, capabilities, outbound=self._outbound)
        return ServerRunner(self._server, connection, self._lifespan_state)


def _without_requests(context: DispatchContext[TransportContext]) -> DispatchContext[TransportContext]:
    """Return a context that sends no requests to the client, which this revision does not have."""
    return runner._NoServerRequestsDispatchContext(context)  # noqa: SLF001 - no other class does it

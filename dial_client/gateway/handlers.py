"""The form in which the parts of the gateway name the requests that they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from mcp.server.context import HandlerResult, ServerRequestContext
from mcp_types import RequestParams

# Answers a request: gets the SDK's context and the parameters, and returns the result; raises `MCPError`.
Handler = Callable[[ServerRequestContext[Any, Any], Any], Awaitable[HandlerResult]]
# The handlers by the methods of requests, each with the type of the parameters.
Handlers = Mapping[str, tuple[type[RequestParams], Handler]]


class GatewayPart(Protocol):
    """A part of the gateway that answers requests: tools, resources, prompts, the level of the log."""

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        ...

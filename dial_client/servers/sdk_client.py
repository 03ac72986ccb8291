"""The SDK's client with the options of this package: silenced logs, no cache, no validation of results."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from dial_client.messages import mcp_apps
from dial_client.servers.secret_masking import mask_log_record
from dial_client.servers.server_requests import ServerRequests
from dial_client.settings.config_types import Protocol

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.extension import ClientExtension
    from mcp_types import CallToolResult

LOG_SECONDS = 10.0
"""Seconds a server has to confirm the log level."""

OnMessage = Callable[[object], Awaitable[None]]


def create_client(target: Any, protocol: Protocol, on_message: OnMessage, requests: ServerRequests) -> Client:
    """Create the client of one session, without entering it.

    Args:
        target: A transport, or a server object of the SDK in this process.
        protocol: The protocol to open the session with.
        on_message: Is called with each notification of the server.
        requests: Answers the server's requests. Only features it has are declared to the server.
    """
    from mcp import Client
    from mcp_types import Implementation

    from dial_client import __version__

    _silence_sdk()
    return Client(
        target,
        mode=cast("Any", protocol.value),
        client_info=Implementation(name="dial-client", version=__version__),
        message_handler=cast("Any", on_message),
        elicitation_callback=requests.answer_elicitation if requests.has_feature("elicitation") else None,
        sampling_callback=requests.answer_sampling if requests.has_feature("sampling") else None,
        list_roots_callback=requests.answer_roots if requests.has_feature("roots") else None,
        logging_callback=requests.handle_log,
        log_level=cast("Any", requests.features.log_level),
        extensions=_build_extensions(requests),
        cache=None,
    )


def _build_extensions(requests: ServerRequests) -> list[ClientExtension]:
    """Return the extensions that the client declares to the server."""
    from mcp.client.extension import advertise

    return [advertise(mcp_apps.EXTENSION, {"mimeTypes": [mcp_apps.MIME_TYPE]})] if requests.features.apps else []


async def set_log_level(client: Client, level: str) -> None:
    """Set the log level of a server that speaks the older protocol; errors are ignored."""
    from mcp import MCPError
    from mcp_types import EmptyResult, SetLevelRequest, SetLevelRequestParams

    if client.server_capabilities.logging is not None:
        request = SetLevelRequest(params=SetLevelRequestParams(level=cast("Any", level)))
        with anyio.move_on_after(LOG_SECONDS), suppress(MCPError, ValueError):
            await client.session.send_request(request, EmptyResult)


def accept_results_unchecked(client: Client) -> None:
    """Stop the SDK from validating results against the output schema, for which it would list all tools."""
    client.session.validate_tool_result = _accept  # type: ignore[method-assign]


def _silence_sdk() -> None:
    """Silence the SDK's loggers that have no level set: they log arguments, and tracebacks of handled errors."""
    for name in ("mcp.client", "mcp.shared"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
    # The SDK's session uses the logger "client", which the user's program may use, too.
    logging.getLogger("client").addFilter(_is_not_from_sdk)
    logging.getLogger("httpx2").addFilter(mask_log_record)  # httpx2 logs the whole URL of each request


def _is_not_from_sdk(record: logging.LogRecord) -> bool:
    return "mcp" not in Path(record.pathname).parts


async def _accept(name: str, result: CallToolResult) -> None:
    """Accept any result: the code that reads it reports invalid parts, and uses the valid ones."""

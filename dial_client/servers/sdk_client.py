"""The SDK's client as this host wants it: quiet, without a cache, and no judge of results."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from dial_client.servers.secret_masking import mask_log_record
from dial_client.servers.server_requests import ServerRequests
from dial_client.settings.config_types import Protocol

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

LOG_SECONDS = 10.0
"""Seconds for a server to say that it will send log messages."""

OnMessage = Callable[[object], Awaitable[None]]


def create_client(target: Any, protocol: Protocol, on_message: OnMessage, requests: ServerRequests) -> Client:
    """Make the client of one connection; it is not entered yet.

    Args:
        target: a transport, or a server object of the SDK in this process.
        protocol: the era to speak.
        on_message: is given what the server says of its own accord.
        requests: answers what the server asks for; what the host does not do for servers is not offered to it.
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
        elicitation_callback=requests.elicitation if requests.offers("elicitation") else None,
        sampling_callback=requests.sampling if requests.offers("sampling") else None,
        list_roots_callback=requests.roots if requests.offers("roots") else None,
        logging_callback=requests.logging,
        log_level=cast("Any", requests.callbacks.log_level),
        cache=None,
    )


async def set_log_level(client: Client, level: str) -> None:
    """Ask a server of the older protocol for its log messages; whether it listens is its affair."""
    from mcp import MCPError
    from mcp_types import EmptyResult, SetLevelRequest, SetLevelRequestParams

    if client.server_capabilities.logging is not None:
        request = SetLevelRequest(params=SetLevelRequestParams(level=cast("Any", level)))
        with anyio.move_on_after(LOG_SECONDS), suppress(MCPError, ValueError):
            await client.session.send_request(request, EmptyResult)


def accept_results_unchecked(client: Client) -> None:
    """Keep the SDK from throwing away a result whose structured part is not as promised, after listing all tools."""
    client.session.validate_tool_result = _taken_as_it_is  # type: ignore[method-assign]


def _silence_sdk() -> None:
    """Keep the SDK quiet where the user set no level: it logs tracebacks of what it recovers from, and arguments."""
    for name in ("mcp.client", "mcp.shared"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
    # The SDK's session logs under a name that may be the user's own.
    logging.getLogger("client").addFilter(_is_not_the_sdks)
    logging.getLogger("httpx2").addFilter(mask_log_record)  # which names the whole address of each request


def _is_not_the_sdks(record: logging.LogRecord) -> bool:
    return "mcp" not in Path(record.pathname).parts


async def _taken_as_it_is(name: str, result: CallToolResult) -> None:
    """Judge no result: whoever reads it says what is wrong with it, and keeps the rest."""

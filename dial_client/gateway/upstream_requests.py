"""Requests of a gateway's client that are handed on to one server: a resource, a prompt, a completion.

The server's result is handed back as it is, and its error with the server's own code. During the request the server may
ask for input, as during a call: the request says which client it is for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from mcp import Client
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    SERVER_INFO_META_KEY,
    InputRequiredResult,
    InputResponseRequestParams,
    Result,
)

from dial_client.gateway.client_requests import ClientRequest
from dial_client.gateway.client_session import DEFAULT_LEVEL, ClientSession
from dial_client.gateway.questions import GivenApproval, Questions
from dial_client.gateway.suspended_calls import CallLost
from dial_client.hooks import call_context
from dial_client.hooks.call_context import CallContext
from dial_client.messages.errors import ServerError
from dial_client.runtime.deadline import Deadline
from dial_client.servers.connection import Connection
from dial_client.servers.resources import READ_SECONDS
from dial_client.servers.restart_policy import is_modern
from dial_client.tools.taint import is_untrusted

ResultT = TypeVar("ResultT", bound=Result)
# Sends a request with the SDK's client, with these arguments for `_meta`, and for what the client has brought with it.
SendUpstream = Callable[[Client, Mapping[str, Any]], Awaitable[ResultT]]

# The members of ``_meta`` that belong to one connection, and are not handed on to the server.
_OWN_META = ("progressToken", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/client")


def select_meta(session: ClientSession, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the members of a request's ``_meta`` that are for the server, and the level of the client's log."""
    selected = {key: value for key, value in (meta or {}).items() if not key.startswith(_OWN_META)}
    if not is_modern(session.protocol_version):  # before 2026-07-28 requests name no level
        selected[LOG_LEVEL_META_KEY] = session.log_level or DEFAULT_LEVEL
    return selected


async def answer_request(
    questions: Questions,
    session: ClientSession,
    context: ServerRequestContext[Any, Any],
    params: InputResponseRequestParams,
    make: Callable[[ClientRequest, GivenApproval | None], Awaitable[ResultT]],
) -> ResultT | InputRequiredResult:
    """Answer a request for a resource or a prompt, as `Questions.answer`.

    Raises:
        MCPError: The state or an answer is not valid; the request does not wait any more; or raised by `make`.
    """
    try:
        result = await questions.answer(session, context, params, make)
    except CallLost as lost:
        raise MCPError(INVALID_PARAMS, str(lost)) from lost
    assert not isinstance(result, dict)  # only calls of tools become tasks
    return result


async def send_upstream(
    connection: Connection, request: ClientRequest, send: SendUpstream[ResultT], seconds: float | None = None
) -> ResultT:
    """Send a request for a client to a server, and return the result.

    If the configuration marks the server as untrusted, the client's session is from now on, too: a resource or a prompt
    is as much a stranger's text as the result of a tool.

    Args:
        connection: The server; it is started if it sleeps.
        request: The client's request.
        send: Sends the request.
        seconds: Timeout in seconds, without the time that a person takes to answer; None for the ``toolTimeout`` of
            the server, or `READ_SECONDS`.

    Raises:
        InputRequired: The client has to answer the server first, and repeats its request.
        MCPError: The server refused, with its own code; or it is not available, or did not answer in time.
    """
    if seconds is None:
        own = connection.settings.tool_timeout if connection.settings is not None else None
        seconds = READ_SECONDS if own is None else own
    meta = select_meta(request.session, request.context.meta) or None
    deadline = Deadline(seconds)
    call = CallContext(deadline, deadline, origin=request.origin, caller=request)
    try:
        with deadline.scope(), call_context.set_current(call):
            await connection.wait_settled()
            given = request.take_input(connection.name)
            options = {"meta": meta} | ({} if given is None else given.build_arguments())
            result = await connection.ask(lambda client: send(client, options), seconds)
            if is_untrusted(connection):
                request.session.taint.add(connection.name)
            return _drop_server_info(result)
    except ServerError as error:
        raise to_protocol_error(error) from error
    raise MCPError(INTERNAL_ERROR, f"The server {connection.name!r} gave no answer within {seconds:g} seconds")


def to_protocol_error(error: ServerError) -> MCPError:
    """Return the error for the client: with the code of the server, if the server has answered with an error."""
    cause = error.__cause__
    if isinstance(cause, MCPError):
        return MCPError(cause.error.code, cause.error.message, cause.error.data)
    return MCPError(INTERNAL_ERROR, f"The server {error.server!r} is not available: {error.problem}")


def _drop_server_info(result: ResultT) -> ResultT:
    """Return a result without the name of the server, since 2026-07-28 in each: to the client, the gateway is it."""
    if not result.meta or SERVER_INFO_META_KEY not in result.meta:
        return result
    meta = {key: value for key, value in result.meta.items() if key != SERVER_INFO_META_KEY}
    return result.model_copy(update={"meta": meta or None})

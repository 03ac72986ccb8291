"""Classification of errors: what an error means for its call and for the session. No other module classifies them.

classify_call_error     classifies an error of a call as a `CallFailureKind`
classify_start_error    classifies an error of opening a session as a `StartFailure`
to_message              returns one line that helps the user to fix the problem
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from http.client import responses
from typing import Any

import anyio
import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from dial_client.messages.errors import ServerError
from dial_client.runtime.network_environment import remark_on_network
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.restart_policy import ExitKind
from dial_client.servers.server_requests import NeedsOlderProtocol
from dial_client.servers.status import MAX_REASON_CHARS

# Code of the JSON-RPC errors created by `transports.streamable_http`; from the range reserved for implementations.
HTTP_FAILURE = -32010

# Outcomes of a request after a network error: not sent, or unknown.
UNSENT, BROKEN = "unsent", "broken"

# Error codes with which server SDKs reject an unknown session.
_SESSION_CODES = (INVALID_REQUEST, -32000, -32001)


# HTTP statuses with which an HTTP+SSE endpoint rejects streamable HTTP (MCP, "Backwards Compatibility").
_OTHER_TRANSPORT = (400, 404, 405)


class AuthenticationFailed(httpx2.RequestError):
    """A request could not be authorized. The text is suited to be shown to users."""


def find_cause(error: BaseException) -> BaseException:
    """Return the cause in an exception group: the first error that is not a mere consequence of another one.

    An error that is no group is returned itself.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [find_cause(inner) for inner in error.exceptions]
    effects = (anyio.get_cancelled_exc_class(), anyio.ClosedResourceError, anyio.BrokenResourceError)
    return next((cause for cause in causes if not isinstance(cause, effects) and not is_closed(cause)), causes[0])


def is_closed(error: BaseException) -> bool:
    """Return True if the error is the SDK's error for a closed connection."""
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _read_data(error: BaseException) -> dict[str, Any]:
    data = error.data if isinstance(error, MCPError) and error.code == HTTP_FAILURE else None
    return data if isinstance(data, dict) else {}


def says_session_unknown(text: str) -> bool:
    """Return True if a server's error text contains a known phrase for an unknown session."""
    phrases = ("session not found", "session terminated", "no valid session")
    return any(phrase in text.lower() for phrase in phrases)


def to_message(error: BaseException) -> str:
    """Return the message for an error, in one line of at most `MAX_REASON_CHARS` characters."""
    return to_one_line(_to_message(find_cause(error)), MAX_REASON_CHARS)


def _to_message(error: BaseException) -> str:
    match error:
        case ServerError(problem=problem):
            return problem
        case MCPError(code=code, message=message) if code == HTTP_FAILURE or is_closed(error):
            return message
        case MCPError(code=code, message=message) if code == PARSE_ERROR and message.startswith("Failed to parse"):
            return "the server's answer is not valid JSON-RPC"
        case MCPError(code=code, message=message) if code == REQUEST_TIMEOUT:
            return f"the server does not answer: {message}"
        case MCPError(code=code, message=message):
            return f"the server answered with an error: {message} ({code})"
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(str(part) for part in first["loc"])
            return f"the server's answer is not valid MCP: {path}: {first['msg']}"
        case httpx2.HTTPStatusError():
            return describe_http_status(error.response.status_code)
        case httpx2.RequestError():
            return describe_network_error(error)
        case _:
            return str(error) or type(error).__name__


def describe_network_error(error: Exception) -> str:
    """Return the message for a request that failed with a network error."""
    reason = str(error) or type(error).__name__
    match error:
        case AuthenticationFailed():
            return reason
        case httpx2.ConnectTimeout():
            return "the server cannot be reached: no connection in time"
        case httpx2.ConnectError():
            return f"the server cannot be reached: {reason}{remark_on_network(reason, _find_url(error))}"
        case httpx2.ProxyError():
            return f"the connection broke: {reason}{remark_on_network(reason, _find_url(error))}"
        case httpx2.TimeoutException():
            return "the server took too long to answer"
        case httpx2.SSEError():
            return f"the server's stream cannot be read: {reason}"
        case _:
            return f"the connection broke: {reason}"


def _find_url(error: httpx2.RequestError) -> str:
    """Return the URL of a failed request; empty if the error has no request."""
    try:
        return str(error.request.url)
    except RuntimeError:
        return ""


def describe_http_status(status: int) -> str:
    """Return the message for an HTTP status, for the user who configured the server."""
    phrase = responses.get(status, "an unknown status")
    return f"the server answered HTTP {status} ({phrase}){_ADVICE.get(status, '')}"


_ADVICE = {
    401: ": it requires a login; is there a valid token in `headers`?",
    403: ": this login has no permission to use it",
    404: ": there is nothing at this URL",
    405: ": this URL does not accept MCP requests; is it the right URL?",
    407: ": the proxy requires a login",
    429: ": too many requests",
}


class CallFailureKind(Enum):
    """How a call failed."""

    NEEDS_OLDER_PROTOCOL = auto()
    """The server could not send a request of its own during the call."""
    SESSION_REJECTED = auto()
    """The call did not run: the server answered that it does not know the session."""
    SESSION_UNKNOWN = auto()
    """The server does not know the session; the call may have run."""
    UNSENT = auto()
    """The call did not run: it could not be sent."""
    CONNECTION_CLOSED = auto()
    """The connection closed during the call."""
    BROKEN_OFF = auto()
    """A network error ended this request only: the call may have run, and the connection is usable."""
    REFUSED = auto()
    """The server answered with an error, or with an invalid result."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a session could not be opened."""

    kind: ExitKind
    message: str
    """The error in one line; empty if the SDK reports only a closed connection."""
    is_other_transport: bool
    """True if an endpoint of the older HTTP+SSE transport would answer like this."""


def classify_call_error(error: BaseException, *, has_session_id: bool) -> CallFailureKind:
    """Return how a call failed.

    Args:
        error: The error, which may be an exception group.
        has_session_id: The call was sent with a session id, which the server may no longer know.
    """
    cause = find_cause(error)
    if isinstance(cause, NeedsOlderProtocol):
        return CallFailureKind.NEEDS_OLDER_PROTOCOL
    if not isinstance(cause, MCPError):
        return CallFailureKind.REFUSED
    data = _read_data(cause)
    if has_session_id and data.get("session"):  # with a status that means that the request was not processed
        return CallFailureKind.SESSION_REJECTED
    if has_session_id and cause.code in _SESSION_CODES and says_session_unknown(cause.message):
        return CallFailureKind.SESSION_UNKNOWN
    if data.get("network") == UNSENT:
        return CallFailureKind.UNSENT
    if is_closed(cause):
        return CallFailureKind.CONNECTION_CLOSED
    is_cut_off = cause.code == CONNECTION_CLOSED and cause.message.startswith("SSE stream")
    if is_cut_off or (cause.code == HTTP_FAILURE and data.get("status") is None):
        return CallFailureKind.BROKEN_OFF
    return CallFailureKind.REFUSED


def classify_start_error(error: BaseException, *, has_url: bool) -> StartFailure:
    """Classify the error of opening a session.

    Args:
        error: The error that entering the SDK's client raised; may be an exception group.
        has_url: The server is reached by URL, which may become reachable later.
    """
    cause = find_cause(error)
    data = _read_data(cause)
    status = cause.response.status_code if isinstance(cause, httpx2.HTTPStatusError) else data.get("status")
    # Nothing answers at the URL, or only a gateway that cannot reach the server.
    has_network_error = isinstance(cause, httpx2.TransportError) or data.get("network") is not None
    kind = ExitKind.UNREACHABLE if has_url and (has_network_error or status in (502, 503, 504)) else ExitKind.DIED
    if status == 401:  # only the user can log in or change the token
        kind = ExitKind.MISCONFIGURED
    message = "" if is_closed(cause) else to_message(cause)
    return StartFailure(kind, message, status in _OTHER_TRANSPORT)

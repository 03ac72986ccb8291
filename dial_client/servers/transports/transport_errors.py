"""What went wrong with a server, in one line a person can act on."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import anyio
import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from dial_client.errors import ServerError
from dial_client.servers.status import MAX_REASON_CHARS
from dial_client.text.safe_text import one_line

HTTP_FAULT = -32010
"""The code of errors that `transports.http` makes; in the range JSON-RPC leaves to implementations."""

UNSENT, BROKEN = "unsent", "broken"
"""What became of a request that the network failed: it never left, or nobody knows."""
_GATEWAY = (502, 503, 504)
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

_SESSION_CODES = (INVALID_REQUEST, -32000, -32001)
"""What the SDKs answer to a session they do not know."""


class NotAdmitted(httpx2.RequestError):
    """A request did not get past the server's login; the text is for people."""


def cause_of(error: BaseException) -> BaseException:
    """Give what began it: the first error in a group that is not just an effect of another one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [cause_of(inner) for inner in error.exceptions]
    effects = (anyio.get_cancelled_exc_class(), anyio.ClosedResourceError, anyio.BrokenResourceError)
    return next((cause for cause in causes if not isinstance(cause, effects) and not is_closed(cause)), causes[0])


def is_closed(error: BaseException) -> bool:
    """Whether the SDK says that there is no connection any more."""
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def http_status(error: BaseException) -> int | None:
    """Give the HTTP status behind an error, where the server gave no better reason."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code
    return _data(error).get("status")


def _data(error: BaseException) -> dict[str, Any]:
    data = error.data if isinstance(error, MCPError) and error.code == HTTP_FAULT else None
    return data if isinstance(data, dict) else {}


def is_broken_off(error: BaseException) -> bool:
    """Whether the network failed a request, so that nobody knows how far the server came with it."""
    if not isinstance(error, MCPError):
        return False
    return (error.code == HTTP_FAULT and http_status(error) is None) or (
        error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream")
    )


def is_unreachable(error: BaseException) -> bool:
    """Whether nobody answers at a URL, or only somebody who cannot reach the server either."""
    return (
        isinstance(error, httpx2.TransportError)
        or http_status(error) in _GATEWAY
        or _data(error).get("network") is not None
    )


def was_unsent(error: BaseException) -> bool:
    """Whether there was no connection to send a request over."""
    return _data(error).get("network") == UNSENT


def was_turned_away(error: BaseException) -> bool:
    """Whether a request was answered, for its session, with a status that says that it was not processed."""
    return bool(_data(error).get("session"))


def is_forgotten_session(error: BaseException) -> bool:
    """Whether a server behind a URL, restarted perhaps, does not know our session any more."""
    if not isinstance(error, MCPError):
        return False
    return was_turned_away(error) or (error.code in _SESSION_CODES and says_forgotten(error.message))


def says_forgotten(words: str) -> bool:
    """Whether this is how servers say that they do not know a session."""
    said = words.lower()
    return any(forgotten in said for forgotten in ("session not found", "session terminated", "no valid session"))


def in_words(error: BaseException) -> str:
    """Say what an error means, in one line of bounded length."""
    return one_line(_in_words(cause_of(error)), MAX_REASON_CHARS)


def _in_words(error: BaseException) -> str:
    match error:
        case ServerError(problem=problem):
            return problem
        case MCPError(code=code, message=message) if code == HTTP_FAULT or is_closed(error):
            return message
        case MCPError(code=code, message=message) if code == PARSE_ERROR and message.startswith("Failed to parse"):
            return "the server's answer is not valid JSON-RPC"
        case MCPError(code=code, message=message) if code == REQUEST_TIMEOUT:
            return f"the server does not answer: {message}"
        case MCPError(code=code, message=message):
            return f"the server answered with an error: {message} ({code})"
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            return f"the server's answer is not valid MCP: {place}: {first['msg']}"
        case httpx2.HTTPStatusError():
            return of_status(error.response.status_code)
        case httpx2.RequestError():
            return of_network(error)
        case _:
            return str(error) or type(error).__name__


def fate_of(error: Exception) -> str:
    """Say what became of a request that failed: `UNSENT` or `BROKEN`."""
    return UNSENT if isinstance(error, _UNSENT) else BROKEN


def of_network(error: Exception) -> str:
    """Say what a failed request means."""
    reason = str(error) or type(error).__name__
    match error:
        case NotAdmitted():
            return reason
        case httpx2.ConnectTimeout():
            return "the server cannot be reached: no connection in time"
        case httpx2.ConnectError():
            return f"the server cannot be reached: {reason}"
        case httpx2.TimeoutException():
            return "the server took too long to answer"
        case httpx2.SSEError():
            return f"the server's stream cannot be read: {reason}"
        case _:
            return f"the connection broke: {reason}"


def of_status(status: int) -> str:
    """Say what an HTTP status means for somebody who configured a server."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "an unknown status"
    return f"the server answered HTTP {status} ({phrase}){_ADVICE.get(status, '')}"


_ADVICE = {
    401: ": it wants a login; is there a valid token in `headers`?",
    403: ": this login may not use it",
    404: ": there is nothing at this URL",
    405: ": this URL does not take what MCP sends; is it the right one?",
    407: ": the proxy wants a login",
    429: ": too many requests",
}

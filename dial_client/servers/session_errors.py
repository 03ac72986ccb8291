"""What an error means, for the call it came in and for the session: classified here and nowhere else.

classify_call_error     of a call: a `CallFailure`
classify_start_error    of opening a session: a `StartFailure`
to_tool_error           of a call that is over, in words for the model
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from dial_client.errors import ServerError, ServerGone
from dial_client.servers.restart_policy import ExitKind
from dial_client.servers.server_requests import NeedsOlderProtocol

_OTHER_TRANSPORT = (400, 404, 405)
"""What a URL that speaks only HTTP+SSE answers to streamable HTTP (MCP specification, "Backwards Compatibility")."""


class CallNotRun(ServerGone):
    """The call did not reach the server, or was rejected unread: it may safely be repeated."""


class CallFailureKind(Enum):
    """What became of a call that failed."""

    NEEDS_OLDER_PROTOCOL = auto()
    """It failed because the server could not send a request of its own."""
    SESSION_REJECTED = auto()
    """It was not run: the server answered that it does not know the session."""
    SESSION_UNKNOWN = auto()
    """The server does not know the session; the call may have run."""
    UNSENT = auto()
    """It was not run: there was no connection to send it over."""
    CONNECTION_CLOSED = auto()
    """The connection ended while it ran."""
    BROKEN_OFF = auto()
    """The network failed this request; it may have run, and the connection is usable."""
    REFUSED = auto()
    """The server answered with an error, or with an invalid result."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """What became of a call, and the error in one line."""

    kind: CallFailureKind
    message: str


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a session could not be opened."""

    kind: ExitKind
    message: str
    """In one line; empty where the SDK only says that the connection is closed."""
    is_other_transport: bool
    """True if the answer is what an endpoint of the older HTTP transport gives."""


def classify_call_error(error: BaseException, *, has_session_id: bool) -> CallFailure:
    """Find out what became of a call that raised.

    Args:
        error: the error, which may be a group.
        has_session_id: the call was sent with a session id, which a server can forget.
    """
    from dial_client.servers.transports import transport_errors

    cause = transport_errors.find_cause(error)
    return CallFailure(_find_kind(cause, has_session_id=has_session_id), transport_errors.to_message(cause))


def _find_kind(cause: BaseException, *, has_session_id: bool) -> CallFailureKind:
    from dial_client.servers.transports import transport_errors

    if isinstance(cause, NeedsOlderProtocol):
        return CallFailureKind.NEEDS_OLDER_PROTOCOL
    if has_session_id and transport_errors.is_session_rejected(cause):
        return CallFailureKind.SESSION_REJECTED
    if has_session_id and transport_errors.is_session_unknown(cause):
        return CallFailureKind.SESSION_UNKNOWN
    if transport_errors.is_unsent(cause):
        return CallFailureKind.UNSENT
    if transport_errors.is_closed(cause):
        return CallFailureKind.CONNECTION_CLOSED
    if transport_errors.is_broken_off(cause):
        return CallFailureKind.BROKEN_OFF
    return CallFailureKind.REFUSED


def classify_start_error(error: BaseException, *, has_url: bool) -> StartFailure:
    """Find out why a session could not be opened.

    Args:
        error: what entering the SDK's client raised, which may be a group.
        has_url: the server is behind a URL, where something may answer later.
    """
    from dial_client.servers.transports import transport_errors

    cause = transport_errors.find_cause(error)
    status = transport_errors.find_http_status(cause)
    kind = ExitKind.UNREACHABLE if has_url and transport_errors.is_unreachable(cause) else ExitKind.DIED
    if status == 401:  # only a person can do something about it
        kind = ExitKind.MISCONFIGURED
    message = "" if transport_errors.is_closed(cause) else transport_errors.to_message(cause)
    return StartFailure(kind, message, status in _OTHER_TRANSPORT)


def to_tool_error(error: ServerError) -> str:
    """Return what the model is told about a call that raised this error."""
    if isinstance(error, ServerGone):
        return f"The server {error.server!r} is not available: {error.problem}"
    return f"The call failed: {error.problem}"

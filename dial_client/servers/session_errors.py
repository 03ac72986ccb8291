"""Classification of errors: what an error means for its call and for the session. No other module classifies them.

classify_call_error     classifies an error of a call as a `CallFailure`
classify_start_error    classifies an error of opening a session as a `StartFailure`
to_tool_error           returns the error text of a failed call for the model
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from dial_client.messages.errors import ServerError, ServerGone
from dial_client.servers.restart_policy import ExitKind
from dial_client.servers.server_requests import NeedsOlderProtocol

_OTHER_TRANSPORT = (400, 404, 405)
"""HTTP statuses with which an HTTP+SSE endpoint rejects streamable HTTP (MCP, "Backwards Compatibility")."""


class CallNotRun(ServerGone):
    """The call did not reach the server, or was rejected before it ran: it is safe to repeat."""


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
class CallFailure:
    """How a call failed, and the error in one line."""

    kind: CallFailureKind
    message: str


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a session could not be opened."""

    kind: ExitKind
    message: str
    """The error in one line; empty if the SDK reports only a closed connection."""
    is_other_transport: bool
    """True if an endpoint of the older HTTP+SSE transport would answer like this."""


def classify_call_error(error: BaseException, *, has_session_id: bool) -> CallFailure:
    """Classify the error of a call.

    Args:
        error: The error, which may be an exception group.
        has_session_id: The call was sent with a session id, which the server may no longer know.
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
    """Classify the error of opening a session.

    Args:
        error: The error that entering the SDK's client raised; may be an exception group.
        has_url: The server is reached by URL, which may become reachable later.
    """
    from dial_client.servers.transports import transport_errors

    cause = transport_errors.find_cause(error)
    status = transport_errors.find_http_status(cause)
    kind = ExitKind.UNREACHABLE if has_url and transport_errors.is_unreachable(cause) else ExitKind.DIED
    if status == 401:  # only the user can log in or change the token
        kind = ExitKind.MISCONFIGURED
    message = "" if transport_errors.is_closed(cause) else transport_errors.to_message(cause)
    return StartFailure(kind, message, status in _OTHER_TRANSPORT)


def to_tool_error(error: ServerError) -> str:
    """Return the error text for the model, for a call that raised this error."""
    if isinstance(error, ServerGone):
        return f"The server {error.server!r} is not available: {error.problem}"
    return f"The call failed: {error.problem}"

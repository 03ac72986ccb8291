"""Classification of call errors: whether the call may have run, and whether the session can continue."""

from __future__ import annotations

import pytest
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST

from tests.inner import (
    BROKEN,
    HTTP_FAILURE,
    UNSENT,
    CallFailureKind,
    CallNotRun,
    ExitKind,
    NeedsOlderProtocol,
    ServerError,
    ServerGone,
    classify_call_error,
    classify_start_error,
    to_tool_error,
)

REJECTED = MCPError(HTTP_FAILURE, "HTTP 404", {"status": 404, "session": "rejected"})
UNKNOWN = MCPError(INVALID_REQUEST, "Session not found")
CLOSED = MCPError(CONNECTION_CLOSED, "Connection closed")
UNAUTHORIZED = MCPError(HTTP_FAILURE, "HTTP 401", {"status": 401})
NOT_FOUND = MCPError(HTTP_FAILURE, "HTTP 404", {"status": 404})
NO_CONNECTION = MCPError(HTTP_FAILURE, "no connection", {"network": UNSENT})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NeedsOlderProtocol(), CallFailureKind.NEEDS_OLDER_PROTOCOL),
        (REJECTED, CallFailureKind.SESSION_REJECTED),
        (UNKNOWN, CallFailureKind.SESSION_UNKNOWN),
        (NO_CONNECTION, CallFailureKind.UNSENT),
        (CLOSED, CallFailureKind.CONNECTION_CLOSED),
        (MCPError(HTTP_FAILURE, "it broke", {"network": BROKEN}), CallFailureKind.BROKEN_OFF),
        (MCPError(INVALID_PARAMS, "no such tool"), CallFailureKind.REFUSED),
    ],
)
def test_each_call_error_has_one_kind(error: Exception, kind: CallFailureKind) -> None:
    assert classify_call_error(error, has_session_id=True) is kind


@pytest.mark.parametrize("error", [REJECTED, UNKNOWN])
def test_a_session_error_without_a_session_id_is_a_refusal(error: Exception) -> None:
    assert classify_call_error(error, has_session_id=False) is CallFailureKind.REFUSED


@pytest.mark.parametrize(
    ("error", "has_url", "kind", "is_other_transport"),
    [
        (NO_CONNECTION, True, ExitKind.UNREACHABLE, False),
        (NO_CONNECTION, False, ExitKind.DIED, False),
        (UNAUTHORIZED, True, ExitKind.MISCONFIGURED, False),
        (NOT_FOUND, True, ExitKind.DIED, True),
        (CLOSED, False, ExitKind.DIED, False),
    ],
)
def test_a_failed_start_is_classified_by_whether_a_retry_may_help(
    error: Exception, has_url: bool, kind: ExitKind, is_other_transport: bool
) -> None:
    failure = classify_start_error(error, has_url=has_url)
    assert (failure.kind, failure.is_other_transport) == (kind, is_other_transport)
    assert bool(failure.message) is (error is not CLOSED), "the transport knows how a connection was closed"


def test_the_error_for_the_model_distinguishes_server_and_call_failures() -> None:
    assert to_tool_error(ServerGone("shop", "it was stopped")) == "The server 'shop' is not available: it was stopped"
    assert to_tool_error(CallNotRun("shop", "no connection")).startswith("The server 'shop' is not available")
    assert to_tool_error(ServerError("shop", "no such tool")) == "The call failed: no such tool"

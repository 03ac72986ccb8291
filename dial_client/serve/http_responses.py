"""HTTP responses: JSON, and errors in OpenAI's format: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from dial_client.messages.errors import ConfigError, ConversationBusy, ConversationNotFound, DialError, ProviderError
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.sinks.sse_encoder import to_json

log = get_logger(__name__)

MAX_MESSAGE = 1_000
"""Characters of an error message."""

_INVALID_REQUEST = "invalid_request_error"


class HttpError(Exception):
    """An error response.

    Args:
        status: The HTTP status.
        message: The problem and how to correct it, for the user.
        code: The error's name for programs, such as ``model_not_found``.
        kind: The error's ``type`` in OpenAI's API.
        param: The part of the request that is wrong.
        headers: Further headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        kind: str = _INVALID_REQUEST,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.error = {"message": to_one_line(message, MAX_MESSAGE), "type": kind, "param": param, "code": code}

    def to_response(self) -> Response:
        """Return the response with the error as JSON."""
        return build_json_response({"error": self.error}, self.status, self.headers)


def build_json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(to_json(content), status, {"content-type": "application/json", **(headers or {})})


def to_http_error(error: Exception) -> HttpError:
    """Return the HTTP error for an exception that a request raised."""
    match error:
        case HttpError():
            return error
        case HTTPException():
            return HttpError(error.status_code, _describe(error), "not_found", headers=error.headers)
        case ConversationNotFound():
            return HttpError(404, str(error), "conversation_not_found")
        case ConversationBusy():
            return HttpError(409, str(error), "conversation_busy", headers={"retry-after": "1"})
        case ProviderError():
            return _from_provider_error(error)
        case ConfigError():
            return HttpError(400, str(error), "invalid_request")
        case DialError():
            return HttpError(500, str(error), "failed", kind="server_error")
        case _:
            log.warning("request_failed", error=type(error).__name__)
            return HttpError(500, "an unexpected error occurred", "unexpected", kind="server_error")


def _describe(error: HTTPException) -> str:
    return {404: "there is nothing at this path", 405: "this path does not support this method"}.get(
        error.status_code, error.detail
    )


_PASSED_THROUGH = frozenset({400, 413, 422, 429})
"""Statuses of the model's endpoint that are returned to the client: the client can correct or repeat its request.
Other statuses concern this server's own request and become 502 or 504."""


def _from_provider_error(error: ProviderError) -> HttpError:
    status = error.status if error.status in _PASSED_THROUGH else 504 if error.code == "timeout" else 502
    headers = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    kind = "rate_limit_error" if status == 429 else _INVALID_REQUEST if status < 500 else "upstream_error"
    return HttpError(status, str(error), error.code or "model_failed", kind=kind, headers=headers)

"""HTTP responses and request bodies: JSON, and errors in OpenAI's and Anthropic's forms.

An error is ``{"error": {"message", "type", "param", "code"}}``; at the paths of Anthropic's Messages API it is
``{"type": "error", "error": {"type", "message"}, "request_id"}``, with Anthropic's types and the id of `request_log`.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dial_client.messages.errors import (
    ConfigError,
    ConversationBusy,
    ConversationNotFound,
    DialError,
    NoModel,
    ProviderError,
    RequestRefused,
    StoreUnavailable,
)
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.sinks.sse_encoder import to_json


async def read_json(request: Request) -> dict[str, Any]:
    """Return the JSON object in the request's body; an empty body is an empty object.

    Raises:
        HttpError: The body is not a JSON object.
    """
    data = bytearray()  # unlike `Request.body`, this leaves no second copy of the body in the request
    async for chunk in request.stream():
        data += chunk
    try:
        # The encodings that `json.loads` detects: UTF-8, UTF-16 and UTF-32.
        text = data.decode(json.detect_encoding(data), "surrogatepass")
        body = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise HttpError(400, "the body is not JSON", "invalid_json") from None
    if not isinstance(body, dict):
        raise HttpError(400, "the body is not a JSON object", "invalid_json")
    return body


def read_string(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a string of a JSON body.

    Raises:
        HttpError: The value is missing and there is no default, or is not a string.
    """
    value = body.get(name, default)
    if not isinstance(value, str):
        raise HttpError(400, f"{name} must be a string", "bad_text", param=name)
    return value


def read_object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a JSON body; a missing object is empty.

    Raises:
        HttpError: The value is not an object.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise HttpError(400, f"{name} must be an object", f"bad_{name}", param=name)
    return value or {}


def read_list(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list of a JSON body; a missing list is empty.

    Raises:
        HttpError: The value is not a list.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, list):
        raise HttpError(400, f"{name} must be a list", f"bad_{name}", param=name)
    return value or []


def read_flag(body: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a truth value of a JSON body; `default` for none.

    Raises:
        HttpError: The value is neither true nor false.
    """
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise HttpError(400, f"{name} must be true or false", f"bad_{name}", param=name)
    return value


def parse_number(text: str) -> int | None:
    """Return the number that at most nine ASCII digits write; None for any other text."""
    # `isdigit` alone admits digits such as "²", and Python converts no more than 4,300 of them.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def read_limit(request: Request, maximum: int) -> int:
    """Return the query parameter ``limit``; by default 50.

    Raises:
        HttpError: The limit is not a number from 1 to `maximum`.
    """
    limit = parse_number(request.query_params.get("limit", "50"))
    if limit is None or not 0 < limit <= maximum:
        raise HttpError(400, f"limit must be a number from 1 to {maximum}", "bad_limit", param="limit")
    return limit


log = get_logger(__name__)

# Characters of an error message.
MAX_MESSAGE = 1_000

# Seconds for which a browser may remember that a page may send requests.
_PREFLIGHT_SECONDS = "600"

_INVALID_REQUEST = "invalid_request_error"


# The types of errors in Anthropic's Messages API, by status.
_MESSAGES_ERRORS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


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

    def to_messages_dict(self) -> dict[str, Any]:
        """Return the error in the form of Anthropic's Messages API, which is also its event in a stream."""
        from structlog.contextvars import get_contextvars

        kind = _MESSAGES_ERRORS.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        error = {"type": kind, "message": self.error["message"]}
        return {"type": "error", "error": error, "request_id": get_contextvars().get("request_id")}

    def to_messages_response(self) -> Response:
        """Return the response with the error in the form of Anthropic's Messages API."""
        return build_json_response(self.to_messages_dict(), self.status, self.headers)

    def to_page(self) -> Response:
        """Return the response for a person who opened the page in a browser: the problem in words."""
        text = f"<!doctype html><title>dial-chat</title><h1>dial-chat</h1><p>{html.escape(self.error['message'] or '')}"
        return HTMLResponse(text, self.status, self.headers)


class TooManyTurns(HttpError, DialError):
    """Too many turns run: of the service, or of a person."""

    def __init__(self, problem: str, code: str = "too_many_turns") -> None:
        message = f"{problem}: try again later"
        super().__init__(429, message, code, kind="rate_limit_error", headers={"retry-after": "2"})


def build_json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(to_json(content), status, {"content-type": "application/json", **(headers or {})})


def build_preflight_response(headers: Mapping[str, str]) -> Response:
    """Return the answer to a browser that asks whether a page may send a request; `security` adds the origin."""
    allowed = {
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-max-age": _PREFLIGHT_SECONDS,
        "vary": "access-control-request-headers",
    }
    # Any header: those of arguments (``Mcp-Param-…``) are named by the tools.
    if names := headers.get("access-control-request-headers"):
        allowed["access-control-allow-headers"] = names
    if headers.get("access-control-request-private-network") == "true":
        allowed["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=allowed)


def to_http_error(error: Exception) -> HttpError:
    """Return the HTTP error for an exception that a request raised."""
    match error:
        case HttpError():
            return error
        case HTTPException():
            message = _ROUTING_ERRORS.get(error.status_code, error.detail)
            return HttpError(error.status_code, message, "not_found", headers=error.headers)
        case ConversationNotFound():
            return HttpError(404, str(error), "conversation_not_found")
        case ConversationBusy():
            return HttpError(409, str(error), "conversation_busy", headers={"retry-after": "1"})
        case ProviderError():
            status = error.status if error.status in _PASSED_THROUGH else 504 if error.code == "timeout" else 502
            headers = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
            kind = "rate_limit_error" if status == 429 else _INVALID_REQUEST if status < 500 else "upstream_error"
            return HttpError(status, str(error), error.code or "model_failed", kind=kind, headers=headers)
        case NoModel():
            message = 'this service has no model: its operator names one with --model, or "defaultModel" in its file'
            return HttpError(503, message, "no_model", kind="server_error")
        case RequestRefused() | ConfigError():
            status, code = (403, "refused") if isinstance(error, RequestRefused) else (400, "invalid_request")
            return HttpError(status, str(error), code)
        case StoreUnavailable():
            # The log has the reason: which database this is, and how it is reached, is nothing that clients need.
            message = "the database of this service is not available: try again later"
            return HttpError(503, message, "no_database", kind="server_error", headers={"retry-after": "5"})
        case DialError():
            return HttpError(500, str(error), "failed", kind="server_error")
        case _:
            log.warning("request_failed", error=type(error).__name__)
            return HttpError(500, "an unexpected error occurred", "unexpected", kind="server_error")


_NO_PATH = "there is nothing at this path"
# The paths of OpenAI's APIs without their /v1, which a client asks for whose base URL does not end in it.
_WITHOUT_VERSION = ("/chat/completions", "/responses")


def build_path_error(path: str) -> HttpError:
    """Return the error of a path that is none of this service."""
    hint = f": it is /v1{path}, so end the base URL in /v1" if path in _WITHOUT_VERSION else ""
    return HttpError(404, f"{_NO_PATH}{hint}", "not_found")


_ROUTING_ERRORS = {404: _NO_PATH, 405: "this path does not support this method"}
# Statuses of the model's endpoint that are returned to the client: the client can correct or repeat its request.
# Other statuses concern this server's own request and become 502 or 504.
_PASSED_THROUGH = frozenset({400, 413, 422, 429})

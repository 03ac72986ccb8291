"""What is answered: JSON, and errors in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from dial_client.errors import ConfigError, ConversationBusy, ConversationNotFound, DialError, ProviderError
from dial_client.logs import get_logger
from dial_client.sinks.sse_encoder import to_json
from dial_client.text.safe_text import one_line

log = get_logger(__name__)

MAX_WORDS = 1_000
"""Characters of an error's message."""

_NOTHING = "invalid_request_error"


class HttpError(Exception):
    """A request that is not carried out, and why.

    Args:
        status: of the answer.
        message: what is wrong and what would be right, for a person.
        code: the same for a program: ``model_not_found``.
        kind: OpenAI's ``type`` of the error.
        param: the part of the request that is wrong.
        headers: sent along.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        kind: str = _NOTHING,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.error = {"message": one_line(message, MAX_WORDS), "type": kind, "param": param, "code": code}

    def answer(self) -> Response:
        """Give the answer that says so."""
        return answered({"error": self.error}, self.status, self.headers)


def answered(said: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Give an answer in JSON."""
    return Response(to_json(said), status, {"content-type": "application/json", **(headers or {})})


def refusal_of(error: Exception) -> HttpError:
    """Give the answer to a request that raised this."""
    match error:
        case HttpError():
            return error
        case HTTPException():
            return HttpError(error.status_code, _no_such(error), "not_found", headers=error.headers)
        case ConversationNotFound():
            return HttpError(404, str(error), "conversation_not_found")
        case ConversationBusy():
            return HttpError(409, str(error), "conversation_busy", headers={"retry-after": "1"})
        case ProviderError():
            return _of_the_model(error)
        case ConfigError():
            return HttpError(400, str(error), "invalid_request")
        case DialError():
            return HttpError(500, str(error), "failed", kind="server_error")
        case _:
            log.warning("request_broke", error=type(error).__name__)
            return HttpError(500, "something unexpected went wrong", "unexpected", kind="server_error")


def _no_such(error: HTTPException) -> str:
    return {404: "there is nothing at this address", 405: "this address does not take this method"}.get(
        error.status_code, error.detail
    )


_PASSED_ON = frozenset({400, 413, 422, 429})
"""Statuses of the model's endpoint that say something about the request; the others are about this server's own."""


def _of_the_model(error: ProviderError) -> HttpError:
    status = error.status if error.status in _PASSED_ON else 504 if error.code == "timeout" else 502
    wait = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    kind = "rate_limit_error" if status == 429 else _NOTHING if status < 500 else "upstream_error"
    return HttpError(status, str(error), error.code or "model_failed", kind=kind, headers=wait)

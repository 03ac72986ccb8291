"""Bodies of requests in memory: how many bytes there may be of all of them together, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request

from dial_client.serve.http_responses import HttpError

MAX_BODIES = 64 * 1024 * 1024
"""Bytes of the bodies of all requests that are being answered."""
SMALL = 64 * 1024
"""Bytes of a body that are not counted: what is small is let in however many large ones there are."""
_RETRY_AFTER = "5"


class BodyBudget:
    """The bytes that the bodies of all requests share.

    Args:
        most: bytes at once.
    """

    def __init__(self, most: int = MAX_BODIES) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def share(self) -> Iterator[BodyShare]:
        """Have a share for one request, which is given back in the end."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self._taken -= share.taken

    def take(self, size: int) -> None:
        """Take so many bytes more.

        Raises:
            Refusal: they are not there now.
        """
        if self._taken + size > self._most:
            why = "other requests with large bodies are being answered: ask again in a while"
            headers = {"retry-after": _RETRY_AFTER}
            raise HttpError(503, why, "too_many_bodies", kind="server_error", headers=headers)
        self._taken += size


class BodyShare:
    """What one request has of the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.taken = 0
        """Bytes."""

    def grow(self, size: int) -> None:
        """Have enough for a body of `size` bytes.

        Raises:
            Refusal: there is not enough now.
        """
        more = size - SMALL - self.taken
        if more > 0:
            self._budget.take(more)
            self.taken += more


async def read_text(request: Request) -> str:
    """Return the body as text, of which no second copy is kept."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
    # As `json.loads` has it: UTF-8, UTF-16 or UTF-32.
    return body.decode(json.detect_encoding(body), "surrogatepass")


async def json_of(request: Request) -> dict[str, Any]:
    """Read the request's JSON object; none at all is an empty one.

    Raises:
        Refusal: it is something else.
    """
    try:
        text = await read_text(request)
        said = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise HttpError(400, "the body is no JSON", "invalid_json") from None
    if not isinstance(said, dict):
        raise HttpError(400, "the body is no JSON object", "invalid_json")
    return said

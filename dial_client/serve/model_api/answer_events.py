"""The stream of an answer as named server-sent events, for APIs whose events have types."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from dial_client.serve.http_messages import HttpError, to_http_error
from dial_client.serve.model_api.answer_turns import AnswerEnd, AnswerPart
from dial_client.sinks.sse_encoder import encode_named

# An event in JSON types; its ``type`` is also its name in the stream.
ApiEvent = dict[str, Any]


class AnswerEvents(Protocol):
    """Builds an answer in the form of an API, and the events that stream it."""

    def add(self, part: AnswerPart) -> list[ApiEvent]:
        """Add a part of the answer, and return its events; with the first part, also those of the answer's start."""

    def fail(self, error: HttpError) -> list[ApiEvent]:
        """Return the events of an answer that failed after its start."""


async def _do_nothing() -> None:
    return


async def stream_answer(
    parts: AsyncGenerator[AnswerPart, None], events: AnswerEvents, on_end: Callable[[], Awaitable[None]] = _do_nothing
) -> AsyncGenerator[str, None]:
    """Yield the encoded events of an answer.

    Args:
        parts: The parts of the answer.
        events: Builds the answer.
        on_end: Called when the answer is complete, before its last events are sent.
    """
    async with aclosing(parts):
        async for part in parts:
            added = events.add(part)
            if isinstance(part, AnswerEnd):
                await on_end()
            yield encode_events(added)


def encode_failure(events: AnswerEvents, error: Exception) -> str:
    """Return the encoded events of an answer that failed after its start."""
    return encode_events(events.fail(to_http_error(error)))


def encode_events(events: Sequence[ApiEvent]) -> str:
    """Return events as server-sent events with their types as names."""
    return "".join(encode_named(event["type"], event) for event in events)

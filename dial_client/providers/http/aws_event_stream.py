"""Conversion of Amazon's event streams, in which Bedrock sends the events of the Messages API, to server-sent events.

AWS documents the frames in its Transcribe and S3 guides under "Event stream encoding". `botocore` parses the frames.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import jiter

from dial_client.providers.tool_call_codec import to_json_bytes

CONTENT_TYPE = "application/vnd.amazon.eventstream"


async def convert_to_sse(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream as server-sent events. Exception frames become events of the type ``error``.

    Raises:
        ValueError: A frame is damaged.
    """
    from botocore.eventstream import EventStreamBuffer, ParserError

    buffer = EventStreamBuffer()
    async with aclosing(pieces):
        async for piece in pieces:
            buffer.add_data(piece)
            try:
                events = [_to_sse(event.headers, event.payload) for event in buffer]
            except ParserError as error:
                raise ValueError(f"a frame of the event stream is damaged: {error}") from None
            if data := b"".join(events):
                yield data


def _to_sse(headers: Mapping[str, Any], payload: bytes) -> bytes:
    """Return a frame as a server-sent event; empty bytes for a frame without a chunk."""
    if headers.get(":message-type") != "event":
        kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
        message = headers.get(":error-message") or _read_object(payload).get("message") or ""
        return _write_event(to_json_bytes({"type": "error", "error": {"type": str(kind), "message": str(message)}}))
    chunk = _read_object(payload).get("bytes")
    return _write_event(base64.b64decode(chunk)) if isinstance(chunk, str) else b""


def _read_object(payload: bytes) -> dict[str, Any]:
    try:
        value = jiter.from_json(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _write_event(data: bytes) -> bytes:
    # A line break would end the event's line. In JSON, line breaks are only white space.
    return b"data: %s\n\n" % b" ".join(data.splitlines())

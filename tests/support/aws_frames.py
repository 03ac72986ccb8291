"""Frames of Amazon's event streams, as Bedrock sends the events of the Messages API."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable, Mapping


def frame_stream(chunks: Iterable[bytes]) -> bytes:
    """Return the frames for a stream of server-sent events; each chunk has one event."""
    events = (chunk.removeprefix(b"data: ").strip() for chunk in chunks)
    headers = {":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}
    payloads = (json.dumps({"bytes": base64.b64encode(event).decode(), "p": "abc"}).encode() for event in events)
    return b"".join(_frame(headers, payload) for payload in payloads)


def exception_frame(kind: str, message: str) -> bytes:
    """Return the frame that ends a stream with an exception."""
    headers = {":message-type": "exception", ":exception-type": kind, ":content-type": "application/json"}
    return _frame(headers, json.dumps({"message": message}).encode())


def _frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    block = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(block) + len(payload), len(block))
    start = prelude + struct.pack("!I", zlib.crc32(prelude)) + block + payload
    return start + struct.pack("!I", zlib.crc32(start))

"""The body of a model's response, parsed into JSON values: from an event stream or from one JSON text."""

from __future__ import annotations

import json
from typing import Any

import jiter

from dial_client.providers.http.sse_parser import BOM, EventTooLong, ServerSentEvent, SSEParser
from dial_client.providers.tool_call_codec import to_plain_json

_MAX_TEXT = 64 * 1024 * 1024
"""Bytes of a body that is one JSON text."""
_MAX_STREAM = 256 * 1024 * 1024
"""Bytes of an event stream: a word of a reply comes in an event of some hundred bytes."""


class InvalidBody(ValueError):
    """The body is neither an event stream nor JSON; `text` is the beginning of it."""

    def __init__(self, text: str) -> None:
        super().__init__("the body is neither an event stream nor JSON")
        self.text = text


class ResponseBodyParser:
    """Parses a body piece by piece.

    The first character decides whether the body is an event stream, not the headers: there are gateways that answer a
    request for a stream with one JSON text under ``text/event-stream``.

    Args:
        max_text: the most bytes of a body that is one JSON text.
        max_stream: the most bytes of an event stream.
    """

    def __init__(self, max_text: int = _MAX_TEXT, max_stream: int = _MAX_STREAM) -> None:
        self.done = False
        """True after the event ``[DONE]``, which ends the streams of OpenAI's APIs."""
        self.is_whole_text = False
        """True after a body that is one JSON text, and was received to its end."""
        self.invalid_events = 0
        """The number of events that were not JSON."""
        self._max_text, self._max_stream = max_text, max_stream
        self._sse: SSEParser | None = None
        self._is_text = False
        self._text: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes, and return the values that are complete now.

        Raises:
            EventTooLong: the body, or one event of it, is longer than any reply.
        """
        self._length += len(data)
        max_length = self._max_text if self._is_text else self._max_stream
        if self._length > max_length:
            raise EventTooLong(f"the answer is longer than {max_length} bytes")
        if self._sse is not None:
            return self._to_values(self._sse.feed(data))
        self._text.append(data)
        return [] if self._is_text else self._detect_format()

    def finish(self) -> list[Any]:
        """Return the remaining values at the end of the body.

        Raises:
            InvalidBody: it is neither an event stream nor JSON.
        """
        if self._sse is not None:
            return self._to_values(self._sse.finish())
        text = b"".join(self._text).removeprefix(BOM).strip()
        if not text:
            return []
        value = _parse_json(text)
        if value is None:
            raise InvalidBody(text[:4000].decode("utf-8", "replace"))
        self.is_whole_text = True
        return [value]

    def _detect_format(self) -> list[Any]:
        """Look at the first character that is not blank; of an event stream, return the values that are complete."""
        start = b"".join(self._text)
        if BOM.startswith(start):
            return []
        first = start.removeprefix(BOM).lstrip()[:1]
        if not first:
            self._text = []  # some gateways send blanks until the model begins to reply
            return []
        self._is_text = first in (b"{", b"[", b"<")
        if self._is_text:
            return []
        self._sse, self._text = SSEParser(), []
        return self._to_values(self._sse.feed(start))

    def _to_values(self, events: list[ServerSentEvent]) -> list[Any]:
        values = []
        for name, data in events:
            if self.done:
                break
            try:
                value = jiter.from_json(data)
            except ValueError:
                if data.startswith(b"[DONE]"):
                    self.done = True
                    break
                value = _parse_json(data)
            if value is None:
                self.invalid_events += 1
                continue
            if name == "error" and isinstance(value, dict) and not value.get("error"):
                value = {"type": name, "error": value}
            elif name and isinstance(value, dict) and "type" not in value:
                value["type"] = name
            values.append(value)
        return values


def _parse_json(data: bytes) -> Any:
    """Parse JSON that may have bytes that are not UTF-8, or lone surrogates; return None if it is not JSON."""
    try:
        return to_plain_json(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None

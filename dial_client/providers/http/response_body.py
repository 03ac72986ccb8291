"""The body of a model's answer, read into JSON values: an event stream, or one JSON text, whichever comes."""

from __future__ import annotations

import json
from typing import Any

import jiter

from dial_client.providers.http.sse_parser import BOM, EventStream, EventTooLong, ServerSentEvent
from dial_client.providers.tool_call_codec import scrub

_MAX_TEXT = 64 * 1024 * 1024
"""Bytes of an answer in one JSON text."""
_MAX_STREAM = 256 * 1024 * 1024
"""Bytes of a stream: a word of an answer comes in an event of some hundred bytes."""


class NotAResponse(ValueError):
    """The body is neither an event stream nor JSON; `text` has its beginning."""

    def __init__(self, text: str) -> None:
        super().__init__("the body is neither an event stream nor JSON")
        self.text = text


class BodyReader:
    """Reads a body piece by piece.

    What it is is seen from its first character and not from its headers: there are gateways that answer a request for a
    stream with one JSON text, and say ``text/event-stream`` over it.

    Args:
        max_text: bytes an answer in one JSON text may have.
        max_stream: bytes a stream of events may have.
    """

    def __init__(self, max_text: int = _MAX_TEXT, max_stream: int = _MAX_STREAM) -> None:
        self.done = False
        """The ``[DONE]`` that ends a stream of OpenAI's kind has been read."""
        self.garbled = 0
        """Events that were not JSON."""
        self._max_text, self._max_stream = max_text, max_stream
        self._events: EventStream | None = None
        self._is_text = False
        self._text: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[Any]:
        """Take the next bytes, give the values that end in them.

        Raises:
            EventTooLong: more comes in one piece than any answer can have.
        """
        self._length += len(data)
        most = self._max_text if self._is_text else self._max_stream
        if self._length > most:
            raise EventTooLong(f"the answer is longer than {most} bytes")
        if self._events is not None:
            return self._values(self._events.feed(data))
        self._text.append(data)
        if self._is_text:
            return []
        begin = b"".join(self._text)
        if BOM.startswith(begin):
            return []
        first = begin.removeprefix(BOM).lstrip()[:1]
        if not first:
            self._text = []  # some gateways send blanks for as long as there is nothing to say
            return []
        self._is_text = first in (b"{", b"[", b"<")
        if self._is_text:
            return []
        self._events, self._text = EventStream(), []
        return self._values(self._events.feed(begin))

    def end(self) -> list[Any]:
        """Take the end of the body, give the values that are left.

        Raises:
            NotAnAnswer: it was neither an event stream nor JSON.
        """
        if self._events is not None:
            return self._values(self._events.end())
        text = b"".join(self._text).removeprefix(BOM).strip()
        if not text:
            return []
        value = _parse(text)
        if value is None:
            raise NotAResponse(text[:4000].decode("utf-8", "replace"))
        return [value]

    def _values(self, events: list[ServerSentEvent]) -> list[Any]:
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
                value = _parse(data)
            if value is None:
                self.garbled += 1
                continue
            if name and isinstance(value, dict) and "type" not in value:
                value["type"] = name
            values.append(value)
        return values


def _parse(data: bytes) -> Any:
    """Read JSON that may hold bytes that are not UTF-8, or halves of surrogate pairs; None for what is no JSON."""
    try:
        return scrub(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None

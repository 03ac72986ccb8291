"""A parser of server-sent events (SSE): https://html.spec.whatwg.org/multipage/server-sent-events.html.

The parser deviates from the standard in four points: `SSEParser.finish` returns an event whose blank line is missing;
ids and retry times are ignored, because these streams are never reconnected; the length of an event is limited; a line
``error: …`` is an event named ``error`` (GPUStack). The parser works on bytes, so a character may be split between two
reads.
"""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """An event of the stream."""

    name: str
    """The value of the ``event:`` field; empty if the event has none."""
    data: bytes
    """The values of the ``data:`` fields, joined by newlines. They should be UTF-8, which is not checked."""


class EventTooLong(ValueError):
    """An event is longer than the parser's limit."""


class SSEParser:
    """Splits the bytes of a stream into events, in linear time.

    Args:
        max_event: The most bytes of an event.
    """

    def __init__(self, max_event: int = 32 * 1024 * 1024) -> None:
        self._max_event = max_event
        self._line: list[bytes] = []
        self._line_length = 0
        self._data: list[bytes] = []
        self._data_length = 0
        self._name = ""
        self._after_cr = False
        self._has_begun = False

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Add bytes, and return the events that are complete now.

        Raises:
            EventTooLong: The current event is longer than the limit.
        """
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\n" not in data and b"\r" not in data:
            self._hold(data)
            return []
        lines = b"".join((*self._line, data)).splitlines()
        self._line, self._line_length = [], 0
        if data[-1:] not in (b"\n", b"\r"):
            self._hold(lines.pop())
        self._after_cr = data.endswith(b"\r")
        return self._parse_lines(lines)

    def finish(self) -> list[ServerSentEvent]:
        """Return the last event of the stream, if its blank line is missing."""
        last = b"".join(self._line)
        self._line, self._line_length = [], 0
        return self._parse_lines([last, b""] if last else [b""])

    def _hold(self, part: bytes) -> None:
        self._line.append(part)
        self._line_length += len(part)
        self._check_length()

    def _parse_lines(self, lines: list[bytes]) -> list[ServerSentEvent]:
        if not self._has_begun and lines:
            self._has_begun = True
            lines[0] = lines[0].removeprefix(BOM)
        events = []
        name, data, length = self._name, self._data, self._data_length
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
                length += len(line)
            elif not line:
                joined = data[0] if len(data) == 1 else b"\n".join(data)
                if joined:
                    events.append(ServerSentEvent(name, joined))
                name, data, length = "", [], 0
            elif line == b"data":
                data.append(b"")
                length += 1
            elif line.startswith(b"event:"):
                name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            elif line == b"event":
                name = ""
            elif line.startswith(b"error:"):
                events.append(ServerSentEvent("error", line[6:].strip()))
        self._name, self._data, self._data_length = name, data, length
        self._check_length()
        return events

    def _check_length(self) -> None:
        if self._line_length + self._data_length > self._max_event:
            raise EventTooLong(f"an event is longer than {self._max_event} bytes")

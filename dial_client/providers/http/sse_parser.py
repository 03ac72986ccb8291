"""Server-sent events from bytes, by the rules of https://html.spec.whatwg.org/multipage/server-sent-events.html.

Three things are on purpose otherwise than the standard has them: `EventStream.end` gives an event whose last blank line
is missing, ids and retry times are ignored (nothing here reconnects), and an event has an upper bound. All work is done
on bytes, so a character that is split between two reads needs no care.
"""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event."""

    name: str
    """Its ``event:`` field; empty where it has none."""
    data: bytes
    """Its ``data:`` lines, joined by newlines; UTF-8 by the standard, but nobody has looked."""


class EventTooLong(ValueError):
    """One event is longer than the reader's bound."""


class EventStream:
    """Splits what comes from a stream into events; every byte is looked at once.

    Args:
        max_event: bytes one event may have.
    """

    def __init__(self, max_event: int = 32 * 1024 * 1024) -> None:
        self._max_event = max_event
        self._line: list[bytes] = []
        self._line_length = 0
        self._data: list[bytes] = []
        self._data_length = 0
        self._name = ""
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes, give the events that end in them.

        Raises:
            EventTooLong: the event that has begun exceeds the bound.
        """
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\n" not in data and b"\r" not in data:
            self._keep(data)
            return []
        lines = b"".join((*self._line, data)).splitlines()
        self._line, self._line_length = [], 0
        if data[-1:] not in (b"\n", b"\r"):
            self._keep(lines.pop())
        self._after_cr = data.endswith(b"\r")
        return self._events(lines)

    def end(self) -> list[ServerSentEvent]:
        """Take the end of the stream, give the event whose blank line never came."""
        last = b"".join(self._line)
        self._line, self._line_length = [], 0
        return self._events([last, b""] if last else [b""])

    def _keep(self, part: bytes) -> None:
        self._line.append(part)
        self._line_length += len(part)
        self._check_bound()

    def _events(self, lines: list[bytes]) -> list[ServerSentEvent]:
        if not self._begun and lines:
            self._begun = True
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
        self._name, self._data, self._data_length = name, data, length
        self._check_bound()
        return events

    def _check_bound(self) -> None:
        if self._line_length + self._data_length > self._max_event:
            raise EventTooLong(f"an event is longer than {self._max_event} bytes")

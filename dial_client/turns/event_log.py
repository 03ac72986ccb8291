"""The events of one turn: written by the turn, read by any number of readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel

from dial_client.messages.events import Event

# Number of events a log keeps for readers that start later. Older events are dropped.
CAPACITY = 10_000

# Number of events that the paced reader may leave unread before the turn waits for this reader.
MAX_UNREAD = 1024

# Number of events beyond the capacity that are collected before they are dropped together.
_SLACK = 1_000


class EventLog:
    """The numbered events of one turn, the first at position 1.

    Args:
        capacity: Number of events kept for readers that start later or read slowly.
        is_paced: Whether the turn waits for one reader, the paced reader, which calls `mark_read`. Events that this
            reader has not read are not dropped.
    """

    def __init__(self, capacity: int = CAPACITY, *, is_paced: bool = False) -> None:
        self._capacity = capacity
        self._events: list[Event] = []
        self.last = 0
        """The position of the newest event; 0 before the first."""
        self._is_closed = False
        self._error: Exception | None = None
        # Set when the log changes; None if no reader waits.
        self._changed: anyio.Event | None = None
        # The position of the paced reader; None without a paced reader.
        self._read = 0 if is_paced else None
        # Set when the paced reader has read enough events; None if the turn does not wait.
        self._room: anyio.Event | None = None

    @property
    def unread(self) -> int:
        """The number of events that the paced reader has not read; 0 without such a reader."""
        return 0 if self._read is None else self.last - self._read

    async def events(self, after: int = 0) -> AsyncGenerator[tuple[int, Event], None]:
        """Yield the events after position `after`, each with its position, until the turn ends.

        Stopping early does not affect the turn. Events that are older than the log's capacity are skipped; a gap in the
        positions shows this.

        Raises:
            DialError: The error of `TurnHandle.result`, after the last event.
        """
        while True:
            # On asyncio, a wait that ends at once (as with a fast model) does not notice a cancellation.
            await anyio.lowlevel.checkpoint_if_cancelled()
            for position, event in self.since(after):
                after = position
                yield position, event
            if after >= self.last:
                if self._is_closed:
                    break
                self._changed = self._changed or anyio.Event()
                await self._changed.wait()
        if self._error is not None:
            raise self._error

    def since(self, after: int, limit: int | None = None) -> list[tuple[int, Event]]:
        """Return the available events after position `after`, at most `limit`, each with its position."""
        forgotten = self.last - len(self._events)
        start = max(after, self.last - max(self._capacity, self.unread), forgotten)
        first = start - forgotten
        return list(enumerate(self._events[first : None if limit is None else first + limit], start + 1))

    def append(self, event: Event) -> None:
        """Add an event and wake the readers. Does nothing once the log is closed."""
        if self._is_closed:
            return
        self._events.append(event)
        self.last += 1
        if len(self._events) > self._capacity + _SLACK:
            excess = len(self._events) - max(self._capacity, self.unread)
            if excess > _SLACK:
                del self._events[:excess]
        if self._changed is not None:
            self._wake_readers()

    def close(self, error: Exception | None = None) -> None:
        """Close the log. If there is an `error`, it is raised in every reader after the last event."""
        self._is_closed = True
        self._error = error
        self._wake_readers()

    def mark_read(self, position: int) -> None:
        """Set the position of the paced reader; resume the turn if it has read enough. No-op without such a reader."""
        if self._read is not None:
            self._read = position
            if self._room is not None and self.unread <= MAX_UNREAD // 2:
                self._make_room()

    def release(self) -> None:
        """Let the turn run without waiting for a reader: the paced reader has stopped."""
        self._read = None
        self._make_room()

    async def wait_for_room(self) -> None:
        """Wait while the paced reader has too many unread events."""
        if self.unread >= MAX_UNREAD:
            self._room = self._room or anyio.Event()
            await self._room.wait()

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()

    def _wake_readers(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

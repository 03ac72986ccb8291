"""Publishes the events of a turn for readers at other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio

from dial_client.serve.cluster.topics import build_turn_events_topic
from dial_client.serve.sse_response import encode_end, encode_event
from dial_client.sinks import sse_encoder
from dial_client.turns.turn_handle import TurnHandle

MAX_BATCH = 1_000
"""Events in one message."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of a turn, ready to be sent as one message."""

    events: list[tuple[int | None, str]]
    """Positions and encoded events; the end of the stream has no position."""
    position: int
    """The position up to which events have been read."""
    is_last: bool

    @property
    def body(self) -> str:
        """The body of the message."""
        return sse_encoder.to_json(self.events)


class TurnPublisher:
    """Reads a turn's events in batches.

    Args:
        turn: The turn.
        model: The model's name in the API.
    """

    def __init__(self, turn: TurnHandle, model: str) -> None:
        self.turn = turn
        self.topic = build_turn_events_topic(turn.conversation_id, turn.id)
        self.message_ids: list[int] = []
        """The messages that were sent."""
        self.renewed = anyio.current_time()
        """When the messages were last renewed."""
        self._chunk: dict[str, Any] = sse_encoder.build_head(model, turn.id)
        self._position = 0

    @property
    def is_behind(self) -> bool:
        """True if there are more events than fit into a batch."""
        return self.turn.log.last - self._position >= MAX_BATCH

    async def read_batch(self) -> EventBatch | None:
        """Return the events since the last batch; None if there are none.

        The first batch may be empty: it tells readers that the turn is published. An event that cannot be encoded ends
        the stream, as it does for readers at this process.
        """
        is_over, position = self.turn.has_ended, self._position
        events: list[tuple[int | None, str]] = []
        try:
            for position, event in self.turn.log.since(self._position, MAX_BATCH):
                if text := encode_event(event, f"{self.turn.id}:{position}", self._chunk):
                    events.append((position, text))
            is_last = is_over and position >= self.turn.log.last
            end = await self._encode_end() if is_last else ""
        except Exception as error:  # noqa: BLE001 - any failure must end the stream for the readers
            is_last, end = True, encode_end(error, self._chunk)
        if is_last:
            events.append((None, end))
        if events or not self.message_ids:
            return EventBatch(events, position, is_last)
        self._position = position
        return None

    def confirm(self, batch: EventBatch, message_id: int) -> None:
        """Record that a batch was sent. A batch that is not confirmed is read again."""
        self._position = batch.position
        self.message_ids.append(message_id)

    async def _encode_end(self) -> str:
        try:
            await self.turn.result()
        except Exception as error:  # noqa: BLE001 - the error is the end of the stream
            return encode_end(error, self._chunk)
        return encode_end(None, self._chunk)

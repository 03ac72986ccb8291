"""Exchanges messages with the other processes that serve over the same database.

Processes send messages through the database's `Mailbox`. A process that wants to read or stop a turn sends a request to
the turn's topic. The process that runs the turn polls that topic: it cancels the turn, or publishes the turn's events
until the turn ends. An answer to a request for input is sent to the topic of the process that waits for it.
Processes of other versions read the same topics and forms of messages: keep them stable.
A process polls all its topics with one query. It polls nothing while it runs no turn, reads none and waits for no
answer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from dial_client.runtime.logs import get_logger
from dial_client.serve.sse_response import encode_end, encode_event
from dial_client.serve.turn_registry import ServedModel, TurnRegistry, WakeSignal
from dial_client.sinks import sse_encoder
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.mailbox import Envelope, Mailbox
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.turn_handle import TurnHandle

# Events in one message.
MAX_BATCH = 1_000


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


def build_turn_requests_topic(turn: str) -> str:
    """Return the topic of requests to the process that runs a turn."""
    return f"wishes:{turn}"


def build_turn_events_topic(conversation_id: str, turn: str) -> str:
    """Return the topic of a turn's events. Each message is a JSON list of pairs: a position and the encoded event."""
    return f"events:{conversation_id}/{turn}"


def build_pending_requests_topic(kind: str) -> str:
    """Return the topic of the requests of a kind that wait for the user."""
    return f"asked:{kind}"


def build_answer_topic(request_id: str) -> str:
    """Return the topic of the answer to a request. It names no process: another one may ask again with the same id."""
    return f"answer:{request_id}"


def build_grant_topic(key: str) -> str:
    """Return the topic of a tool's grant. A message means that the tool is granted."""
    return f"granted:{key}"


# The topic of the grants shown to the user: JSON objects with ``key``, ``server``, ``tool`` and ``conversation``.
LISTED_GRANTS_TOPIC = "grants"


def build_handoff_topic(call_id: str) -> str:
    """Return the topic of a turn that returned tool calls, by the id of its first call."""
    return f"thread:{call_id}"


def build_response_topic(key: str) -> str:
    """Return the topic of a response that later requests may refer to, by the end of its id."""
    return f"response:{key}"


log = get_logger(__name__)

# Seconds between polls while a turn runs here, or a request for input waits for its answer.
POLL_INTERVAL = 0.25
# Seconds between polls while a turn is read at another process: the delay of its events.
STREAM_INTERVAL = 0.15
# Seconds for which a turn's events can be read after its end.
EVENTS_TTL = 600.0
# Seconds after which the pending requests and grants of a process expire once it no longer renews them.
LEASE_TTL = 30.0
# Seconds after which a request to a turn expires.
REQUEST_TTL = 60.0
# Seconds in which the last events are published on shutdown.
_SHUTDOWN_TIMEOUT = 5.0

# The requests to a turn.
READ, STOP = "read", "stop"

# Handles the answer to a request; raises `KeyError` or `ValueError` if the answer is invalid.
ReceiveAnswer = Callable[[Mapping[str, Any]], None]


class PeerBus:
    """Publishes this process's turns on request and reads the messages of other processes.

    Without a database there are no other processes, and nothing is exchanged.

    Args:
        store: The store of the conversations.
        turns: The running turns of this process.
        model: The model's current name in the API.
    """

    def __init__(self, store: ConversationStore, turns: TurnRegistry, model: ServedModel) -> None:
        self.mailbox: Mailbox | None = store.mailbox if isinstance(store, SQLStore) else None
        self._turns = turns
        self._model = model
        self._publishers: dict[str, TurnPublisher] = {}
        self._polled_turns: tuple[TurnHandle, ...] = ()
        self._readers: set[TopicReader] = set()
        self._answer_receivers: dict[str, ReceiveAnswer] = {}
        self._leases: set[int] = set()
        self._leases_renewed = -math.inf
        self._is_failing = False
        self._is_closing = False
        self._wake_up = turns.started

    async def run(self) -> None:
        """Exchange messages until `close` or cancellation, then publish the last events of ended turns."""
        try:
            while not self._is_closing:
                await self._attempt(self._poll)
                await self._wake_up.wait(self._choose_pause())
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_SHUTDOWN_TIMEOUT):
                while self._publishers and await self._attempt(self._publish):
                    pass
                await self._attempt(self._withdraw_leases)

    @contextmanager
    def subscribe(self, topic: str) -> Iterator[TopicReader]:
        """Provide a reader of a topic that only one process writes to."""
        reader = TopicReader(topic)
        self._readers.add(reader)
        self._wake_up.send()
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    @contextmanager
    def receive_answers(self, request_id: str, receive: ReceiveAnswer) -> Iterator[None]:
        """Pass the answers to a request of this process to `receive` until the context ends."""
        self._answer_receivers[request_id] = receive
        self._wake_up.send()
        try:
            yield
        finally:
            del self._answer_receivers[request_id]

    def close(self) -> None:
        """End `run`; call this after the last turn has ended."""
        self._is_closing = True
        self._wake_up.send()

    def renew_while_alive(self, message_id: int) -> None:
        """Renew a message that was sent for `LEASE_TTL` seconds for as long as this process runs."""
        if not self._leases:
            self._leases_renewed = anyio.current_time()
        self._leases.add(message_id)
        self._wake_up.send()

    def stop_renewing(self, message_id: int | None) -> None:
        """Stop renewing a message; None has no effect."""
        self._leases.discard(message_id or 0)

    def _choose_pause(self) -> float:
        """Return the seconds until the next poll."""
        if self._publishers or self._readers:
            is_behind = any(publisher.is_behind for publisher in self._publishers.values())
            return 0.0 if is_behind and not self._is_failing else STREAM_INTERVAL
        if self._turns.conversation_turns or self._polled_turns or self._answer_receivers:
            return POLL_INTERVAL
        if not self._leases:
            return math.inf
        # A renewal that is overdue has failed: retry it, but not at once.
        return max(POLL_INTERVAL, self._leases_renewed + LEASE_TTL / 3 - anyio.current_time())

    async def _poll(self) -> bool:
        await self._receive()
        await self._publish()
        await self._renew()
        return True

    async def _receive(self) -> None:
        """Read all topics of this process with one query, and deliver their messages."""
        running = self._turns.conversation_turns
        # A turn that ended since the last poll may have requests from before its end.
        turns = {build_turn_requests_topic(turn.id): turn for turn in (*self._polled_turns, *running)}
        answers = {build_answer_topic(id_) for id_ in self._answer_receivers}
        readers = tuple(self._readers)  # fixed before the query: a later reader may start further back
        if self.mailbox is None or not (turns or readers or answers):
            return
        messages = await self.mailbox.read(self._read_positions({*turns, *answers}, readers))
        for reader in readers:
            reader.deliver(messages)
        incoming = [message for message in messages if message.topic in answers or message.topic in turns]
        # Taking a message from the mailbox confirms it: the sender of a request waits for that.
        taken = await self.mailbox.take(*(message.id for message in incoming))
        self._polled_turns = running
        for message in incoming:
            if message.id in taken:
                self._handle(message, turns.get(message.topic))

    def _read_positions(self, topics: Iterable[str], readers: Iterable[TopicReader]) -> dict[str, int]:
        """Return the message id after which to read each topic."""
        positions = dict.fromkeys(topics, 0)
        for reader in readers:
            positions[reader.topic] = min(reader.last_id, positions.get(reader.topic, reader.last_id))
        return positions

    def _handle(self, message: Envelope, turn: TurnHandle | None) -> None:
        """Handle a request to a turn, or without a turn the answer to a request of this process."""
        if turn is None:
            try:
                answer = message.parse_content()
                if (receive := self._answer_receivers.get(answer["id"])) is not None:
                    receive(answer)
            except (KeyError, TypeError, ValueError, AttributeError) as error:  # from another version, or forged
                log.warning("message_invalid", error=type(error).__name__)
        elif message.body == STOP:
            turn.cancel()
        elif message.body == READ and turn.id not in self._publishers:
            self._publishers[turn.id] = TurnPublisher(turn, self._model.name)

    async def _publish(self) -> bool:
        """Send the new events of turns that are read at other processes; return True if there were any."""
        if self.mailbox is None:
            return False
        pending = [(publisher, await publisher.read_batch()) for publisher in self._publishers.values()]
        batches = [(publisher, batch) for publisher, batch in pending if batch is not None]
        ids = await self.mailbox.send([(publisher.topic, batch.body) for publisher, batch in batches], EVENTS_TTL)
        for (publisher, batch), message_id in zip(batches, ids, strict=True):
            publisher.confirm(batch, message_id)
            if batch.is_last:
                del self._publishers[publisher.turn.id]
        return bool(batches)

    async def _renew(self) -> None:
        """Renew the messages that must not expire yet."""
        if self.mailbox is None:
            return
        now = anyio.current_time()
        for publisher in self._publishers.values():
            if now - publisher.renewed > EVENTS_TTL / 3:
                await self.mailbox.renew(publisher.message_ids, EVENTS_TTL)
                publisher.renewed = now
        if self._leases and now - self._leases_renewed >= LEASE_TTL / 3:
            await self.mailbox.renew(self._leases, LEASE_TTL)
            self._leases_renewed = now

    async def _withdraw_leases(self) -> bool:
        if self.mailbox is not None:
            await self.mailbox.take(*self._leases)
        return True

    async def _attempt(self, action: Callable[[], Awaitable[bool]]) -> bool:
        """Run an action that the next poll repeats if it fails; return False if it failed."""
        try:
            result = await action()
        except Exception as error:  # noqa: BLE001 - clients of this process are served in any case
            if not self._is_failing:
                log.warning("peers_unreachable", error=type(error).__name__)
            self._is_failing = True
            return False
        self._is_failing = False
        return result


class TopicReader:
    """Collects the new messages of a topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last_id = 0
        """The id of the last message."""
        self._messages: list[Envelope] = []
        self._has_messages = WakeSignal()

    def deliver(self, messages: Iterable[Envelope]) -> None:
        """Add the messages that are new and of this topic."""
        new = [message for message in messages if message.topic == self.topic and message.id > self.last_id]
        if new:
            self._messages += new
            self.last_id = new[-1].id
            self._has_messages.send()

    async def read(self, timeout: float) -> list[Envelope]:
        """Return the new messages; an empty list if none arrives within `timeout` seconds."""
        await self._has_messages.wait(timeout)
        messages, self._messages = self._messages, []
        return messages

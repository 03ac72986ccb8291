"""Reads and stops the turns that other processes run."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

import anyio

from dial_client.messages.errors import ConversationNotFound, DialError
from dial_client.serve.cluster.peers import (
    READ,
    REQUEST_TTL,
    STOP,
    PeerBus,
    build_turn_events_topic,
    build_turn_requests_topic,
)
from dial_client.serve.sse_response import OPENING_COMMENT, encode_end
from dial_client.stores.mailbox import Envelope
from dial_client.stores.sql_store import SQLStore

# Seconds to wait until a request is taken. Programs that use the database without serving never take requests.
REQUEST_TIMEOUT = 5.0
# Seconds in which the end of a turn must arrive after the database shows that it no longer runs.
END_TIMEOUT = 3.0
# Seconds without an event after which the turn's process is checked.
SILENCE_TIMEOUT = 2.0
# Seconds between polls for the effect of a request.
_POLL_INTERVAL = 0.1


class RemoteTurns:
    """The turns of other processes.

    Args:
        store: The store that all processes share.
        peers: Exchanges messages with the other processes.
    """

    def __init__(self, store: SQLStore, peers: PeerBus) -> None:
        self._peers = peers
        self._store = store
        self._mailbox = store.mailbox

    async def stop(self, conversation_id: str) -> bool:
        """Ask the process that runs a conversation's turn to stop it; return False if the process does not respond.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        turn, is_running = await self._store.read_turn(conversation_id)
        if not is_running:
            return True
        topic = build_turn_requests_topic(turn)
        (request,) = await self._mailbox.send([(topic, STOP)], REQUEST_TTL)
        with anyio.move_on_after(REQUEST_TIMEOUT):
            while await self._is_running(conversation_id, turn):
                if request not in {message.id for message in await self._mailbox.read({topic: 0})}:
                    return True
                await anyio.sleep(_POLL_INTERVAL)
        was_taken = not await self._mailbox.take(request)
        return was_taken or not await self._is_running(conversation_id, turn)

    async def find_events(self, conversation_id: str, turn: str, after: int) -> AsyncGenerator[str, None] | None:
        """Return the encoded events of a turn after a position, as `stream_turn` does; None if they are not available.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        if not (turn.isascii() and turn.isprintable()):
            return None
        is_running = await self._store.read_turn(conversation_id) == (turn, True)
        messages: Sequence[Envelope] = await self._mailbox.read({build_turn_events_topic(conversation_id, turn): 0})
        if not messages and is_running:
            messages = await self._request_events(conversation_id, turn)
        return self._stream(conversation_id, turn, after, messages) if messages else None

    async def _request_events(self, conversation_id: str, turn: str) -> Sequence[Envelope]:
        """Ask the turn's process to publish its events; return the first messages, or none if it does not respond."""
        (request,) = await self._mailbox.send([(build_turn_requests_topic(turn), READ)], REQUEST_TTL)
        messages: Sequence[Envelope] = ()
        with anyio.move_on_after(REQUEST_TIMEOUT):
            while not messages:
                await anyio.sleep(_POLL_INTERVAL)
                messages = await self._mailbox.read({build_turn_events_topic(conversation_id, turn): 0})
        if not messages:
            await self._mailbox.take(request)
        return messages

    async def _stream(
        self, conversation_id: str, turn: str, after: int, messages: Sequence[Envelope]
    ) -> AsyncGenerator[str, None]:
        yield OPENING_COMMENT
        check = _LivenessCheck(turn)
        with self._peers.subscribe(build_turn_events_topic(conversation_id, turn)) as reader:
            reader.deliver(messages)
            try:
                while True:
                    messages = await reader.read(SILENCE_TIMEOUT)
                    for position, text in (event for message in messages for event in _parse_events(message)):
                        if position is None:
                            yield text
                            return
                        if position > after:
                            after = position
                            yield text
                    if not messages:
                        holder = "", False
                        with suppress(DialError):  # the database may recover before the turn counts as lost
                            holder = await self._find_holder(conversation_id)
                        check.update(holder)
            except Exception as error:  # noqa: BLE001 - any failure must end the stream for the client
                yield encode_end(error, {})

    async def _is_running(self, conversation_id: str, turn: str) -> bool:
        return await self._find_holder(conversation_id) == (turn, True)

    async def _find_holder(self, conversation_id: str) -> tuple[str, bool]:
        """Return the conversation's running turn, or its last turn, and True if the turn is running."""
        try:
            return await self._store.read_turn(conversation_id)
        except ConversationNotFound:
            return "", False


def _parse_events(message: Envelope) -> list[tuple[int | None, str]]:
    """Return the positions and encoded events of a message.

    Raises:
        TurnLost: The message is invalid.
    """
    try:
        events = [(position, text) for position, text in json.loads(message.body)]
    except (TypeError, ValueError, RecursionError):
        events = [(0, None)]
    if not all(isinstance(position, int | None) and isinstance(text, str) for position, text in events):
        raise TurnLost("the events of this turn cannot be read here; the conversation has its messages")
    return events


class TurnLost(DialError):
    """The process that ran a turn has ended, or did not report how the turn ended."""


class _LivenessCheck:
    """Decides when a silent turn is lost."""

    def __init__(self, turn: str) -> None:
        self._turn = turn
        self._released_at: float | None = None

    def update(self, holder: tuple[str, bool]) -> None:
        """Record the conversation's running turn, or its last turn, and whether it is running.

        Raises:
            TurnLost: The turn stopped running some time ago and did not report its end.
        """
        now = anyio.current_time()
        if holder == (self._turn, True):
            self._released_at = None
            return
        self._released_at = self._released_at or now
        if holder[0] == self._turn or now - self._released_at >= END_TIMEOUT:
            raise TurnLost("the outcome of this turn is unknown; the conversation has the messages stored until then")

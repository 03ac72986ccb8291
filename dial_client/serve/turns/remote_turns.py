"""Reads and stops the turns that other processes run, and lets them read and stop the turns of this process.

A process that wants to read a turn asks all others; the one that runs the turn, or ran it lately, sends its events
until the turn ends, and for as long as the reader asks again. Events without a reader elsewhere are sent nowhere.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any
from weakref import WeakValueDictionary

import anyio

from dial_client.messages.errors import ConversationNotFound, DialError
from dial_client.serve.sse_response import OPENING_COMMENT, encode_end, read_for_front_end, read_turn
from dial_client.serve.turns.peers import Peers
from dial_client.serve.turns.turn_registry import ServedModel, TurnRegistry
from dial_client.sinks.stream_forms import StreamForm
from dial_client.turns.turn_handle import TurnHandle

# Seconds to wait until another process responds. Programs that use the database without serving never do.
REQUEST_TIMEOUT = 5.0
# The same for a turn that has ended, and whose process may still have its events.
ENDED_TIMEOUT = 1.0
# Seconds in which the end of a turn must arrive after the database shows that it no longer runs.
END_TIMEOUT = 3.0
# Seconds without an event after which a reader asks again, and looks whether the turn's process is alive.
SILENCE_TIMEOUT = 2.0
# Seconds after which a turn is no longer sent to a reader that has not asked again.
READER_TIMEOUT = 15.0
# Seconds in which the events after the first are collected into one message.
BATCH_INTERVAL = 0.05
# Events in one message.
MAX_BATCH = 1_000

_LOST = "the outcome of this turn is unknown; the conversation has the messages stored until then"

FindTurn = Callable[[str, str], TurnHandle | None]


class RemoteTurns:
    """The turns of other processes, and those of this one for the others.

    Args:
        peers: The other processes.
        find_turn: Returns a turn that this process ran lately, given the ids of its conversation and its own.
        turns: The running turns of this process.
        model: The model's current name in the API.
    """

    def __init__(self, peers: Peers, find_turn: FindTurn, turns: TurnRegistry, model: ServedModel) -> None:
        self._peers = peers
        self._store = peers.store
        self._find_turn = find_turn
        self._turns = turns
        self._model = model
        self._readers: WeakValueDictionary[str, RemoteReader] = WeakValueDictionary()
        # For each reader of a turn of this process, until when it is sent to.
        self._served: dict[str, float] = {}
        # The requests to stop a turn that no process has stopped yet.
        self._stops: dict[str, anyio.Event] = {}
        peers.handle(read=self._on_read, events=self._on_events, stop=self._on_stop, stopped=self._on_stopped)
        peers.handle(connected=self._on_connected)

    async def stop(self, conversation_id: str) -> bool:
        """Ask the process that runs a conversation's turn to stop it; return False if the process does not respond.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        turn, is_running = await self._store.read_turn(conversation_id)
        if not is_running:
            return True
        request, stopped = secrets.token_hex(8), anyio.Event()
        self._stops[request] = stopped
        try:
            await self._peers.send("stop", {"turn": turn, "request": request})
            with anyio.move_on_after(REQUEST_TIMEOUT):
                await stopped.wait()
        finally:
            del self._stops[request]
        return stopped.is_set() or await self._find_holder(conversation_id) != (turn, True)

    async def find_events(self, conversation_id: str, turn: str, after: int) -> AsyncGenerator[str, None] | None:
        """Return the encoded events of a turn after a position, as `stream_turn` does; None if they are not available.

        Raises:
            DialError: The other processes cannot be asked.
        """
        if not (turn.isascii() and turn.isprintable()):
            return None
        is_running = await self._find_holder(conversation_id) == (turn, True)
        return await self._begin(RemoteReader(self._peers, conversation_id, turn, after), is_running=is_running)

    async def find_latest(
        self, conversation_id: str, form: StreamForm, ended: str = ""
    ) -> AsyncGenerator[str, None] | None:
        """Return the stream of a conversation's running turn for a front end; None if no process has it.

        Without a running turn it is that of `ended`, a turn that has ended lately.

        Raises:
            DialError: The other processes cannot be asked.
        """
        turn, is_running = await self._find_holder(conversation_id)
        turn = turn or ended
        if not turn or not (is_running or form.resumes or ended):
            return None
        return await self._begin(RemoteReader(self._peers, conversation_id, turn, 0, form), is_running=is_running)

    async def _begin(self, reader: RemoteReader, *, is_running: bool) -> AsyncGenerator[str, None] | None:
        self._readers[reader.id] = reader
        await reader.ask()
        batch = await reader.read(REQUEST_TIMEOUT if is_running else ENDED_TIMEOUT)
        return self._stream(reader, batch) if batch is not None else None

    async def _stream(
        self, reader: RemoteReader, batch: list[tuple[int | None, str]] | None
    ) -> AsyncGenerator[str, None]:
        yield OPENING_COMMENT
        released_at: float | None = None
        try:
            while True:
                for position, text in batch or ():
                    if position is None:
                        yield text
                        return
                    if position > reader.after:
                        reader.after = position
                        yield text
                if batch is None:
                    holder = "", False
                    with suppress(DialError):  # the database may recover before the turn counts as lost
                        holder = await self._find_holder(reader.conversation_id)
                    now = anyio.current_time()
                    released_at = None if holder == (reader.turn, True) else released_at or now
                    if holder == (reader.turn, False) or (released_at and now - released_at >= END_TIMEOUT):
                        raise TurnLost(_LOST)  # noqa: TRY301 - it ends the stream as any failure does
                if reader.is_restarted:
                    # What is still sent to the earlier reader would arrive before what is missing.
                    reader = RemoteReader(self._peers, reader.conversation_id, reader.turn, reader.after, reader.form)
                    self._readers[reader.id] = reader
                if batch is None or anyio.current_time() - reader.asked > READER_TIMEOUT / 3:
                    with suppress(DialError):
                        await reader.ask()
                batch = await reader.read(SILENCE_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - any failure must end the stream for the client
            form = reader.form
            encoder = None if form is None else form.build_encoder(reader.turn, reader.conversation_id)
            yield encode_end(error, {}) if encoder is None else encoder.end(error)

    async def _find_holder(self, conversation_id: str) -> tuple[str, bool]:
        """Return the conversation's running turn, or its last turn, and True if the turn is running."""
        try:
            return await self._store.read_turn(conversation_id)
        except ConversationNotFound:
            return "", False

    def _on_connected(self, content: Mapping[str, Any], sender: str) -> None:  # noqa: ARG002 - a `HandleMessage`
        for reader in list(self._readers.values()):
            reader.is_restarted = True
            reader.wake()

    def _on_events(self, content: Mapping[str, Any], sender: str) -> None:  # noqa: ARG002 - a `HandleMessage`
        if (reader := self._readers.get(content["reader"])) is not None:
            reader.receive(content["events"], content.get("since"))

    def _on_stopped(self, content: Mapping[str, Any], sender: str) -> None:  # noqa: ARG002 - a `HandleMessage`
        if (stopped := self._stops.get(content["request"])) is not None:
            stopped.set()

    def _on_stop(self, content: Mapping[str, Any], sender: str) -> None:
        if (turn := self._find_running(content["turn"])) is not None:
            turn.cancel()
            self._peers.start_soon(self._peers.send, "stopped", {"request": content["request"]}, sender)

    def _on_read(self, content: Mapping[str, Any], sender: str) -> None:
        reader, after = content["reader"], content["after"]
        if not isinstance(after, int) or not isinstance(reader, str):
            raise TypeError("a field has another type")
        turn = self._find_running(content["turn"]) or self._find_turn(content["conversation"], content["turn"])
        if turn is None or turn.conversation_id != content["conversation"]:
            return
        form = None if content.get("form") is None else StreamForm.from_dict(content["form"])
        is_served = reader in self._served
        self._served[reader] = anyio.current_time() + READER_TIMEOUT
        if not is_served:
            self._peers.start_soon(self._send_events, turn, after, form, reader, sender)

    def _find_running(self, turn_id: str) -> TurnHandle | None:
        return next((turn for turn in self._turns.conversation_turns if turn.id == turn_id), None)

    async def _send_events(self, turn: TurnHandle, after: int, form: StreamForm | None, reader: str, to: str) -> None:
        """Send the events of a turn after a position, until it ends or the reader no longer asks for them."""
        batch: list[tuple[int | None, str]] = []
        since = after
        try:
            # A first empty message tells the reader that the turn is here.
            await self._peers.send("events", {"reader": reader, "events": batch, "since": since}, to)
            read = read_turn(turn, after, self._model.name) if form is None else read_for_front_end(turn, form, after)
            async with aclosing(read) as events:
                async for position, text in events:
                    batch.append((position, text))
                    if position is not None and position < turn.log.last and len(batch) < MAX_BATCH:
                        continue
                    if anyio.current_time() > self._served[reader]:
                        return
                    await self._peers.send("events", {"reader": reader, "events": batch, "since": since}, to)
                    since, batch = (since if position is None else position), []
                    await anyio.sleep(BATCH_INTERVAL)
        except DialError:
            return  # the reader asks again
        finally:
            del self._served[reader]


class RemoteReader:
    """A reader of a turn of another process."""

    def __init__(
        self, peers: Peers, conversation_id: str, turn: str, after: int, form: StreamForm | None = None
    ) -> None:
        self.id = secrets.token_hex(8)
        self.conversation_id = conversation_id
        self.turn = turn
        self.form = form
        """The form of the stream for a front end; None for that of the page."""
        self.after = after
        """The position of the last event that was read."""
        self.asked = -math.inf
        """When the events were asked for last."""
        self.is_restarted = False
        """Whether events may be lost, because the connection was."""
        self._peers = peers
        self._batches: list[list[tuple[int | None, str]]] = []
        # The position of the last event that has arrived, perhaps not yet read.
        self._received = after
        self._changed = anyio.Event()

    async def ask(self) -> None:
        """Ask all processes for the events after the last one.

        Raises:
            DialError: They cannot be asked.
        """
        self.asked = anyio.current_time()
        about = {"conversation": self.conversation_id, "turn": self.turn}
        form = {} if self.form is None else {"form": self.form.to_dict()}
        await self._peers.send("read", {**about, "after": self.after, "reader": self.id, **form})

    def receive(self, batch: Any, since: Any) -> None:
        """Add events, unless events before them are missing: then all after the last one are to be asked for again.

        Args:
            batch: The events, each with its position, which the end of the stream does not have.
            since: The position of the event that was sent before; None from a process of an older version.

        Raises:
            TypeError, ValueError: They have another form.
        """
        events = [(position, text) for position, text in batch]
        if not all(isinstance(position, int | None) and isinstance(text, str) for position, text in events):
            raise TypeError("an event has another form")
        # A message that was sent while this process had no connection is lost. The next one may arrive before this
        # process knows that it has a connection again.
        self.is_restarted = self.is_restarted or (isinstance(since, int) and since > self._received)
        if not self.is_restarted:
            self._batches.append(events)
            self._received = max([self._received, *(position for position, _ in events if position is not None)])
        self.wake()

    def wake(self) -> None:
        """Let `read` return."""
        self._changed.set()

    async def read(self, timeout: float) -> list[tuple[int | None, str]] | None:
        """Return the events that have arrived, perhaps none yet; None if nothing arrives within `timeout` seconds."""
        with anyio.move_on_after(timeout) as scope:
            await self._changed.wait()
        if scope.cancelled_caught:
            return None
        self._changed = anyio.Event()
        batches, self._batches = self._batches, []
        return [event for batch in batches for event in batch]


class TurnLost(DialError):
    """The process that ran a turn has ended, or did not report how the turn ended."""

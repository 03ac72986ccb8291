"""The other processes of a service over one PostgreSQL database: what they tell each other, by LISTEN and NOTIFY.

A message is a JSON object with a `kind`. It says what to do, or what to read in the database. It costs one statement on
a connection for messages alone, and is not stored: it reaches the processes that are connected. What must not be lost
is a row of a table. Processes of other versions send and read the same forms: keep them stable.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.messages.errors import DialError, StoreUnavailable
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger
from dial_client.sinks.sse_encoder import to_json
from dial_client.stores.sql_store import SQLStore

if TYPE_CHECKING:
    from asyncpg import Connection

log = get_logger(__name__)

# The channel of the messages to all processes. That of one process has its id after it.
CHANNEL = "dial_client"
# Characters of a message in one notification, which has 8,000 bytes with its head at most.
CHUNK = 7_500
# Characters of a message. A longer one, such as a video, cannot be sent.
MAX_CHARS = 64_000_000
# Seconds after which a lost connection is opened again: at first, and after many failures.
RECONNECT_PAUSE = (0.05, 2.0)
# Seconds between two checks of the connection, which may break without a sign, and for which one may take.
CHECK_INTERVAL = 30.0
_TIMEOUT = 10.0
# Seconds after the loss of a connection for which all messages wait for the next one, and in which the last events are
# sent on shutdown.
_CONNECTING = _SHUTDOWN_TIMEOUT = 5.0
# The kind of message that a process gets from itself after each connection: messages before it may be lost.
CONNECTED = "connected"

# Handles a message: its content, and the process that sent it. Raises `KeyError`, `TypeError` or `ValueError` if the
# message is invalid.
HandleMessage = Callable[[Mapping[str, Any], str], None]


class Peers:
    """Sends messages to the other processes, and handles theirs, each whole or not at all, and in their order.

    Args:
        store: The conversations, in PostgreSQL.
    """

    def __init__(self, store: SQLStore) -> None:
        self.store = store
        self._id = secrets.token_hex(8)
        self._handlers: defaultdict[str, list[HandleMessage]] = defaultdict(list)
        self._connection: Connection[Any] | None = None
        self._connected = anyio.Event()
        # When the connection was lost, or first missed.
        self._lost_at = math.inf
        # A connection executes one statement at a time.
        self._executing = anyio.Lock()
        self._sent = 0
        # The chunks of messages that have not arrived whole, by the sender's id and the message's number.
        self._chunks: dict[tuple[str, str], list[str]] = {}
        self._tasks: BackgroundTasks | None = None

    def handle(self, **handlers: HandleMessage) -> None:
        """Handle messages of these kinds, `CONNECTED` among them."""
        for kind, handler in handlers.items():
            self._handlers[kind].append(handler)

    async def send(
        self, kind: str, content: Mapping[str, Any], to: str = "", *, unlock: tuple[int, int] | None = None
    ) -> None:
        """Send a message to a process, or to all others; release a lock of `lock`, with its key and number, before.

        Raises:
            DialError: The message is too long, or the connection is lost.
        """
        await self._notify(to_json({"kind": kind, "from": self._id, **content}), to, unlock)

    async def _notify(self, text: str, to: str = "", unlock: tuple[int, int] | None = None) -> None:
        if len(text) > MAX_CHARS:
            raise DialError("the message is too long for the other processes")
        chunks = [text[index : index + CHUNK] for index in range(0, len(text), CHUNK)]
        self._sent += 1
        # The numbers also keep chunks apart that are the same: PostgreSQL sends equal ones of a transaction once.
        payloads = [f"{self._id} {self._sent} {index} {len(chunks)} {chunk}" for index, chunk in enumerate(chunks)]
        unlocks = ", pg_advisory_unlock($3, $4)" if unlock is not None else ""
        statement = f"SELECT pg_notify($1, payload){unlocks} FROM unnest($2::text[]) AS payload"  # noqa: S608
        await self._execute(statement, f"{CHANNEL}_{to}" if to else CHANNEL, payloads, *(unlock or ()))

    async def lock(self, key: int, count: int, held: Collection[int]) -> int | None:
        """Take one of `count` locks, and return its number; None if other processes have all that are not `held`.

        The lock ends with the connection.

        Args:
            key: The name of the locks, a number of 32 bits.
            count: How many there are; the first is 1.
            held: The numbers of those that this process has.

        Raises:
            DialError: The connection is lost.
        """
        statement = (
            "SELECT number FROM generate_series(1, $2::int) AS number WHERE"
            " CASE WHEN number = ANY ($3::int[]) THEN false ELSE pg_try_advisory_lock($1, number) END LIMIT 1"
        )
        rows = await self._execute(statement, key, count, list(held))
        return rows[0]["number"] if rows else None

    def start_soon(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task that answers a message; on shutdown it has some seconds to end."""
        if self._tasks is not None:
            self._tasks.start_soon(fn, *args)

    async def run(self) -> None:
        """Exchange messages until cancellation; then send the last events of the turns that have ended."""
        connection, self._tasks = await BackgroundTasks.open(), await BackgroundTasks.open()
        try:
            connection.start_soon(self._stay_connected)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await self._tasks.aclose(_SHUTDOWN_TIMEOUT)
                await connection.aclose()

    async def _stay_connected(self) -> None:
        pause, longest = RECONNECT_PAUSE
        while True:
            try:
                await self._listen()
                pause = RECONNECT_PAUSE[0]
            except Exception as error:  # noqa: BLE001 - the database may be back at the next attempt
                if pause == RECONNECT_PAUSE[0]:
                    log.warning("notifications_interrupted", error=type(error).__name__)
                pause = min(pause * 2, longest)
            await anyio.sleep(pause)

    async def _listen(self) -> None:
        """Receive messages until the connection is lost."""
        async with (await self.store.open()).connect() as pooled:
            connection: Any = (await pooled.get_raw_connection()).driver_connection
            lost = anyio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            try:
                for channel in (CHANNEL, f"{CHANNEL}_{self._id}"):
                    await connection.add_listener(channel, self._on_notification)
                self._chunks.clear()
                self._connection = connection
                self._connected.set()
                self._receive(to_json({"kind": CONNECTED, "from": self._id}))
                while not lost.is_set():
                    with anyio.move_on_after(CHECK_INTERVAL):
                        await lost.wait()
                    await self._execute("SELECT 1")
            finally:
                self._connection, self._connected = None, anyio.Event()
                self._lost_at = anyio.current_time()
                with anyio.CancelScope(shield=True):
                    await pooled.invalidate()

    async def _execute(self, statement: str, *arguments: object) -> list[Any]:
        """Execute a statement on the connection, and return its rows.

        Raises:
            StoreUnavailable: The connection is lost.
        """
        async with self._executing:
            if self._connection is None:
                self._lost_at = min(self._lost_at, anyio.current_time())
                with anyio.CancelScope(deadline=self._lost_at + _CONNECTING):
                    await self._connected.wait()
            connection = self._connection
            if connection is None:
                raise StoreUnavailable("the database of conversations cannot be reached")
            try:
                with anyio.fail_after(_TIMEOUT):
                    return list(await connection.fetch(statement, *arguments))
            except Exception as error:
                connection.terminate()
                raise StoreUnavailable(f"the database of conversations failed: {type(error).__name__}") from error

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        """Receive the message that ends with this notification of another process."""
        try:
            sender, number, index, count, chunk = payload.split(" ", 4)
            position, last = int(index), int(count) - 1
        except ValueError:
            log.warning("notification_invalid")  # from another program
            return
        if sender == self._id:
            return
        chunks = self._chunks.setdefault((sender, number), [])
        chunks.append(chunk)
        is_whole = position == len(chunks) - 1  # otherwise its beginning was lost
        if is_whole and position < last <= MAX_CHARS // CHUNK:
            return
        del self._chunks[sender, number]
        if is_whole and position == last:
            self._receive("".join(chunks))

    def _receive(self, text: str) -> None:
        try:
            content = json.loads(text)
            for handler in self._handlers.get(content["kind"], ()):
                handler(content, content["from"])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # another version, or forged
            log.warning("message_invalid", error=type(error).__name__)

"""Messages between the processes that use one PostgreSQL database, over one connection with LISTEN and NOTIFY.

A message costs one statement, and nothing is stored: it reaches the processes that are connected. What must not be lost
is a row of a table, and the message says only that it is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.messages.errors import DialError, StoreUnavailable
from dial_client.runtime.logs import get_logger
from dial_client.stores.database import Database

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
# Seconds that a message waits for the connection.
_CONNECTING = 5.0


class PostgresNotifications:
    """Sends and receives messages. Processes that connect later do not get earlier ones.

    Messages of one process arrive in their order, and each whole or not at all.

    Args:
        database: The database, in PostgreSQL.
        receive: Called with each message of another process.
        on_connected: Called after each connection: messages that were sent before it may be lost.
    """

    def __init__(
        self, database: Database, receive: Callable[[str], None], on_connected: Callable[[], None] = lambda: None
    ) -> None:
        self.id = secrets.token_hex(8)
        """The id of this process, to which others send."""
        self._database = database
        self._receive = receive
        self._on_connected = on_connected
        self._connection: Connection[Any] | None = None
        self._connected = anyio.Event()
        # A connection executes one statement at a time.
        self._sending = anyio.Lock()
        self._sent = 0
        # The chunks of messages that have not arrived whole, by the sender's id and the message's number.
        self._chunks: dict[tuple[str, str], list[str]] = {}

    async def send(self, text: str, to: str = "") -> None:
        """Send a message, which is ASCII, to the process with this id, or to all others.

        Raises:
            DialError: The message is too long, or the connection is lost.
        """
        if len(text) > MAX_CHARS:
            raise DialError("the message is too long for the other processes")
        chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)] or [""]
        self._sent += 1
        # The numbers also keep chunks apart that are the same: PostgreSQL sends equal ones of a transaction once.
        payloads = [f"{self.id} {self._sent} {at} {len(chunks)} {chunk}" for at, chunk in enumerate(chunks)]
        channel = f"{CHANNEL}_{to}" if to else CHANNEL
        statement = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"
        async with self._sending:
            await self._execute(statement, channel, payloads)

    async def run(self) -> None:
        """Receive messages until cancellation. A lost connection is opened again."""
        first, longest = RECONNECT_PAUSE
        pause = first
        while True:
            try:
                await self._listen()
                pause = first
            except Exception as error:  # noqa: BLE001 - the database may be back at the next attempt
                if pause == first:
                    log.warning("notifications_interrupted", error=type(error).__name__)
                pause = min(pause * 2, longest)
            await anyio.sleep(pause)

    async def _listen(self) -> None:
        """Receive messages until the connection is lost."""
        engine = await self._database.open()
        async with engine.connect() as pooled:
            connection: Any = (await pooled.get_raw_connection()).driver_connection
            lost = anyio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            try:
                for channel in (CHANNEL, f"{CHANNEL}_{self.id}"):
                    await connection.add_listener(channel, self._on_notification)
                self._chunks.clear()
                self._connection = connection
                self._connected.set()
                self._on_connected()
                while not lost.is_set():
                    with anyio.move_on_after(CHECK_INTERVAL):
                        await lost.wait()
                    async with self._sending:
                        await self._execute("SELECT 1")
            finally:
                self._connection, self._connected = None, anyio.Event()
                with anyio.CancelScope(shield=True):
                    await pooled.invalidate()

    async def _execute(self, statement: str, *arguments: object) -> None:
        """Execute a statement on the connection.

        Raises:
            StoreUnavailable: The connection is lost.
        """
        with anyio.move_on_after(_CONNECTING):
            await self._connected.wait()
        connection = self._connection
        if connection is None:
            raise StoreUnavailable("the database of conversations cannot be reached")
        try:
            with anyio.fail_after(_TIMEOUT):
                await connection.fetch(statement, *arguments)
        except Exception as error:
            connection.terminate()
            raise StoreUnavailable(f"the database of conversations failed: {type(error).__name__}") from error

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        if (message := self._join(payload)) is not None:
            self._receive(message)

    def _join(self, payload: str) -> str | None:
        """Return the message that ends with this notification of another process."""
        try:
            sender, number, at, count, chunk = payload.split(" ", 4)
            position, last = int(at), int(count) - 1
        except ValueError:
            log.warning("notification_invalid")  # from another program
            return None
        if sender == self.id:
            return None
        chunks = self._chunks.setdefault((sender, number), [])
        chunks.append(chunk)
        is_whole = position == len(chunks) - 1  # otherwise its beginning was lost
        if is_whole and position < last <= MAX_CHARS // CHUNK:
            return None
        del self._chunks[sender, number]
        return "".join(chunks) if is_whole and position == last else None

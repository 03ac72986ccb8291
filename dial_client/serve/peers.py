"""The other processes of a service over one PostgreSQL database: what they tell each other.

A message is a JSON object with a `kind`. It says what to do, or what to read in the database: messages are not stored.
Processes of other versions send and read the same forms: keep them stable.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from dial_client.messages.errors import ConfigError
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger
from dial_client.serve.turn_registry import WakeSignal
from dial_client.sinks.sse_encoder import to_json
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.sql_store import SQLStore

log = get_logger(__name__)

# Seconds in which the last events are sent on shutdown.
_SHUTDOWN_TIMEOUT = 5.0

# Handles a message: its content, and the process that sent it. Raises `KeyError`, `TypeError` or `ValueError` if the
# message is invalid.
HandleMessage = Callable[[Mapping[str, Any], str], None]


class Peers:
    """Sends messages to the other processes, and handles theirs.

    Args:
        store: The conversations, in PostgreSQL.

    Raises:
        ConfigError: The conversations are elsewhere.
    """

    def __init__(self, store: ConversationStore) -> None:
        if not (isinstance(store, SQLStore) and store.is_postgres):
            raise ConfigError("several processes share their turns over PostgreSQL alone", hint="postgresql://…")
        self.store = store
        self._notifications = store.build_notifications(self._receive, self._on_connected)
        self._handlers: dict[str, HandleMessage] = {}
        self._connected: list[Callable[[], None]] = []
        self._tasks: BackgroundTasks | None = None
        self._running = 0
        self._task_ended = WakeSignal()
        self._closing = anyio.Event()

    def handle(self, **handlers: HandleMessage) -> None:
        """Handle messages of these kinds."""
        self._handlers |= handlers

    def call_when_connected(self, call: Callable[[], None]) -> None:
        """Call this after each connection: messages before it may be lost."""
        self._connected.append(call)

    async def send(self, kind: str, content: Mapping[str, Any], to: str = "") -> None:
        """Send a message to a process, or to all others.

        Raises:
            DialError: The message cannot be sent.
        """
        await self._notifications.send(to_json({"kind": kind, "from": self._notifications.id, **content}), to)

    def start_soon(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task that answers a message; on shutdown it has some seconds to end."""
        if self._tasks is not None:
            self._running += 1
            self._tasks.start_soon(self._run_task, fn, args)

    async def _run_task(self, fn: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        try:
            await fn(*args)
        finally:
            self._running -= 1
            self._task_ended.send()

    async def run(self) -> None:
        """Exchange messages until `close` or cancellation; then send the last events of the turns that have ended."""
        self._tasks = tasks = await BackgroundTasks.open()
        try:
            tasks.start_soon(self._notifications.run)
            await self._closing.wait()
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_SHUTDOWN_TIMEOUT):
                    while self._running:
                        await self._task_ended.wait(_SHUTDOWN_TIMEOUT)
                await tasks.aclose()

    def close(self) -> None:
        """End `run`; call this after the last turn has ended."""
        self._closing.set()

    def _on_connected(self) -> None:
        for call in self._connected:
            call()

    def _receive(self, text: str) -> None:
        try:
            content = json.loads(text)
            handler = self._handlers.get(content["kind"])
            if handler is not None:
                handler(content, content["from"])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # another version, or forged
            log.warning("message_invalid", error=type(error).__name__)

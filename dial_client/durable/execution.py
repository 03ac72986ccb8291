"""Runs the durable turns of this process: the steps of their workflows."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import anyio

from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.durable import results
from dial_client.durable.results import create_attempt_id, extract_conversation_id, is_attempt_of
from dial_client.durable.serialization import RowRefused
from dial_client.messages.errors import ConfigError, ConversationNotFound, DialError
from dial_client.runtime.logs import get_logger
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.turn_handle import TurnHandle

log = get_logger(__name__)

_POLL_INTERVAL = 0.5
"""Seconds between two checks whether another process still runs a turn."""


class TurnExecution:
    """Runs the durable turns of this process.

    Args:
        manager: The manager that runs the turns.
        on_started: Called with each turn that starts in a workflow.
        is_stopping: Returns True if the process is shutting down and starts no more turns.
    """

    def __init__(
        self,
        manager: ConversationManager,
        on_started: Callable[[TurnHandle], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.executor_id = secrets.token_hex(16)
        """The id of this process for DBOS."""
        self.turn_ids: set[str] = set()
        """The ids of this process's turns whose workflows have not ended."""
        self._manager = manager
        self._on_started = on_started
        self._is_stopping = is_stopping
        self._started: dict[str, TurnHandle] = {}
        """Turns that have started, and whose workflows have not started yet, by id."""
        self._abandoned: set[str] = set()
        self._start_locks: dict[str, anyio.Lock] = {}

    def add_started(self, turn_id: str, turn: TurnHandle) -> None:
        """Add a turn that has started before its workflow."""
        self._started[turn_id] = turn

    def discard(self, turn_id: str) -> None:
        """Drop a turn that has ended, or whose workflow could not be started."""
        self._started.pop(turn_id, None)
        self._start_locks.pop(turn_id, None)
        self.turn_ids.discard(turn_id)

    async def start_turn(self, turn_id: str, conversation_id: str, row: str) -> None:
        """Store the message and start the turn, unless another attempt has started it: the first step of a workflow.

        Raises:
            DialError: The message cannot be read, the turn cannot start, or another process has taken the turn over.
        """
        # DBOS executes a workflow twice in this process if the workflow is resumed before it has run its first line.
        async with self._start_locks.setdefault(turn_id, anyio.Lock()):
            await self._start_once(turn_id, conversation_id, row)

    async def _start_once(self, turn_id: str, conversation_id: str, row: str) -> None:
        attempt_id, _ = await self.find_holder(conversation_id)
        if is_attempt_of(turn_id, attempt_id):
            return
        if self._is_stopping():
            await self._abandon(turn_id)
        if not await self._is_own_workflow(turn_id):
            raise DialError("another process has taken over the turn")
        message, output_type = results.to_message(row), results.read_output_type(row)
        turn = await self._manager.start(
            conversation_id, message, turn_id=create_attempt_id(turn_id), output_type=output_type
        )
        self._on_started(turn)

    async def finish_turn(self, turn_id: str, conversation_id: str, row: str = "") -> dict[str, str]:
        """Return the result of a turn, which any process may have started: the last step of a workflow."""
        try:
            turn = await self._attach(turn_id, conversation_id, row)
            if turn is None:
                stored = await self._manager.get(conversation_id)
                return results.to_row_of_stored(stored, results.to_message(row))
        except DialError as error:
            return results.to_error_row(error)
        try:
            result = results.to_row(await turn.result())
        except DialError as error:
            result = results.to_error_row(error)
        if turn.is_abandoned:
            await self._abandon(turn_id)
        return result

    async def abandon_all(self) -> None:
        """Leave all turns to other processes, and return when their workflows have stopped."""
        while remaining := self.turn_ids - self._abandoned:
            for turn_id in remaining:
                turn = self._manager.find_turn(extract_conversation_id(turn_id))
                if turn is not None and is_attempt_of(turn_id, turn.id):
                    turn.abandon()
            await anyio.sleep(0.02)

    async def find_holder(self, conversation_id: str) -> tuple[str, bool]:
        """Return `Conversation.turn` and `Conversation.running`; `SQLStore` does so without reading the messages."""
        store = self._manager.store
        if isinstance(store, SQLStore):
            return await store.read_turn(conversation_id)
        stored = await store.get(conversation_id)
        return stored.turn, stored.running

    async def _attach(self, turn_id: str, conversation_id: str, row: str) -> TurnHandle | None:
        """Return the handle of a turn that runs or ran in this process; None if it has ended in another process.

        This waits while another process runs the turn, and resumes the turn if no process runs it.
        """
        turn = self._started.pop(turn_id, None) or self._manager.find_turn(conversation_id)
        if turn is not None and is_attempt_of(turn_id, turn.id):
            return turn
        while True:
            try:
                attempt_id, is_running = await self.find_holder(conversation_id)
                if not is_attempt_of(turn_id, attempt_id):
                    return None
                if not is_running:
                    if (turn := await self._resume(turn_id, conversation_id, row)) is not None:
                        return turn
                    continue  # the turn had ended, and `_resume` has released its conversation
            except (ConfigError, ConversationNotFound, RowRefused):
                raise
            except DialError as error:  # another process has resumed the turn first, or the store failed this time
                log.warning("durable_turn_waits", error=type(error).__name__)
            await anyio.sleep(_POLL_INTERVAL)

    async def _resume(self, turn_id: str, conversation_id: str, row: str) -> TurnHandle | None:
        if self._is_stopping():
            await self._abandon(turn_id)
        turn = await self._manager.resume(
            conversation_id, turn_id=create_attempt_id(turn_id), output_type=results.read_output_type(row)
        )
        if turn is not None:
            self._on_started(turn)
        return turn

    async def _abandon(self, turn_id: str) -> None:
        """Leave a turn to another process: the workflow stops here for ever, as if this process had been killed."""
        self._abandoned.add(turn_id)
        await anyio.sleep_forever()

    async def _is_own_workflow(self, turn_id: str) -> bool:
        from dbos import DBOS

        status = await DBOS.get_workflow_status_async(turn_id)
        return status is not None and status.executor_id == self.executor_id

"""What a service does beside its requests: it follows turns, measures itself, and deletes what is old.

Each turn of this process is seen from its start to its end: for the metrics, and for what its owner has used.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from dial_client.hooks.audit.log_writer import delete_old_files
from dial_client.messages.errors import DialError
from dial_client.messages.events import Finished, ReasoningDelta, TextDelta
from dial_client.runtime.logs import get_logger
from dial_client.serve.application import AppContext
from dial_client.serve.metrics import ServiceMetrics
from dial_client.serve.people.usage_ledger import UsageLedger
from dial_client.serve.turns.turn_registry import TurnRegistry
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.turn_handle import TurnHandle

log = get_logger(__name__)

# Seconds between two searches for what is too old.
_INTERVAL = 3600.0
# Seconds between two batches, in which other requests have the database to themselves.
_PAUSE = 0.05


async def run_maintenance(context: AppContext) -> None:
    """Do what the operator has asked for, until cancelled."""
    async with anyio.create_task_group() as group:
        if (metrics := context.operations.metrics) is not None:
            metrics.observe(context.dial, context.turns, context.store)
            group.start_soon(metrics.watch_loop)
        group.start_soon(TurnWatch(context.turns, metrics, context.usage).run)
        if (retain := context.operations.retain) is not None and isinstance(context.store, SQLStore):
            group.start_soon(run_retention, context.store, context.operations.audit_folder, retain)


async def run_retention(store: SQLStore, audit_folder: Path | None, retain: timedelta) -> None:
    """Delete at once, and then once an hour, until cancelled.

    Args:
        store: The conversations.
        audit_folder: The folder of the audit log; None for none.
        retain: For how long a conversation is kept after its last change.
    """
    while True:
        try:
            await delete_old(store, audit_folder, datetime.now(UTC) - retain)
        except DialError as error:  # the next hour may be better; why the database failed is in the log already
            log.warning("retention_failed", error=type(error).__name__)
        await anyio.sleep(_INTERVAL)


async def delete_old(store: SQLStore, audit_folder: Path | None, before: datetime) -> None:
    """Delete what is older than a time.

    Raises:
        DialError: The database failed.
    """
    conversations = files = 0
    while count := await store.owner_data.delete_older(before):
        conversations += count
        await anyio.sleep(_PAUSE)
    if audit_folder is not None:
        files = await anyio.to_thread.run_sync(delete_old_files, audit_folder, before.timestamp())
    if conversations or files:
        log.info("old_data_deleted", conversations=conversations, audit_files=files)


class TurnWatch:
    """Follows all turns that a registry counts.

    Args:
        turns: The turns of this process.
        metrics: Records what turns do; None for no metrics.
        ledger: Records what owners have used; None without a database.
    """

    def __init__(self, turns: TurnRegistry, metrics: ServiceMetrics | None, ledger: UsageLedger | None) -> None:
        self._metrics, self._ledger = metrics, ledger
        self._send, self._receive = anyio.create_memory_object_stream[tuple[TurnHandle, float]](float("inf"))
        turns.on_added = self._add

    def _add(self, turn: TurnHandle) -> None:
        began = anyio.current_time()
        if self._ledger is not None:
            self._ledger.expect(turn)
        turn.call_when_ended(partial(self._record, began))
        if self._metrics is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the service ends
                self._send.send_nowait((turn, began))

    def _record(self, began: float, turn: TurnHandle) -> None:
        if self._ledger is not None:
            self._ledger.add(turn)
        if self._metrics is not None and not turn.is_abandoned:
            ending = turn.ending if turn.failure is None else None  # the client of a turn that failed is told
            self._metrics.record_turn(ending, anyio.current_time() - began)

    async def run(self) -> None:
        """Follow the turns until cancelled; then store what they have used."""
        try:
            async with anyio.create_task_group() as group, self._send, self._receive as added:
                if self._ledger is not None:
                    group.start_soon(self._ledger.run)
                async for turn, began in added:
                    if self._metrics is not None:
                        # A task for each turn, until its first text: the end of a turn calls `_record`, without one.
                        group.start_soon(self._wait_for_text, turn, began, self._metrics)
        finally:
            if self._ledger is not None:
                await self._ledger.store_last()

    async def _wait_for_text(self, turn: TurnHandle, began: float, metrics: ServiceMetrics) -> None:
        with suppress(Exception):  # the turn failed: its client is told
            async with aclosing(turn.log.events()) as events:
                async for _, event in events:
                    if isinstance(event, TextDelta | ReasoningDelta | Finished):
                        metrics.record_first_token(anyio.current_time() - began)
                        return

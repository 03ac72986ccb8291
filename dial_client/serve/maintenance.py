"""What a service does beside its requests: it follows turns, measures itself, and deletes what is old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.to_thread

from dial_client.hooks.audit.log_writer import delete_old_files
from dial_client.messages.errors import DialError
from dial_client.runtime.logs import get_logger
from dial_client.serve.application import AppContext
from dial_client.serve.turn_watch import TurnWatch
from dial_client.stores.sql_store import SQLStore

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

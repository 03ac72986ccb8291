"""What a service does beside its requests: it follows turns, measures itself, and deletes what is old."""

from __future__ import annotations

import anyio

from dial_client.serve.application import AppContext
from dial_client.serve.retention import run_retention
from dial_client.serve.turn_watch import TurnWatch
from dial_client.stores.sql_store import SQLStore


async def run_maintenance(context: AppContext) -> None:
    """Do what the operator has asked for, until cancelled."""
    async with anyio.create_task_group() as group:
        if (metrics := context.operations.metrics) is not None:
            metrics.observe(context.dial, context.turns, context.store)
            group.start_soon(metrics.watch_loop)
        group.start_soon(TurnWatch(context.turns, metrics, context.usage).run)
        if (retain := context.operations.retain) is not None and isinstance(context.store, SQLStore):
            group.start_soon(run_retention, context.store, context.operations.audit_folder, retain)

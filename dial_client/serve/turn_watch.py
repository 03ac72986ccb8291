"""Sees each turn of this process from its start to its end: for the metrics, and for what its owner has used."""

from __future__ import annotations

from contextlib import aclosing, suppress
from functools import partial

import anyio

from dial_client.messages.events import Finished, ReasoningDelta, TextDelta
from dial_client.serve.metrics import ServiceMetrics
from dial_client.serve.people.usage_ledger import UsageLedger
from dial_client.serve.turns.turn_registry import TurnRegistry
from dial_client.turns.turn_handle import TurnHandle


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

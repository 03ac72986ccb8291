"""Sees each turn of this process from its start to its end, for the metrics of the service."""

from __future__ import annotations

from contextlib import aclosing, suppress

import anyio

from dial_client.messages.events import Finished, ReasoningDelta, TextDelta
from dial_client.messages.turn_result import Turn
from dial_client.serve.metrics import ServiceMetrics
from dial_client.serve.turn_registry import TurnRegistry
from dial_client.turns.turn_handle import TurnHandle


class TurnWatch:
    """Follows all turns that a registry counts.

    Args:
        turns: The turns of this process.
        metrics: Records what turns do.
    """

    def __init__(self, turns: TurnRegistry, metrics: ServiceMetrics) -> None:
        self._metrics = metrics
        self._send, self._receive = anyio.create_memory_object_stream[tuple[TurnHandle, float]](float("inf"))
        turns.on_added = self._add

    def _add(self, turn: TurnHandle) -> None:
        with suppress(anyio.BrokenResourceError):  # the service ends
            self._send.send_nowait((turn, anyio.current_time()))

    async def run(self) -> None:
        """Follow the turns until cancelled."""
        async with anyio.create_task_group() as group, self._send, self._receive as added:
            async for turn, began in added:
                group.start_soon(self._follow, turn, began)

    async def _follow(self, turn: TurnHandle, began: float) -> None:
        result: Turn | None = None
        try:
            await self._wait_for_text(turn, began)
            with suppress(Exception):  # the turn failed: its client is told
                result = await turn.result()
        finally:
            if turn.has_ended and not turn.is_abandoned:
                self._metrics.record_turn(result, anyio.current_time() - began)

    async def _wait_for_text(self, turn: TurnHandle, began: float) -> None:
        with suppress(Exception):  # as above
            async with aclosing(turn.log.events()) as events:
                async for _, event in events:
                    if isinstance(event, TextDelta | ReasoningDelta | Finished):
                        self._metrics.record_first_token(anyio.current_time() - began)
                        return

"""The turns that are under way, whoever asked for them: not too many at once, and none lost when the server leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from dial_client.serve.http_responses import HttpError
from dial_client.serve.wake_signal import WakeSignal
from dial_client.turns.turn_handle import TurnHandle

MAX_TURNS = 64


class TurnRegistry:
    """Keeps count.

    Args:
        most: turns at once; whoever asks for one more is asked to come again.
        leaves: those of conversations are left to other processes in the end, where they would be cancelled.
    """

    def __init__(self, most: int = MAX_TURNS, *, leaves: bool = False) -> None:
        self._most = most
        self._leaves = leaves
        self._running: set[TurnHandle] = set()
        self._asking = 0
        self._is_leaving = False
        self._is_over = False
        self.started = WakeSignal()
        """Is sent when a turn has started."""

    @property
    def is_leaving(self) -> bool:
        """Whether no further turn may begin."""
        return self._is_leaving

    @property
    def talks(self) -> tuple[TurnHandle, ...]:
        """Those that belong to conversations."""
        return tuple(turn for turn in self._now() if turn.conversation_id)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Have a place for a turn while it is being started; `keep` keeps it until the turn is over.

        Raises:
            Refusal: there is none.
        """
        if self._is_leaving:
            raise HttpError(503, "the server is being stopped", "stopping", kind="server_error")
        if len(self._now()) + self._asking >= self._most:
            why = f"{self._most} turns are under way: ask again in a while"
            raise HttpError(429, why, "too_many_turns", kind="rate_limit_error", headers={"retry-after": "2"})
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    def keep(self, turn: TurnHandle) -> None:
        """Count a turn until it is over."""
        self._running.add(turn)
        self.started.send()
        if self._is_over:  # it was being started when the others were ended
            self._let_go(turn)

    def leave(self) -> None:
        """Let no further turn begin."""
        self._is_leaving = True

    async def end(self, grace: float) -> None:
        """Give the turns so many seconds to come to their ends, then cancel or leave them: what they did is stored."""
        self.leave()
        running = self._now()
        with anyio.move_on_after(grace):
            for turn in running:
                with suppress(Exception):  # whoever asked for it is told
                    await turn.result()
        self._is_over = True
        for turn in running:
            self._let_go(turn)
        for turn in running:
            await turn.stopped()

    def _let_go(self, turn: TurnHandle) -> None:
        if self._leaves and turn.conversation_id:
            turn.abandon()
        else:
            turn.cancel()

    def _now(self) -> tuple[TurnHandle, ...]:
        self._running = {turn for turn in self._running if not turn.over}
        return tuple(self._running)

"""What waits for a question at a terminal, and what a question waits for: the same for each form of the terminal."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dial_client.callbacks.server_callbacks import ServerLog
from dial_client.text.safe_text import one_line

MAX_LINE = 300
"""Characters of a log message of a server, and of other foreign text on a line."""
PATIENCE = 1.0
"""Seconds a question waits until its call is shown."""


class QuestionPause:
    """Keeps what happens until a question is over, and a question until its call is shown."""

    def __init__(self) -> None:
        self._kept: list[Callable[[], None]] | None = None
        """None while no question has the terminal."""
        self._shown_calls: dict[str, anyio.Event] = {}

    @property
    def is_on(self) -> bool:
        """True while a question has the terminal."""
        return self._kept is not None

    def begin(self) -> None:
        """Begin to keep what happens."""
        self._kept = []

    def keep(self, show: Callable[[], None]) -> None:
        """Keep what `show` shows until the question is over."""
        assert self._kept is not None
        self._kept.append(show)

    def end(self) -> None:
        """Show what was kept, in its order."""
        kept, self._kept = self._kept or [], None
        for show in kept:
            show()

    async def until_shown(self, call_id: str | None) -> None:
        """Wait until a call is shown, at most `PATIENCE` seconds; do not wait where the question is about no call."""
        if call_id is not None:
            with anyio.move_on_after(PATIENCE):
                await self._find_shown(call_id).wait()

    def set_shown(self, call_id: str) -> None:
        """Record that a call is shown."""
        self._find_shown(call_id).set()

    def forget(self, call_id: str) -> None:
        """Forget a call that is over."""
        self._shown_calls.pop(call_id, None)

    def _find_shown(self, call_id: str) -> anyio.Event:
        return self._shown_calls.setdefault(call_id, anyio.Event())


def format_log(message: ServerLog) -> str:
    """Return the line of a log message, safe to show."""
    logger = f" {message.logger}" if message.logger else ""
    return one_line(f"{message.server}{logger} ({message.level}): {message.text}", MAX_LINE)

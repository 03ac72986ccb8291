"""Pauses the output of a terminal while a question is open, and delays a question until its call is shown."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dial_client.hooks.server_callbacks import ServerLog
from dial_client.runtime.safe_text import to_one_line

MAX_LINE = 300
"""Maximum characters of a server's log message, and of other untrusted text on a line."""
PATIENCE = 1.0
"""Maximum seconds that a question waits until its call is shown."""


class QuestionPause:
    """Holds output back while a question is open, and a question until its call is shown."""

    def __init__(self) -> None:
        self._kept: list[Callable[[], None]] | None = None
        """The output that is held back; None while no question is open."""
        self._shown_calls: dict[str, anyio.Event] = {}

    @property
    def is_on(self) -> bool:
        """Whether a question is open."""
        return self._kept is not None

    def begin(self) -> None:
        """Start to hold output back."""
        self._kept = []

    def keep(self, show: Callable[[], None]) -> None:
        """Call `show` when the question is closed."""
        assert self._kept is not None
        self._kept.append(show)

    def end(self) -> None:
        """Show the output that was held back, in its order."""
        kept, self._kept = self._kept or [], None
        for show in kept:
            show()

    async def wait_until_shown(self, call_id: str | None) -> None:
        """Wait until a call is shown, at most `PATIENCE` seconds; return at once for a question without a call."""
        if call_id is not None:
            with anyio.move_on_after(PATIENCE):
                await self._find_shown(call_id).wait()

    def set_shown(self, call_id: str) -> None:
        """Record that a call is shown."""
        self._find_shown(call_id).set()

    def forget(self, call_id: str) -> None:
        """Forget a call that has ended."""
        self._shown_calls.pop(call_id, None)

    def _find_shown(self, call_id: str) -> anyio.Event:
        return self._shown_calls.setdefault(call_id, anyio.Event())


def format_log(message: ServerLog) -> str:
    """Return a log message as one line, safe to display."""
    logger = f" {message.logger}" if message.logger else ""
    return to_one_line(f"{message.server}{logger} ({message.level}): {message.text}", MAX_LINE)

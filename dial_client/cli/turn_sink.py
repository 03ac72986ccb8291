"""The interface that shows a turn: on a screen, or line by line."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dial_client.hooks.server_callbacks import ServerLog
from dial_client.messages.events import Event
from dial_client.messages.token_usage import Usage


class TurnSink(Protocol):
    """Shows the events of a turn, and reserves the terminal for questions."""

    def begin(self) -> None:
        """Begin a turn."""

    def end(self) -> None:
        """End a turn, whatever its outcome."""

    def add_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add usage outside of turns, such as that of a summary; `cost_usd` is None if the cost is unknown."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def log(self, message: ServerLog) -> None:
        """Show a log message of a server."""

    def question(self, call_id: str | None = None) -> AbstractAsyncContextManager[None]:
        """Reserve the terminal for one question; `call_id` is the call that it is about, if there is one."""

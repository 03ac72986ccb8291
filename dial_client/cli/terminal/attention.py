"""A bell or a desktop notification for a user who has turned to something else while the program waits."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TextIO, TypeVar

import anyio

from dial_client.settings.config_types import Notification

# Seconds without a key after which the user is notified.
PATIENCE = 10.0
APPROVAL, QUESTION, ANSWER = "A call waits for your approval", "A server asks a question", "The answer is ready"

T = TypeVar("T")


class Attention:
    """Knows since when the program waits for the user, and notifies them once.

    Args:
        clock: Returns the time in seconds, like `time.monotonic`.
        environment: The environment variables; `TMUX` is set within tmux, and with a `TERM` of
            ``dumb`` the terminal understands only a bell.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.kind: Notification = "bell"
        self._clock, self._is_in_tmux = clock, bool(environment.get("TMUX"))
        self._is_dumb = environment.get("TERM") in ("dumb", "unknown")
        self._awaited = ""
        self._since = 0.0

    def expect(self, text: str) -> None:
        """Wait for the user from now on; `text` is the program's own, and is shown in a desktop notification."""
        self._awaited, self._since = text, self._clock()

    def settle(self) -> None:
        """End the wait: the user has pressed a key, or there is nothing to wait for any more."""
        self._awaited = ""

    def take(self) -> str:
        """Return the characters that notify the user, when it is time; empty before that, and afterwards."""
        if not self._awaited or self._clock() - self._since < PATIENCE:
            return ""
        text, self._awaited = self._awaited, ""
        if self.kind == "none":
            return ""
        if self.kind == "bell" or self._is_dumb:
            return "\a"
        form = f"9;dial-chat: {text}" if self.kind == "osc9" else f"777;notify;dial-chat;{text}"
        return self._pass_through(f"\x1b]{form}\x1b\\")

    async def notify_during(
        self, wait: Callable[[], Awaitable[T]], terminal: TextIO, is_typing: Callable[[], bool] = lambda: False
    ) -> T:
        """Return the result of `wait`, and meanwhile notify the user when it is time, without a live area.

        Args:
            wait: Waits for the user.
            terminal: The stream of the terminal.
            is_typing: Returns whether the user is typing, and so needs no notification.
        """
        results: list[T] = []
        failures: list[BaseException] = []
        async with anyio.create_task_group() as group:
            group.start_soon(self._notify_in_time, terminal, is_typing)
            try:
                results.append(await wait())
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised outside of the group, which wraps it
                failures.append(error)
            group.cancel_scope.cancel()
        self.settle()
        if failures:
            raise failures[0]
        return results[0]

    async def _notify_in_time(self, terminal: TextIO, is_typing: Callable[[], bool]) -> None:
        while self._awaited:
            await anyio.sleep(max(0.05, self._since + PATIENCE - self._clock()))
            if is_typing():
                self.settle()
            elif notification := self.take():
                terminal.write(notification)
                terminal.flush()

    def _pass_through(self, sequence: str) -> str:
        """Return a sequence for the terminal itself, which tmux would not pass on."""
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\" if self._is_in_tmux else sequence

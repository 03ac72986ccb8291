"""A bell or a desktop notification for a user who has turned to something else while the program waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from dial_client.settings.config_types import Notification

# Seconds without a key after which the user is notified.
PATIENCE = 10.0
APPROVAL, ANSWER = "A call waits for your approval", "The answer is ready"


class Attention:
    """Knows since when the program waits for the user, and notifies them once.

    Args:
        clock: Returns the time in seconds, like `time.monotonic`.
        environment: The environment variables; `TMUX` is set within tmux.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.kind: Notification = "bell"
        self._clock, self._is_in_tmux = clock, bool(environment.get("TMUX"))
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
        match self.kind:
            case "bell":
                return "\a"
            case "osc9":
                return self._pass_through(f"\x1b]9;dial-chat: {text}\x1b\\")
            case "osc777":
                return self._pass_through(f"\x1b]777;notify;dial-chat;{text}\x1b\\")
            case "none":
                return ""

    def _pass_through(self, sequence: str) -> str:
        """Return a sequence for the terminal itself, which tmux would not pass on."""
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\" if self._is_in_tmux else sequence

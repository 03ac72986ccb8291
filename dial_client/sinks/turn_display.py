"""What the sinks of terminals share: calls and usage as lines, the clock of a turn, pauses for questions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from dial_client.hooks.server_callbacks import ServerLog
from dial_client.messages.events import Event
from dial_client.messages.message import ToolCallRequest
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import escape_unseen, to_one_line

MAX_CHARS = 600
"""Maximum characters of arguments that are formatted for one line."""
MAX_LINE = 300
"""Maximum characters of a server's log message, and of other untrusted text on a line."""
PATIENCE = 1.0
"""Maximum seconds that a question waits until its call is shown."""


def describe(call: ToolCallRequest, server: str, tool: str) -> tuple[str, str]:
    """Return the name ``server.tool`` of a call, and its arguments ``city="Berlin"``, each safe and on one line."""
    return describe_name(call, server, tool), describe_arguments(call.arguments)


def describe_name(call: ToolCallRequest, server: str, tool: str) -> str:
    """Return ``server.tool``, safe and on one line; for an unknown tool the name that the model called."""
    return to_one_line(f"{server}.{tool}" if server else call.name, 150)


def describe_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as ``city="Berlin"``, safe and on one line, with invisible characters written out."""
    return to_one_line(escape_unseen(", ".join(_format_arguments(arguments))), MAX_CHARS)


def _format_arguments(arguments: Mapping[str, Any]) -> Iterator[str]:
    size = 0
    for name, value in arguments.items():
        text = f"{name}={json.dumps(value, ensure_ascii=False, default=str)[:MAX_CHARS]}"
        size += len(text)
        yield text
        if size > MAX_CHARS:
            return


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


class TurnClock:
    """Measures one turn after the other; several questions may be open at the same time.

    Args:
        now: Returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.begun = 0.0
        """The start time of the turn, moved forward by the seconds of its questions."""
        self._now = now
        self._questions, self._asked = 0, 0.0

    @property
    def seconds(self) -> float:
        """The duration of the turn so far, in seconds."""
        return self._now() - self.begun

    def begin(self) -> None:
        """Start to measure a turn."""
        self.begun = self._now()

    def begin_question(self) -> None:
        """Start to wait for the user."""
        if not self._questions:
            self._asked = self._now()
        self._questions += 1

    def end_question(self) -> None:
        """End the wait for an answer. Time in which several questions were open is subtracted once."""
        self._questions -= 1
        if not self._questions:
            self.begun += self._now() - max(self._asked, self.begun)


@dataclass(slots=True)
class UsageSum:
    """The total usage of the turns of a session."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    is_cost_known: bool = True
    """Whether the cost of every turn is known."""
    seconds: float = 0.0

    def add(self, turn: Turn, seconds: float) -> None:
        """Add a turn."""
        self.turns += 1
        self.seconds += seconds
        self.add_usage(turn.usage, turn.cost_usd)

    def add_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add the usage of a turn or a summary; the cost is None if it is unknown."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        if cost_usd is None:
            self.is_cost_known = False
        else:
            self.cost_usd += cost_usd

    @property
    def line(self) -> str:
        """The sum as one line."""
        tokens = _format_tokens(self.input_tokens, self.output_tokens, self.cached_tokens)
        cost = f" · about ${self.cost_usd:.4f}" if self.is_cost_known and self.cost_usd else ""
        turns = "1 answer" if self.turns == 1 else f"{self.turns:,} answers"
        return f"{turns}: {tokens}{cost} · {self.seconds:.1f} s"


def format_usage_line(turn: Turn, seconds: float) -> str:
    """Return the usage of a turn in one line: tokens, cost if it is known, seconds, and number of model requests."""
    usage = turn.usage
    cost = "" if turn.cost_usd is None else f" · about ${turn.cost_usd:.4f}"
    rounds = len(turn.request_usages)
    counted = f" · {rounds} rounds" if rounds > 1 else ""
    tokens = _format_tokens(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    return f"{tokens}{cost} · {seconds:.1f} s{counted}"


def _format_tokens(read: int, written: int, cached: int) -> str:
    from_cache = f" ({cached:,} cached)" if cached else ""
    return f"{read:,} tokens in{from_cache}, {written:,} out"


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

"""What the sinks of terminals share: calls and usage as lines, the clock of a turn, and pauses for questions."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio

from dial_client.hooks.server_callbacks import ServerLog
from dial_client.messages.events import (
    AgentChanged,
    AgentEvent,
    Event,
    MessageCompleted,
    StatusChanged,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Failure, ToolCallRequest, ToolCallResult
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import escape_unseen, to_one_line

# Maximum characters of arguments that are formatted for one line.
MAX_CHARS = 600
# Maximum characters of a server's log message, and of other untrusted text on a line.
MAX_LINE = 300
# Before the name of a call that another call makes: a snippet.
INNER = "↳ "
# Maximum seconds that a question waits until its call is shown.
PATIENCE = 1.0


def describe(call: ToolCallRequest, server: str, tool: str) -> tuple[str, str]:
    """Return the name ``server.tool`` of a call, and its arguments ``city="Berlin"``, each safe and on one line."""
    return describe_name(call, server, tool), describe_arguments(call.arguments)


def describe_name(call: ToolCallRequest, server: str, tool: str) -> str:
    """Return ``server.tool``, safe and on one line; for an unknown tool the name that the model called."""
    return to_one_line(f"{server}.{tool}" if server else call.name, 150)


def describe_agent(agent: str) -> str:
    """Return the line that says who has the conversation: an agent, or, for an empty name, the model."""
    return f"agent: {to_one_line(agent, 80)}" if agent else "agent: none, the model answers again"


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


def format_log(message: ServerLog) -> str:
    """Return a log message as one line, safe to display."""
    logger = f" {message.logger}" if message.logger else ""
    return to_one_line(f"{message.server}{logger} ({message.level}): {message.text}", MAX_LINE)


@dataclass(slots=True)
class UsageSum:
    """The total usage of the turns of a session."""

    turns: int = 0
    usage: Usage = field(default_factory=Usage)
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
        self.usage += usage
        self.is_cost_known = self.is_cost_known and cost_usd is not None
        self.cost_usd += cost_usd or 0.0

    @property
    def line(self) -> str:
        """The sum as one line."""
        cost = f" · about ${self.cost_usd:.4f}" if self.is_cost_known and self.cost_usd else ""
        turns = "1 answer" if self.turns == 1 else f"{self.turns:,} answers"
        return f"{turns}: {_format_tokens(self.usage)}{cost} · {self.seconds:.1f} s"


def format_usage_line(turn: Turn, seconds: float) -> str:
    """Return the usage of a turn in one line: tokens, cost if it is known, seconds, and number of model requests."""
    cost = "" if turn.cost_usd is None else f" · about ${turn.cost_usd:.4f}"
    rounds = len(turn.request_usages)
    counted = f" · {rounds} rounds" if rounds > 1 else ""
    return f"{_format_tokens(turn.usage)}{cost} · {seconds:.1f} s{counted}"


# What is said of a call without a result yet.
IN_BACKGROUND = "goes on in the background"


def format_duration(result: ToolCallResult, duration: float) -> str:
    """Return the duration of a call; an empty text for one that did not run."""
    return "" if result.failure in (Failure.DENIED, Failure.UNKNOWN_TOOL) else f"{duration:.2f} s"


def format_call_error(result: ToolCallResult) -> str:
    """Return the error of a call for the user; what the model should do after a denial is left out."""
    error = result.error or ""
    return error.partition(". ")[0] if result.failure is Failure.DENIED else error


def _format_tokens(usage: Usage) -> str:
    if not (usage.input_tokens or usage.output_tokens):
        return "tokens not reported"  # by the endpoint: no request has none
    from_cache = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{from_cache}, {usage.output_tokens:,} out"


class WaitClock:
    """Counts the seconds in which one or more questions to the user are open."""

    def __init__(self) -> None:
        self._open, self._since, self._sum = 0, 0.0, 0.0

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return self._sum + (time.monotonic() - self._since if self._open else 0.0)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Count the seconds of this context, unless another context counts them already."""
        if not self._open:
            self._since = time.monotonic()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._sum += time.monotonic() - self._since


class TurnSink(ABC):
    """Shows the events of a turn, and reserves the terminal for one question at a time.

    Output is held back while a question is open, and a question until its call is shown.

    Args:
        shows_reasoning: Whether to show the model's reasoning.
        shows_usage: Whether to show the tokens of each turn, their cost if it is known, and the duration.
        shows_calls: Whether to show finished tool calls.
    """

    def __init__(self, *, shows_reasoning: bool, shows_usage: bool, shows_calls: bool) -> None:
        self.usage = UsageSum()
        self._shows_reasoning, self._shows_usage, self._shows_calls = shows_reasoning, shows_usage, shows_calls
        # The start time of the turn, and the seconds that questions had taken before it.
        self._begun_at, self._waited_before = time.monotonic(), 0.0
        self._waits = WaitClock()
        # The same for the questions of each server, and their seconds before each running call.
        self._server_waits: dict[str, WaitClock] = defaultdict(WaitClock)
        self._server_waited_before: dict[str, float] = {}
        # The output that is held back; None while no question is open.
        self._held: list[Callable[[], None]] | None = None
        # The calls of the latest message that have not started yet.
        self._announced: set[str] = set()
        # For each call, an event that is set when the call is shown.
        self._shown_calls: dict[str, anyio.Event] = {}
        self.hold_keyboard: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        """Reserves the keyboard for a question, where lines are read during a turn."""

    def begin(self) -> None:
        """Begin a turn, and start its clock."""
        self._announced = set()
        self._begun_at, self._waited_before = time.monotonic(), self._waits.seconds

    @property
    def _begun(self) -> float:
        """The start time of the turn, moved forward by the seconds of its questions."""
        return self._begun_at + self._waits.seconds - self._waited_before

    @property
    def seconds(self) -> float:
        """The seconds of the turn so far, without those of questions."""
        return time.monotonic() - self._begun

    @abstractmethod
    def end(self) -> None:
        """End a turn, whatever its outcome."""

    def show(self, event: Event) -> None:
        """Show one event; while a question is open, all events but progress wait.

        The duration of a call is shown without the time in which its server waited for an answer of the user.
        """
        if isinstance(event, MessageCompleted):
            self._announced = {call.id for call in event.message.tool_calls}
        elif isinstance(event, ToolCallStarted):
            self._announced.discard(event.call.id)
            self._server_waited_before[event.call.id] = self._server_waits[event.server].seconds
        elif isinstance(event, ToolCallFinished):
            before = self._server_waited_before.pop(event.result.tool_call_id, None)
            waited = 0.0 if before is None else self._server_waits[event.server].seconds - before
            event = replace(event, duration=max(0.0, event.duration - waited))
        elif isinstance(event, AgentChanged):
            self.note(describe_agent(event.agent))
            return
        elif isinstance(event, AgentEvent):
            self._note_agent(event)
            return
        if self._is_shown_at_once(event):
            self._show(event)
        else:
            self._do(partial(self._show, event))

    def _is_shown_at_once(self, event: Event) -> bool:
        """Return True if an event is shown even while a question is open."""
        return isinstance(event, StatusChanged | ToolCallProgress)

    def log(self, message: ServerLog) -> None:
        """Show a log message of a server."""
        self.note(format_log(message))

    def _note_agent(self, event: AgentEvent) -> None:  # noqa: B027 - a display may leave this out
        """Note what an agent does, which is shown with the end of its call."""

    @property
    def running_calls(self) -> int:
        """The number of calls that are shown as running, or as waiting for approval, or that are about to start."""
        return sum(shown.is_set() for shown in self._shown_calls.values()) + len(self._announced)

    def note(self, line: str) -> None:
        """Print a line that is not part of the answer: after the message that is being written."""
        self._do(partial(self._print_note, line))

    def _do(self, output: Callable[[], None]) -> None:
        """Call `output` now, or after the question that is open."""
        if self._held is None:
            output()
        else:
            self._held.append(output)

    @asynccontextmanager
    async def question(self, call_id: str | None = None, *, server: str = "") -> AsyncGenerator[None, None]:
        """Reserve the terminal for one question.

        Time in which one or more questions are open is not part of the turn's duration.

        Args:
            call_id: The id of the call that needs approval; None for a question that is not about a call.
            server: The server that asks; its running calls wait for the answer.
        """
        if call_id is not None:
            with anyio.move_on_after(PATIENCE):
                await self._find_shown(call_id).wait()
        with self._waits.run(), self._server_waits[server].run() if server else nullcontext():
            async with self._reserve(call_id, server):
                self._held = []
                try:
                    yield
                finally:
                    held, self._held = self._held, None
                    for output in held:
                        output()

    @abstractmethod
    def note_decision(self, line: str) -> None:
        """Show what the user decided about calls, unless the typed answer stays on the screen."""

    @abstractmethod
    def _reserve(self, call_id: str | None, server: str) -> AbstractAsyncContextManager[None]:
        """Wait for the place of a question, and prepare it; the arguments are those of `question`."""

    @abstractmethod
    def _show(self, event: Event) -> None:
        """Show one event now."""

    @abstractmethod
    def _print_line(self, line: str) -> None:
        """Print a line that is not part of the answer."""

    @abstractmethod
    def _print_note(self, line: str) -> None:
        """Print a line that may come at any time: after the message that is being written."""

    def _find_shown(self, call_id: str) -> anyio.Event:
        return self._shown_calls.setdefault(call_id, anyio.Event())

    def _close_turn(self, turn: Turn) -> None:
        """Print what follows an answer: whether it was interrupted, and its usage."""
        seconds = self.seconds
        if turn.stop_reason is StopReason.CANCELLED:
            self._print_line("interrupted")
        self.usage.add(turn, seconds)
        if self._shows_usage and (turn.usage.input_tokens or turn.usage.output_tokens):
            self._print_line(format_usage_line(turn, seconds))

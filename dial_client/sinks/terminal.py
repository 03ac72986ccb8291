"""A turn in a terminal: the answer on standard output, what is done for it on standard error.

Everything foreign passes `safe_text` before it is shown.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from dial_client.callbacks.server_callbacks import ServerLog
from dial_client.events import (
    Event,
    Finished,
    MessageCompleted,
    ReasoningDelta,
    ServerChanged,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.limits import StopReason
from dial_client.messages import ToolCallRequest, ToolCallResult
from dial_client.text.safe_text import SafeStream, one_line
from dial_client.turn_result import Turn

MAX_STATUS = 100
MAX_LINE = 300
"""Characters of arguments or an error shown beside a call."""
PATIENCE = 1.0
"""Seconds a question waits for what was said before it to be shown."""


class TerminalSink:
    """Shows events as they come.

    Args:
        reasoning: show the model's reasoning.
        usage: say behind each turn what it took: tokens, and their price where it is known.
    """

    def __init__(self, *, reasoning: bool = False, usage: bool = False) -> None:
        self._out = sys.stdout
        self._err = sys.stderr
        self._lively = sys.stderr.isatty()
        self._colour = self._lively and not os.environ.get("NO_COLOR")
        self._reasoning = reasoning
        self._usage = usage
        self._text = SafeStream()
        self._thoughts = SafeStream()
        self._in_a_line = False
        self._in_a_thought = False
        self._status_shown = False
        self._asking = False
        self._waiting: list[Event | ServerLog] = []
        self._one_question_at_a_time = anyio.Lock()
        self._calls_shown: dict[str, anyio.Event] = {}
        self._begun: dict[str, tuple[str, str]] = {}
        """Names and arguments of calls that have begun and are not shown for good."""

    def show(self, event: Event) -> None:
        """Show one event; while a question has the screen, what must not get lost is shown behind it."""
        if not self._asking:
            self._show(event)
        elif not isinstance(event, StatusChanged | ServerChanged | ToolCallProgress):
            self._waiting.append(event)

    def log(self, message: ServerLog) -> None:
        """Show a log message of a server's."""
        if self._asking:
            self._waiting.append(message)
        else:
            logger = f" {message.logger}" if message.logger else ""
            self._say(one_line(f"{message.server}{logger} ({message.level}): {message.text}", MAX_LINE))

    def _show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._write(self._text.feed(text))
            case ReasoningDelta(text) if self._reasoning:
                self._think(self._thoughts.feed(text))
            case StatusChanged(text):
                self._status(text)
            case ToolCallStarted(call, server, tool):
                self._begin(call, _named(call, server, tool))
            case ToolCallProgress(_, progress, total, message):
                self._status(f"  {_progress(progress, total)} {one_line(message or '', MAX_LINE)}")
            case ToolCallFinished(result, _, duration):
                self._say_begun(result.tool_call_id)
                self._say(_outcome(result, duration))
                self._calls_shown.pop(result.tool_call_id, None)
            case ServerChanged(name, status):
                self._status(f"server {one_line(name, 80)}: {status}")
            case MessageCompleted():
                self._end_text()
            case Finished(turn):
                self._end(turn)

    @asynccontextmanager
    async def question(self, call_id: str | None = None) -> AsyncGenerator[None, None]:
        """Keep the screen for a question, one at a time, and show nothing else meanwhile.

        Args:
            call_id: of the call it is about. The question shows its arguments; behind it only its name is shown.
        """
        if call_id is not None:
            with anyio.move_on_after(PATIENCE):
                await self._shown(call_id).wait()
        async with self._one_question_at_a_time, self._screen():
            if call_id in self._begun:
                self._begun[call_id] = (self._begun[call_id][0], "")
            yield

    @asynccontextmanager
    async def _screen(self) -> AsyncGenerator[None, None]:
        self._asking = True
        self._end_line()
        self._end_thought()
        self._clear_status()
        try:
            yield
        finally:
            self._asking = False
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                if isinstance(event, ServerLog):
                    self.log(event)
                else:
                    self.show(event)

    def _begin(self, call: ToolCallRequest, name: str) -> None:
        """Show a call that begins: in passing where somebody may be asked about it, or at once."""
        self._begun[call.id] = (name, f"({_arguments(call)})")
        if self._lively:
            self._status("".join(("→ ", *self._begun[call.id])))
        else:
            self._say_begun(call.id)
        self._shown(call.id).set()

    def _say_begun(self, call_id: str) -> None:
        if begun := self._begun.pop(call_id, None):
            self._say("".join(("→ ", *begun)))

    def _shown(self, call_id: str) -> anyio.Event:
        return self._calls_shown.setdefault(call_id, anyio.Event())

    def _write(self, text: str) -> None:
        if text:
            self._end_thought()
            self._clear_status()
            self._out.write(text)
            self._out.flush()
            self._in_a_line = not text.endswith("\n")

    def _think(self, text: str) -> None:
        if text:
            self._end_line()
            self._clear_status()
            self._err.write(self._dimmed(text))
            self._err.flush()
            self._in_a_thought = not text.endswith("\n")

    def _say(self, line: str) -> None:
        self._end_line()
        self._end_thought()
        self._clear_status()
        self._err.write(f"{self._dimmed(line)}\n")
        self._err.flush()

    def _dimmed(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self._colour and text else text

    def _end_text(self) -> None:
        self._write(self._text.finish())
        self._end_line()

    def _end_line(self) -> None:
        if self._in_a_line:
            self._write("\n")

    def _end_thought(self) -> None:
        if self._in_a_thought:
            self._in_a_thought = False
            self._err.write(f"{self._dimmed(self._thoughts.finish())}\n")
            self._err.flush()

    def _status(self, text: str) -> None:
        if self._lively and not self._in_a_line and not self._in_a_thought:
            self._clear_status()
            # A line that wraps could not be taken back as a whole.
            self._err.write(one_line(text, min(MAX_STATUS, shutil.get_terminal_size().columns - 1)))
            self._err.flush()
            self._status_shown = True

    def _clear_status(self) -> None:
        if self._status_shown:
            self._err.write("\r\x1b[K")
            self._err.flush()
            self._status_shown = False

    def _end(self, turn: Turn) -> None:
        self._text = SafeStream()
        self._end_text()
        self._end_thought()
        self._clear_status()
        for call_id in list(self._begun):
            self._say_begun(call_id)
        if turn.stop_reason is StopReason.CANCELLED:
            self._say("interrupted")
        if self._usage:
            self._say(_bill(turn))


def _named(call: ToolCallRequest, server: str, tool: str) -> str:
    return one_line(f"{server}.{tool}" if server else call.name, 150)


def _arguments(call: ToolCallRequest) -> str:
    said = ", ".join(f"{name}={json.dumps(value)}" for name, value in call.arguments.items())
    return one_line(said, MAX_LINE)


def _progress(progress: float, total: float | None) -> str:
    return f"{progress:g} of {total:g}" if total else f"{progress:g}"


def _bill(turn: Turn) -> str:
    used = turn.usage
    cached = f" ({used.cached_tokens:,} from the cache)" if used.cached_tokens else ""
    price = "cost unknown" if turn.cost_usd is None else f"about ${turn.cost_usd:.4f}"
    return f"{used.input_tokens:,} tokens read{cached}, {used.output_tokens:,} written; {price}"


def _outcome(result: ToolCallResult, duration: float) -> str:
    if result.success:
        return f"✓ {duration:.2f} s"
    return f"✗ {duration:.2f} s: {one_line(result.error or '', MAX_LINE)}"

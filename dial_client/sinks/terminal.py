"""A turn in a terminal: the answer on standard output, everything else on standard error.

Texts of models and servers pass `safe_text` before they are shown.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from dial_client.callbacks.server_callbacks import ServerLog
from dial_client.citations import Citation, format_source_list
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
from dial_client.messages import Message, Role, TextPart, ToolCallResult, describe
from dial_client.sinks.call_description import describe_arguments, describe_name
from dial_client.sinks.question_pause import MAX_LINE, QuestionPause, format_log
from dial_client.text.safe_text import SafeStream, one_line
from dial_client.token_usage import Usage
from dial_client.turn_result import Turn

MAX_STATUS = 100


class TerminalSink:
    """Shows events as they come.

    Args:
        reasoning: show the model's reasoning.
        usage: show the tokens of each turn, and their price where it is known.
    """

    def __init__(self, *, reasoning: bool = False, usage: bool = False) -> None:
        self._out = sys.stdout
        self._err = sys.stderr
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        """Whether standard error can clear a row again, and has styles."""
        self._shows_reasoning = reasoning
        self._shows_usage = usage
        self._safe_text = SafeStream()
        self._safe_reasoning = SafeStream()
        self._is_in_line = False
        self._is_in_reasoning = False
        self._has_status = False
        self._pause = QuestionPause()
        self._question_lock = anyio.Lock()
        self._started: dict[str, tuple[str, str]] = {}
        """Names and arguments of running calls that are shown only as a status so far."""

    def begin(self) -> None:
        """Begin a turn: nothing is shown of that here."""

    def end(self) -> None:
        """End a turn: its last event has shown all there is."""

    def add_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Count nothing: no sum is shown here."""

    def show(self, event: Event) -> None:
        """Show one event; while a question has the screen, all but status lines wait until it is over."""
        if not self._pause.is_on:
            self._show(event)
        elif not isinstance(event, StatusChanged | ServerChanged | ToolCallProgress):
            self._pause.keep(partial(self._show, event))

    def log(self, message: ServerLog) -> None:
        """Show a log message of a server."""
        if self._pause.is_on:
            self._pause.keep(partial(self.log, message))
        else:
            self._write_line(format_log(message))

    def let_print(self, print_line: Callable[[], None]) -> None:
        """Let another part of the program print a line: never behind a status or a begun line, nor into a question."""
        if self._pause.is_on:
            self._pause.keep(print_line)
        else:
            self._end_line()
            self._end_reasoning()
            self._clear_status()
            print_line()

    def _show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._write(self._safe_text.feed(text))
            case ReasoningDelta(text) if self._shows_reasoning:
                self._write_reasoning(self._safe_reasoning.feed(text))
            case StatusChanged(text):
                self._write_status(text)
            case ToolCallStarted(call, server, tool):
                self._start_call(call.id, describe_name(call, server, tool), _format_arguments(call.arguments))
            case ToolCallProgress(_, progress, total, message):
                self._write_status(f"  {_format_progress(progress, total)} {one_line(message or '', MAX_LINE)}")
            case ToolCallFinished(result, _, duration):
                self._write_changed_arguments(event)
                self._write_started(result.tool_call_id)
                self._write_line(_format_result(result, duration))
                self._pause.forget(result.tool_call_id)
            case ServerChanged(name, status):
                self._write_status(f"server {one_line(name, 80)}: {status}")
            case MessageCompleted(message):
                self._end_text()
                self._write_media(message)
            case Finished(turn):
                self._finish(turn)

    @asynccontextmanager
    async def question(self, call_id: str | None = None) -> AsyncGenerator[None, None]:
        """Reserve the screen for one question at a time.

        Args:
            call_id: of the call in question. The question shows its arguments; behind it only its name is shown.
        """
        await self._pause.until_shown(call_id)
        async with self._question_lock, self._screen():
            if call_id in self._started:
                self._started[call_id] = (self._started[call_id][0], "")
            yield

    @asynccontextmanager
    async def _screen(self) -> AsyncGenerator[None, None]:
        self._pause.begin()
        self._end_line()
        self._end_reasoning()
        self._clear_status()
        try:
            yield
        finally:
            self._pause.end()

    def _start_call(self, call_id: str, name: str, arguments: str) -> None:
        """Show a call that starts: as a status where a question about it may follow, else as a line."""
        self._started[call_id] = (name, arguments)
        if self._is_live:
            self._write_status("".join(("→ ", *self._started[call_id])))
        else:
            self._write_started(call_id)
        self._pause.set_shown(call_id)

    def _write_changed_arguments(self, finished: ToolCallFinished) -> None:
        """Show the arguments with which a call ran, where a person or a program changed them."""
        call_id, changed = finished.result.tool_call_id, finished.changed_arguments
        if changed is None:
            return
        if call_id in self._started:
            self._started[call_id] = (self._started[call_id][0], _format_arguments(changed))
        else:
            self._write_line(f"  ran with {_format_arguments(changed)}")

    def _write_started(self, call_id: str) -> None:
        if started := self._started.pop(call_id, None):
            self._write_line("".join(("→ ", *started)))

    def _write(self, text: str) -> None:
        if text:
            self._end_reasoning()
            self._clear_status()
            self._out.write(text)
            self._out.flush()
            self._is_in_line = not text.endswith("\n")

    def _write_reasoning(self, text: str) -> None:
        if text:
            self._end_line()
            self._clear_status()
            self._err.write(self._dimmed(text))
            self._err.flush()
            self._is_in_reasoning = not text.endswith("\n")

    def _write_line(self, line: str) -> None:
        self._end_line()
        self._end_reasoning()
        self._clear_status()
        self._err.write(f"{self._dimmed(line)}\n")
        self._err.flush()

    def _dimmed(self, text: str) -> str:
        has_colour = self._is_live and not os.environ.get("NO_COLOR")
        return f"\x1b[2m{text}\x1b[0m" if has_colour and text else text

    def _end_text(self) -> None:
        self._write(self._safe_text.finish())
        self._end_line()

    def _end_line(self) -> None:
        if self._is_in_line:
            self._write("\n")

    def _end_reasoning(self) -> None:
        if self._is_in_reasoning:
            self._is_in_reasoning = False
            self._err.write(f"{self._dimmed(self._safe_reasoning.finish())}\n")
            self._err.flush()

    def _write_status(self, text: str) -> None:
        if self._is_live and not self._is_in_line and not self._is_in_reasoning:
            self._clear_status()
            # A wrapped line could not be cleared as a whole.
            self._err.write(one_line(text, min(MAX_STATUS, shutil.get_terminal_size().columns - 1)))
            self._err.flush()
            self._has_status = True

    def _clear_status(self) -> None:
        if self._has_status:
            self._err.write("\r\x1b[K")
            self._err.flush()
            self._has_status = False

    def _finish(self, turn: Turn) -> None:
        self._safe_text = SafeStream()
        self._end_text()
        self._end_reasoning()
        self._clear_status()
        for call_id in list(self._started):
            self._write_started(call_id)
        self._write_sources(turn.citations)
        if turn.stop_reason is StopReason.CANCELLED:
            self._write_line("interrupted")
        if self._shows_usage:
            self._write_line(_format_usage(turn))

    def _write_sources(self, citations: Sequence[Citation]) -> None:
        """Write the numbered list of the answer's sources behind the answer."""
        if lines := format_source_list(citations):
            self._out.write("\n".join(("", *lines, "")))
            self._out.flush()

    def _write_media(self, message: Message) -> None:
        """Name the images and files of the model's message: a terminal cannot show them."""
        if message.role is Role.ASSISTANT and not isinstance(message.content, str):
            for part in message.content:
                if not isinstance(part, TextPart):
                    self._write_line(f"[{describe(part)}: not shown here]")


def _format_arguments(arguments: Mapping[str, Any]) -> str:
    return f"({one_line(describe_arguments(arguments), MAX_LINE)})"


def _format_progress(progress: float, total: float | None) -> str:
    return f"{progress:g} of {total:g}" if total else f"{progress:g}"


def _format_usage(turn: Turn) -> str:
    usage = turn.usage
    cached = f" ({usage.cached_tokens:,} from the cache)" if usage.cached_tokens else ""
    price = "cost unknown" if turn.cost_usd is None else f"about ${turn.cost_usd:.4f}"
    return f"{usage.input_tokens:,} tokens read{cached}, {usage.output_tokens:,} written; {price}"


def _format_result(result: ToolCallResult, duration: float) -> str:
    if result.success:
        return f"✓ {duration:.2f} s"
    return f"✗ {duration:.2f} s: {one_line(result.error or '', MAX_LINE)}"

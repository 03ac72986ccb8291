"""Shows a turn in a terminal: the answer on standard output, everything else on standard error.

`safe_text` cleans the texts of models and servers before they are shown.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal
from unicodedata import east_asian_width

import anyio

from dial_client.messages.citations import format_source_list
from dial_client.messages.events import (
    Event,
    Finished,
    MessageCompleted,
    ReasoningDelta,
    RoundStarted,
    ServerChanged,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.messages.late_result import read_late_result
from dial_client.messages.message import Message, Role, TextPart, describe, extract_text
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import SafeStream, to_one_line
from dial_client.sinks.turn_display import (
    IN_BACKGROUND,
    INNER,
    MAX_LINE,
    TurnSink,
    describe_arguments,
    describe_name,
    format_call_error,
    format_duration,
)

# Maximum characters of a status.
MAX_STATUS = 100
# Minimum characters of arguments that are shown, even in a narrow terminal.
MIN_ARGUMENTS = 20


class TerminalSink(TurnSink):
    """Shows events as they arrive.

    Args:
        reasoning: Whether to show the model's reasoning.
        usage: Whether to show the tokens of each turn, their cost if it is known, and the duration.
        calls: Whether to show tool calls, and the text before them.
        has_answer_alone: Whether standard output gets only the last text of a turn, and standard error the text
            before tool calls. A text that calls may follow is then written when its message is complete.
    """

    def __init__(
        self, *, reasoning: bool = False, usage: bool = False, calls: bool = True, has_answer_alone: bool = False
    ) -> None:
        super().__init__(shows_reasoning=reasoning, shows_usage=usage, shows_calls=calls)
        self._has_answer_alone = has_answer_alone
        # Whether the text of this round is the answer, because no calls can follow it.
        self._is_last_round = False
        # The text of the message that is not complete yet, if standard output has the answer alone.
        self._unsettled: list[str] = []
        self._out = sys.stdout
        self._err = sys.stderr
        # Whether standard error is a terminal that can clear lines and show styles.
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._safe_text = SafeStream()
        self._safe_reasoning = SafeStream()
        # What the current row holds; empty at the start of a row.
        self._row: Literal["", "text", "reasoning", "status"] = ""
        self._question_lock = anyio.Lock()
        # Names and arguments, by call id, of running calls that are shown only as a status so far.
        self._started: dict[str, tuple[str, str | None]] = {}
        # Names and arguments of all running calls, by call id.
        self._running: dict[str, tuple[str, str]] = {}
        # The id of the call whose start is shown in the last line; empty for any other last line.
        self._call_above = ""
        # Whether a message of the model is being written, and the lines that wait for its end.
        self._is_writing = False
        self._notes: list[Callable[[], None]] = []

    def end(self) -> None:
        """End a turn: write a text that is not complete, finish an incomplete line, and clear the status."""
        self._settle(is_answer=True)
        self._begin_row()
        self._is_writing = False
        notes, self._notes = self._notes, []
        for note in notes:
            note()

    def show(self, event: Event) -> None:
        """Show one event. While a question is open, status events are dropped, and all other events wait."""
        if isinstance(event, RoundStarted):
            self._is_last_round = not event.may_call
        if not self._shows_calls and isinstance(event, ToolCallStarted | ToolCallProgress | ToolCallFinished):
            if isinstance(event, ToolCallStarted):
                self._find_shown(event.call.id).set()
            return
        if self._held is None or not isinstance(event, StatusChanged | ServerChanged | ToolCallProgress):
            super().show(event)

    def let_print(self, print_line: Callable[[], None]) -> None:
        """Call `print_line` on a row of its own: after the message that is being written, and any open question."""
        self._do(partial(self._add_note, print_line))

    def _add_note(self, print_line: Callable[[], None]) -> None:
        self._notes.append(print_line)
        if not self._is_writing:
            self.end()

    def note_decision(self, _: str) -> None:
        """Do nothing, because the typed answer stays on the screen."""

    def _show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._is_writing = True
                self._take_text(self._safe_text.feed(text))
            case ReasoningDelta(text) if self._shows_reasoning:
                self._write(self._safe_reasoning.feed(text), "reasoning")
            case StatusChanged(text):
                self._write_status(text)
            case ToolCallStarted(call, server, tool):
                name = f"{INNER if event.parent else ''}{describe_name(call, server, tool)}"
                self._start_call(call.id, name, describe_arguments(call.arguments))
            case ToolCallProgress(_, progress, total, message):
                share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                self._write_status(f"  {share} {to_one_line(message or '', MAX_LINE)}")
            case ToolCallFinished():
                self._finish_call(event)
            case ServerChanged(name, status):
                self._write_status(f"server {to_one_line(name, 80)}: {status}")
            case MessageCompleted(message):
                self._end_message(message)
            case Finished(turn):
                self._finish(turn)

    @asynccontextmanager
    async def _reserve(self, call_id: str | None, server: str) -> AsyncGenerator[None, None]:
        """Wait for the place of a question. It shows the arguments of its call: a later line shows only the name."""
        del server  # no line shows that its calls wait
        async with self._question_lock:
            self.end()
            if call_id in self._started:
                self._started[call_id] = (self._started[call_id][0], None)
            async with self.hold_keyboard():
                yield

    def _start_call(self, call_id: str, name: str, arguments: str) -> None:
        """Show a call that starts: as a status if a question about it may follow, otherwise as a line."""
        self._started[call_id] = self._running[call_id] = (name, arguments)
        if self._is_live:
            self._write_status(f"→ {self._format_call(name, arguments)}")
        else:
            self._write_started(call_id)
        self._find_shown(call_id).set()

    def _finish_call(self, finished: ToolCallFinished) -> None:
        """Show the result of a call, with its name and the arguments it ran with unless the line above shows them."""
        result, changed = finished.result, finished.changed_arguments
        call_id = result.tool_call_id
        if changed is not None and call_id in self._running:
            self._running[call_id] = (self._running[call_id][0], describe_arguments(changed))
            if call_id in self._started:
                self._started[call_id] = self._running[call_id]
        self._write_started(call_id)
        name, arguments = self._running.pop(call_id, ("", ""))
        sign = "…" if result.background else "✓" if result.success else "✗"
        duration = IN_BACKGROUND if result.background else format_duration(result, finished.duration)
        error = "" if result.success else to_one_line(format_call_error(result), MAX_LINE)
        tail = ": ".join(filter(None, (duration, error)))
        if name and (self._call_above != call_id or (changed is not None and not self._is_live)):
            tail = f"{self._format_call(name, arguments, len(tail) + 1)} {tail}"
        self._print_line(f"{sign} {tail}")
        self._shown_calls.pop(call_id, None)

    def _write_started(self, call_id: str) -> None:
        if started := self._started.pop(call_id, None):
            self._print_line(f"→ {self._format_call(*started)}")
            self._call_above = call_id

    def _format_call(self, name: str, arguments: str | None, tail: int = 0) -> str:
        """Return a call, shortened to fit into a row with `tail` more characters; None as `arguments` hides them."""
        if arguments is None:
            return name
        room = MAX_LINE
        if self._columns is not None:
            wide = sum(east_asian_width(letter) in "WF" for letter in f"{name}{arguments[:MAX_LINE]}")
            room = min(MAX_LINE, self._columns - len(name) - wide - tail - 5)
        return f"{name}({to_one_line(arguments, max(MIN_ARGUMENTS, room))})"

    @property
    def _columns(self) -> int | None:
        """The width of the terminal in columns; None if standard error is not a terminal."""
        return shutil.get_terminal_size().columns if self._err.isatty() else None

    def _write(self, text: str, row: Literal["text", "reasoning"]) -> None:
        if not text:
            return
        if self._row != row:
            self._end_row()
        self._call_above = ""
        if row == "text":
            print(text, end="", file=self._out, flush=True)
        else:
            print(self._dim(text), end="", file=self._err, flush=True)
        self._row = "" if text.endswith("\n") else row

    def _print_note(self, line: str) -> None:
        self._add_note(partial(self._print_line, line))

    def _print_line(self, line: str) -> None:
        self._begin_row()
        if self._columns is not None and len(line) >= self._columns:
            line = textwrap.fill(line, self._columns - 1, subsequent_indent="  ", break_long_words=False)
        print(self._dim(line), file=self._err, flush=True)

    def _begin_row(self) -> None:
        self._end_row()
        self._call_above = ""

    def _dim(self, text: str) -> str:
        has_colour = self._is_live and not os.environ.get("NO_COLOR")
        return f"\x1b[2m{text}\x1b[0m" if has_colour and text else text

    def _end_row(self) -> None:
        """End an incomplete line, or clear the status."""
        row, self._row = self._row, ""
        if row == "text":
            print(file=self._out, flush=True)
        elif row == "reasoning":
            print(self._dim(self._safe_reasoning.finish()), file=self._err, flush=True)
        elif row == "status":
            print("\r\x1b[K", end="", file=self._err, flush=True)

    def _write_status(self, text: str) -> None:
        if self._is_live and self._row in ("", "status"):
            self._end_row()
            # A line that wraps cannot be cleared completely.
            line = to_one_line(text, min(MAX_STATUS, shutil.get_terminal_size().columns - 1))
            print(line, end="", file=self._err, flush=True)
            self._row = "status"

    def _finish(self, turn: Turn) -> None:
        self._safe_text = SafeStream()
        self.end()
        for call_id in list(self._started):
            self._write_started(call_id)
        if sources := format_source_list(turn.citations):
            print("", *sources, sep="\n", file=self._out, flush=True)
        self._close_turn(turn)

    def _end_message(self, message: Message) -> None:
        """End the text of a message, and describe its images and files, which a terminal cannot show."""
        if message.role is Role.USER:
            self._settle(is_answer=False)  # the turn has waited for a call in the background, and goes on
        if (late := read_late_result(message)) is not None and self._shows_calls:
            first = to_one_line(extract_text(late.content).lstrip().partition("\n")[0], MAX_LINE)
            self._print_line(f"{'✓' if late.success else '✗'} {late.name or 'a call'}(…): {first}")
        self._take_text(self._safe_text.finish())
        if message.role is Role.ASSISTANT and message.tool_calls:
            self._settle(is_answer=False)
        if not self._unsettled and (self._row == "text" or self._is_writing):
            self.end()
        if message.role is Role.ASSISTANT and not isinstance(message.content, str):
            for part in message.content:
                if not isinstance(part, TextPart):
                    self._print_line(f"[{describe(part)}: not shown here]")

    def _take_text(self, text: str) -> None:
        if self._has_answer_alone and not self._is_last_round:
            self._unsettled.append(text)
        else:
            self._write(text, "text")

    def _settle(self, *, is_answer: bool) -> None:
        """Write the text of a message as the answer, or as lines that are not part of it."""
        text, self._unsettled = "".join(self._unsettled), []
        if is_answer:
            self._write(text, "text")
        elif self._shows_calls:
            for line in text.strip().splitlines():
                self._print_line(line)

"""A turn on the screen: final text is printed, and text that still changes is shown in the live area."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from threading import Thread

from dial_client.cli.markdown.markdown_stream import MarkdownStream, prepare
from dial_client.cli.markdown.themes import choose_theme, style
from dial_client.cli.options import Options
from dial_client.cli.streams.tty import UserInput
from dial_client.cli.streams.word_wrap import break_words
from dial_client.cli.terminal.inline_images import draw, find_image_folder, find_images, find_protocol, save
from dial_client.cli.terminal.live_area import (
    BAR,
    Activity,
    RunningCall,
    describe_nested_call,
    format_finished_call,
    format_late_result,
)
from dial_client.cli.terminal.screen import Screen
from dial_client.conversations.turn_input import find_typed_text
from dial_client.messages.citations import format_source_list
from dial_client.messages.events import (
    AgentEvent,
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
from dial_client.messages.late_result import read_late_result
from dial_client.messages.message import Content, FilePart, Message, Role
from dial_client.messages.message import describe as describe_part
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import SafeStream, to_one_line
from dial_client.sinks.turn_display import INNER, TurnSink, describe, describe_arguments, describe_name

# The arguments of `gc.set_threshold` while answers are drawn; collecting 100,000 objects would take up to 50 ms.
ANSWER_THRESHOLD = (5_000, 10, 10)
# The maximum characters of a steering message that are shown; it may contain pasted text.
MAX_ECHO = 1_000
# The maximum number of images of one result that are shown.
MAX_IMAGES = 8
# The estimated characters per token, for text whose tokens are not counted yet.
CHARS_PER_TOKEN = 4


def open_screen(options: Options, *, has_input: bool = True) -> tuple[Screen, TurnView]:
    """Return a screen, and the view that shows turns on it."""
    screen = Screen(choose_theme(options.theme, os.environ), has_input=has_input)
    shows_usage = options.verbose or (has_input and not options.quiet)
    view = TurnView(screen, shows_reasoning=options.verbose, shows_usage=shows_usage, shows_calls=not options.quiet)
    return screen, view


@cache
def _prepare_rendering() -> None:
    """Load the rendering modules while the model thinks, so that the first piece of the answer does not wait for them.

    Objects that exist by then are excluded from garbage collection, which would take 50 ms and more to scan them. Later
    objects are collected often, with a short pause each.
    """
    gc.disable()
    try:
        prepare()
    finally:
        gc.freeze()
        gc.set_threshold(*ANSWER_THRESHOLD)
        gc.enable()


class TurnView(TurnSink):
    """Shows the events of turns on a screen.

    Args:
        screen: The screen.
        shows_reasoning: Show the model's reasoning.
        shows_usage: Show the tokens of each turn, its cost if known, and its seconds.
        shows_calls: Show finished tool calls. Running calls are in the live area in any case.
    """

    def __init__(
        self, screen: Screen, *, shows_reasoning: bool = False, shows_usage: bool = False, shows_calls: bool = True
    ) -> None:
        super().__init__(shows_reasoning=shows_reasoning, shows_usage=shows_usage, shows_calls=shows_calls)
        self._screen = screen
        self._images = find_protocol(os.environ)
        self._stream: MarkdownStream | None = None
        self._reasoning: SafeStream | None = None
        self._thought = ""
        self._chars = 0
        self._running: dict[str, RunningCall] = {}
        # Whether the last printed text was a tool call, or a decision about one.
        self._follows_call = False
        # Whether a question is shown, which is drawn in the live area.
        self._is_asking = False

    def begin(self) -> None:
        """Begin a turn, and start the clock of the live line."""
        super().begin()
        self._chars, self._follows_call = 0, False
        self._screen.live.is_waiting = bool(self._screen.live.starting)
        Thread(target=_prepare_rendering, daemon=True).start()
        self._show_activity("Waiting for servers…" if self._screen.live.is_waiting else "Sending…")

    def end(self) -> None:
        """End a turn, whatever its outcome, and remove it from the live area."""
        self._clear()
        self._screen.release_notes()

    def _clear(self) -> None:
        self._end_reasoning()
        self._end_answer()
        self._running.clear()
        live = self._screen.live
        live.activity, live.calls, live.draft, live.is_waiting = None, {}, None, False
        live.progress = ""  # of a download that failed, or that was stopped with the turn
        self._screen.refresh()

    @asynccontextmanager
    async def _reserve(self, call_id: str | None, server: str) -> AsyncGenerator[None, None]:
        """Wait for the place of a question. The calls that it is about wait too, and the question shows them."""
        calls = [call for key, call in self._running.items() if key == call_id or (server and call.server == server)]
        question_began = time.monotonic()
        for call in calls:
            call.waits, call.was_asked_about = call.waits + 1, call.was_asked_about or not server
        try:
            async with self._screen.panel():
                self._screen.live.is_asking = self._is_asking = True
                try:
                    yield
                finally:
                    self._screen.live.is_asking = self._is_asking = False
        finally:
            for call in calls:
                call.waits, call.since = call.waits - 1, call.since + time.monotonic() - question_began

    def _is_shown_at_once(self, event: Event) -> bool:
        """Return True for progress; during a question for calls too, unless something else waits before them."""
        is_call = isinstance(event, ToolCallStarted | ToolCallFinished)
        return super()._is_shown_at_once(event) or (is_call and self._is_asking and not self._held)

    def note_decision(self, line: str) -> None:
        """Print what the user decided: the line that remains of a question."""
        rows = break_words(line, self._screen.columns).splitlines()
        self._print_part("\n".join(style(row, self._screen.theme.faint) for row in rows), is_call=True)

    def _show(self, event: Event) -> None:
        self._screen.live.is_waiting = self._screen.live.is_waiting and isinstance(event, ServerChanged)
        match event:
            case TextDelta(text):
                self._write(text)
            case ReasoningDelta(text):
                self._think(text)
            case StatusChanged(text):
                self._show_activity(text)
            case ToolCallStarted():
                self._start_call(event)
            case ToolCallProgress(call_id, progress, total, message) if call_id in self._running:
                running = self._running[call_id]
                running.progress, running.total, running.message = progress, total, message or ""
            case ToolCallFinished():
                self._finish_call(event)
            case ServerChanged(name, "failed" | "restarting" as status):
                self._print_note(f"server {to_one_line(name, 80)}: {status}")
            case MessageCompleted(message) if message.role is not Role.TOOL:
                self._end_message(message)
            case Finished(turn):
                self._finish(turn)

    def _show_activity(self, text: str) -> None:
        self._screen.live.activity = Activity(text, self._begun, self._chars // CHARS_PER_TOKEN)
        self._screen.refresh()

    def _write(self, text: str) -> None:
        self._end_reasoning()
        self._chars += len(text)
        if self._stream is None:
            self._stream = self._screen.open_answer()
            self._screen.hold_notes()
        if final := self._stream.feed(text):
            self._print_part(final, is_call=False)
        live = self._screen.live
        live.draft = self._stream.draft
        self._show_activity(live.activity.text if live.activity else "Writing…")

    def _end_answer(self) -> None:
        stream, self._stream = self._stream, None
        self._screen.live.draft = None
        if stream is not None and (rest := stream.finish()):
            self._print_part(rest, is_call=False)

    def _end_message(self, message: Message) -> None:
        """End a message of the model, show its images, and name its files, which a terminal cannot show.

        A message of the user, which steers the turn, is shown as it is once the model gets it.
        """
        if message.role is Role.USER:
            if (late := read_late_result(message)) is not None:
                if self._shows_calls:
                    lines = format_late_result(late, self._screen.columns, self._screen.theme)
                    self._print_part("\n".join(lines), is_call=True)
                    self._show_images(late.content)
                return
            text = find_typed_text(message)
            self._screen.echo(UserInput(text, to_one_line(text, MAX_ECHO), text))
            return
        self._end_reasoning()
        self._end_answer()
        if message.tool_calls:
            self._screen.release_notes()  # else the lines at the end of the turn belong to the answer
        self._show_images(message.content)
        for part in () if isinstance(message.content, str) else message.content:
            if isinstance(part, FilePart):
                self._screen.print_faint(f"[{describe_part(part)}: not shown here]")

    def _print_part(self, text: str, *, is_call: bool) -> None:
        """Print a part of an answer, or a tool call, with an empty line between them."""
        if self._follows_call != is_call:
            self._screen.print("\n")
        self._follows_call = is_call
        self._screen.print(text)

    def _think(self, text: str) -> None:
        self._chars += len(text)
        if not self._shows_reasoning:
            self._show_activity("Thinking…")
            return
        self._reasoning = self._reasoning or SafeStream()
        self._thought += self._reasoning.feed(text)
        *lines, self._thought = self._thought.split("\n")
        for line in lines:
            self._screen.print_faint(line)

    def _end_reasoning(self) -> None:
        if self._reasoning is not None:
            rest, self._thought = self._thought + self._reasoning.finish(), ""
            self._reasoning = None
            for line in rest.splitlines():
                self._screen.print_faint(line)

    def _start_call(self, event: ToolCallStarted) -> None:
        self._end_answer()
        self._screen.release_notes()
        call = event.call
        name, arguments = describe(call, event.server, event.tool)
        name = f"{INNER}{name}" if event.parent else name
        self._running[call.id] = RunningCall(
            name, arguments, time.monotonic(), server=event.server, parent=event.parent
        )
        self._screen.live.calls = self._running
        self._screen.refresh()
        self._find_shown(call.id).set()

    def _note_agent(self, event: AgentEvent) -> None:
        """Note the ended calls of an agent, for the lines below its own call."""
        level, inner, running = 0, event.event, self._running.get(event.call_id)
        if running is None:
            return
        while isinstance(inner, AgentEvent):
            level, event, inner = level + 1, inner, inner.event
        if isinstance(inner, ToolCallStarted):
            running.agent_names[event.agent, inner.call.id] = describe_name(inner.call, inner.server, inner.tool)
        else:
            name = running.agent_names.pop((event.agent, inner.result.tool_call_id), "")
            running.nested_calls.append(describe_nested_call(inner, name, level))

    def _finish_call(self, event: ToolCallFinished) -> None:
        result, duration = event.result, event.duration
        running = self._running.pop(result.tool_call_id, None)
        self._shown_calls.pop(result.tool_call_id, None)
        if running is None:
            return
        if event.changed_arguments is not None:
            running.arguments = describe_arguments(event.changed_arguments)
        if (parent := self._running.get(running.parent)) is not None:
            name = running.name.removeprefix(INNER)
            parent.nested_calls.append(describe_nested_call(event, name, 0))
        elif self._shows_calls:
            lines = format_finished_call(running, result, duration, self._screen.columns, self._screen.theme)
            self._print_part("\n".join(lines), is_call=True)
            self._show_images(result.content)
        if self._running:
            names = [call.name for call in self._running.values()]
            self._show_activity(f"Waiting for {names[0] if len(names) == 1 else f'{len(names)} calls'}…")

    def _show_images(self, content: Content) -> None:
        """Show the images of a result or an answer, or print where they were saved."""
        images = [*find_images(content)]
        for image in images[:MAX_IMAGES]:
            if drawn := draw(image, self._images, self._screen.columns):
                self._screen.print(drawn)
                continue
            try:
                path = save(image, find_image_folder())
            except OSError as error:
                self._screen.print_faint(f"{BAR}an image cannot be saved: {error.strerror}")
            else:
                self._screen.print_faint(f"{BAR}image: {path}" if path else f"{BAR}an image is not valid base64")
        if (left := len(images) - MAX_IMAGES) > 0:
            self._screen.print_faint(f"{BAR}… and {left:,} more image{'s' if left > 1 else ''}, not shown")

    def _finish(self, turn: Turn) -> None:
        self._clear()
        if sources := format_source_list(turn.citations):
            self._screen.print("\n".join(("", *sources)))
        self._close_turn(turn)
        self._screen.release_notes()

    def _print_line(self, line: str) -> None:
        self._screen.print_faint(line)

    def _print_note(self, line: str) -> None:
        self._screen.print_prose(style(line, self._screen.theme.faint))

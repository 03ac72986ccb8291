"""The screen, which controls the terminal while a conversation or an answer is shown.

Final text is printed once, above the live area; the live area at the bottom is redrawn. The terminal keeps its
scrollback, and printed text is never repainted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from dial_client.cli.markdown.markdown_stream import MarkdownStream
from dial_client.cli.markdown.themes import Theme, choose_theme, style
from dial_client.cli.streams import process_runner, tty
from dial_client.cli.streams.error_stream import format_error
from dial_client.cli.streams.printed_streams import redirect_prints
from dial_client.cli.streams.tty import UserInput
from dial_client.cli.streams.word_wrap import break_line, break_words
from dial_client.cli.terminal import live_area, status_line
from dial_client.cli.terminal.attention import Attention
from dial_client.cli.terminal.command_screen import Panel, Search
from dial_client.cli.terminal.live_area import LiveState, Note
from dial_client.cli.terminal.question_line import Picker, Question, QuestionLine
from dial_client.cli.terminal.status_line import Status
from dial_client.runtime.safe_text import sanitize
from dial_client.settings.config_types import Notification

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings

T = TypeVar("T")


class TakeAtOnce(Protocol):
    """Takes an input while a turn runs, for the turn if it `steers`; returns False if the input waits for its end."""

    def __call__(self, user_input: UserInput, /, *, steers: bool) -> bool:
        """Take the input."""


# Seconds to wait until the terminal is restored.
MAX_CLOSING = 2.0
# The rows below a panel: the question, one to spare for an answer that is wrapped, and the status line.
QUESTION_ROWS = 3


class Screen:
    """Prints above the live area, redraws the live area, and asks questions.

    Args:
        theme: The colours.
        has_input: Whether there is an input line.
    """

    def __init__(self, theme: Theme, *, has_input: bool = True) -> None:
        self.live = LiveState()
        self.theme = theme
        self.on_enter: Callable[[], object] = lambda: None
        """Called for Enter in an empty input line."""
        self.take_at_once: TakeAtOnce = lambda _, **__: False
        """Takes an input that need not wait for the end of the turn; returns False if it waits."""
        self.take_back: Callable[[], str | None] = lambda: None
        """Withdraws the latest message that steers the turn, and returns its text; None if there is none."""
        self._find_status: Callable[[], Status] | None = None
        self._change_mode: Callable[[], None] = lambda: None
        self._settle_mode: Callable[[], None] = lambda: None
        self.attention = Attention()
        self._input_line: Any = None
        self._has_input = has_input
        self._on_interrupt: Callable[[], None] = process_runner.interrupts.interrupt
        self._printed: deque[str] = deque()
        self._sent: deque[UserInput | None] = deque()
        self._has_sent = anyio.Event()
        self._lock = anyio.Lock()
        self._question = QuestionLine(self._keep_stray, self._focus)
        self._application: Any = None
        self._live_text = self._status_text = ""
        self._ended = anyio.Event()
        self._is_new_panel = False

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self._measure_size().columns

    @property
    def rows(self) -> int:
        """The height of the terminal."""
        return self._measure_size().lines

    @property
    def is_asking(self) -> bool:
        """Whether a question waits for its answer."""
        return self._question.is_shown

    def render(self, answer: str) -> str:
        """Format an answer of the model, which is Markdown, for the terminal."""
        stream = self.open_answer()
        return stream.feed(answer) + stream.finish()

    def open_answer(self) -> MarkdownStream:
        """Return the renderer of one answer of the model."""
        return MarkdownStream(lambda: self.columns, self.theme)

    def notify_by(self, kind: Notification) -> None:
        """Tell the user in this way that an approval or an answer waits for them."""
        self.attention.kind = kind

    def set_theme(self, name: str) -> None:
        """Change the colours of later output. Raises `KeyError` if there is no such theme."""
        self.theme = choose_theme(name, os.environ)

    def print(self, text: str) -> None:
        """Print final text above the live area. Untrusted text in it must be escaped already."""
        self._printed.append(text if text.endswith("\n") or not text else f"{text}\n")
        if self._ended.is_set():
            self._print_rest()
        else:
            self.refresh()

    def print_prose(self, text: str) -> None:
        """Print lines of the program itself, with word wrap: while an answer is written, below it when it ends.

        Until then the live area shows them. Foreign text in them must be escaped already.
        """
        self._print_outside_answer(lambda columns: break_words(text, columns))

    def print_error(self, problem: str) -> None:
        """Print an error of the program, as `print_prose` does."""
        self._print_outside_answer(lambda columns: format_error(problem, columns, self.theme.error))

    def _print_outside_answer(self, note: Note) -> None:
        if self.live.notes is None:
            self.print(note(self.columns))
        else:
            self.live.notes.append(note)
            self.refresh()

    def print_faint(self, line: str) -> None:
        """Print a less important line, in a faint style, with word wrap."""
        self.print("\n".join(style(row, self.theme.faint) for row in break_words(line, self.columns).split("\n")))

    def hold_notes(self) -> None:
        """Let lines of the program wait until `release_notes`, so that they do not stand inside an answer."""
        self.live.notes = [] if self.live.notes is None else self.live.notes

    def release_notes(self) -> None:
        """Print the lines that have waited."""
        notes, self.live.notes = self.live.notes, None
        for note in notes or ():
            self.print(note(self.columns))

    def refresh(self) -> None:
        """Redraw the live area soon. Any thread may call this."""
        if self._application is not None:
            self._application.invalidate()

    async def read_input(self) -> UserInput | None:
        """Wait for the user's next message, and return it; None if they leave."""
        while not self._sent:
            self._has_sent = anyio.Event()
            await self._has_sent.wait()
        sent = self._sent.popleft()
        self._show_queue()
        return sent

    @asynccontextmanager
    async def panel(self) -> AsyncGenerator[None, None]:
        """Reserve the question line for one dialog, after an empty line; other dialogs wait until it ends."""
        async with self._lock:
            self._question.begin_dialog()
            self._is_new_panel = True
            yield

    @contextmanager
    def show_panel(self, panel: Panel, notice: str) -> Iterator[None]:
        """Show rows in the live area, above the questions of this context, which print nothing.

        Args:
            panel: Returns the rows.
            notice: The words of a notification, if the user turns to something else.
        """
        outer, self.live.panel = self.live.panel, panel
        if outer is None:
            self.attention.expect(notice)
        try:
            yield
        finally:
            self.attention.settle()
            self.live.panel, self.live.panel_lines = outer, ()
            self.refresh()

    async def ask_key(
        self,
        lines: Sequence[str],
        question: str,
        keys: Mapping[str, str],
        *,
        on_move: Callable[[int], None] | None = None,
    ) -> str:
        r"""Ask for one key, and return it. For any other key, show a hint.

        Args:
            lines: The lines to print above the question; below a panel they are drawn.
            question: The question, on the last line of the screen.
            keys: The meaning of each key; ``"\r"`` is Enter, ``"\x1b"`` is Esc.
            on_move: Is called with a number of rows for the keys that move through a list.

        Raises:
            Unanswered: The user pressed Ctrl-C or Ctrl-D.
        """
        return await self._ask(Question(question, keys, on_move=on_move), lines)

    async def ask_line(
        self, question: str, *, hidden: bool = False, default: str = "", on_move: Callable[[int], None] | None = None
    ) -> str:
        """Ask for a line, and return it without leading and trailing spaces.

        Args:
            question: The text before the line.
            hidden: Do not show the typed characters.
            default: The initial text of the line, which the user can edit.
            on_move: Is called with a number of rows for the keys that move the rows above the question.

        Raises:
            Escaped: The user pressed Esc.
            Unanswered: The user pressed Ctrl-C or Ctrl-D.
        """
        return (await self._ask(Question(question, is_hidden=hidden, on_move=on_move), (), default)).strip()

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        """Show a list that typed words filter, and return the value of the chosen item.

        Returns None for Esc, Ctrl-C and Ctrl-D.

        Args:
            question: The kind of item.
            search: Finds the items.
            words: The initial words in the line.
        """
        picker = Picker(search, self.theme, self.refresh, words=words)
        chosen: str | None = None
        self.live.items = picker.format_lines
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(picker.follow)
                with suppress(tty.Unanswered):
                    while chosen is None:
                        line = Question(f"{question}:", on_text=picker.type, on_move=picker.move)
                        picker.type(await self._ask(line, (), picker.words))
                        await picker.update()
                        chosen = picker.value
                group.cancel_scope.cancel()
        finally:
            self.live.items = None
            self.refresh()
        return chosen

    async def page(self, text: str) -> None:
        """Show a text in the user's pager if it is longer than the screen, else print it."""
        from dial_client.cli.input import user_programs

        if user_programs.find_pager() and user_programs.is_longer(text, self.columns, self.rows):
            async with self.suspend():
                if await user_programs.page(text):
                    return
        self.print(text)

    @asynccontextmanager
    async def suspend(self) -> AsyncGenerator[None, None]:
        """Leave the terminal to another program in this context."""
        from prompt_toolkit.application import in_terminal

        async with in_terminal():
            self._print_rest()
            yield

    def echo(self, user_input: UserInput) -> None:
        """Print an input that was sent, because the input line is empty again."""

        def format_input(columns: int) -> str:
            lines = sanitize(user_input.shown).splitlines() or [""]
            shown = (break_line(f"{'  ' if index else '> '}{line}", columns, 2) for index, line in enumerate(lines))
            return "\n".join(["", *(style(row, self.theme.strong) for row in "\n".join(shown).split("\n"))])

        self._print_outside_answer(format_input)

    def set_interrupt(self, on_interrupt: Callable[[], None]) -> None:
        """Call `on_interrupt` for Ctrl-C; by default the running turn is cancelled, and then the program ends."""
        self._on_interrupt = on_interrupt

    def show_status(
        self, find_status: Callable[[], Status], change_mode: Callable[[], None], settle_mode: Callable[[], None]
    ) -> None:
        """Show a status line below the input line, and change the mode by Shift-Tab.

        Args:
            find_status: Returns the status at each drawing.
            change_mode: Changes to the next mode.
            settle_mode: Is called for each message that is sent: the mode that was shown then is the one that is meant.
        """
        self._find_status, self._change_mode, self._settle_mode = find_status, change_mode, settle_mode
        self.refresh()

    def edit(self, text: str) -> None:
        """Put a text into the input line."""
        if self._input_line is not None:
            self._input_line.edit(text)

    def complete_with(self, completer: Completer) -> None:
        """Propose completions of the input."""
        if self._input_line is not None:
            self._input_line.complete_with(completer)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Control the terminal while `work` runs, and return its result."""
        from dial_client.cli.input.input_line import InputLine, find_history_path
        from dial_client.cli.terminal.live_application import LiveApplication

        if self._has_input:
            self._input_line = InputLine(self._send, history=find_history_path(), on_steer=self._steer)
        results: list[T] = []
        failures: list[Exception] = []
        self._application = LiveApplication(
            lambda: self._live_text, lambda: self._status_text, self._input_line, self._question, self._bind_keys()
        )
        self._application.before_render += self._paint
        self._application.key_processor.before_key_press += lambda _: self.attention.settle()
        self._ended = anyio.Event()
        with redirect_prints(self.print_prose, self.print_error, self._show_progress, self.ask_line):
            async with anyio.create_task_group() as group:
                await group.start(self._show)
                group.start_soon(self._animate)
                try:
                    results.append(await work())
                except Exception as error:  # noqa: BLE001 - raised again outside of the task group, which would wrap it
                    failures.append(error)
                self.close()
                with anyio.CancelScope(shield=True), anyio.move_on_after(MAX_CLOSING):
                    await self._ended.wait()
                group.cancel_scope.cancel()
        if failures:
            raise failures[0]
        return results[0]

    def _paint(self, _: object) -> None:
        printed = self._take_printed()
        rows = max(1, self.rows // 2 if self.live.panel is None else self.rows - QUESTION_ROWS)
        self._live_text = "\n".join(live_area.render(self.live, self.columns, rows, time.monotonic()))
        find_status = self._find_status if self.rows >= status_line.MIN_ROWS else None
        self._status_text = (
            "" if find_status is None else status_line.format_status(find_status(), self.columns, self.theme)
        )
        self._application.paint_above(printed)

    def _bind_keys(self) -> KeyBindings:
        """Return the bindings of keys that do the same whatever is typed, or that act on an empty input line."""
        from prompt_toolkit.filters import Condition, has_completions, is_searching, vi_insert_mode
        from prompt_toolkit.key_binding import KeyBindings

        line = self._input_line
        is_empty = Condition(lambda: line is not None and not line.buffer.text and not self.is_asking)
        has_queued = is_empty & Condition(lambda: bool(self.live.queued))
        is_answering = Condition(lambda: self.live.activity is not None and not self.is_asking)
        has_only_keys = Condition(lambda: line is None and not self.is_asking)
        bindings = KeyBindings()

        @bindings.add("c-c", eager=True, filter=~is_searching)
        @bindings.add("<sigint>")
        def _(_: Any) -> None:
            self._interrupt()

        @bindings.add("c-d", filter=is_empty, eager=True)
        def _(_: Any) -> None:
            self._send(None)

        @bindings.add("c-z", eager=True)
        def _(event: Any) -> None:
            event.app.suspend_to_background()

        @bindings.add("up", filter=is_empty & ~has_completions)
        def _(event: Any) -> None:
            taken = self._pop_queued()
            if (text := self.take_back() if taken is None else taken.text) is not None:
                line.edit(text)
            else:
                event.current_buffer.auto_up()

        @bindings.add("enter", filter=is_empty & ~is_searching & ~has_completions, eager=True)
        @bindings.add("enter", filter=has_only_keys, eager=True)
        def _(_: Any) -> None:
            self.on_enter()

        # Not eager: Esc is also the first character of Alt with a key.
        @bindings.add("escape", filter=has_queued & ~has_completions)
        def _(_: Any) -> None:
            self._pop_queued()

        @bindings.add("escape", filter=is_answering & ~has_queued & ~has_completions & ~is_searching & ~vi_insert_mode)
        def _(_: Any) -> None:
            self._interrupt()

        @bindings.add("escape", filter=has_completions & ~vi_insert_mode)
        def _(event: Any) -> None:
            event.current_buffer.cancel_completion()

        self._bind_key_of_modes(bindings)
        return bindings

    def _bind_key_of_modes(self, bindings: KeyBindings) -> None:
        from prompt_toolkit.filters import Condition, has_completions

        is_list = Condition(lambda: self.live.items is not None)

        # Also while a question is shown, whose keys are eager: the next calls are those that the user thinks of then.
        @bindings.add("s-tab", filter=~has_completions & ~is_list, eager=True)
        def _(_: Any) -> None:
            self._change_mode()
            self.refresh()

    async def _show(self, task_status: TaskStatus[None]) -> None:
        from dial_client.cli.input.keyboard import read_early_lines
        from dial_client.cli.terminal.live_application import resume_drawing

        def begin() -> None:
            read_early_lines(self._application)
            task_status.started()

        try:
            with self._application.input.raw_mode(), resume_drawing(self._application):
                await self._application.run_async(begin, handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):
            process_runner.interrupts.leaving.cancel()
        finally:
            self._print_rest()
            self._ended.set()

    def close(self) -> None:
        """Erase the live area, and restore the terminal; later output is printed directly."""
        if self._application.is_running and not self._application.is_done:
            with suppress(OSError):
                self._application.exit()

    def _print_rest(self) -> None:
        rest = self._take_printed()
        output = self._application.output
        with suppress(OSError):
            output.write_raw(rest)
            output.flush()

    def _take_printed(self) -> str:
        """Return the text printed so far. Text that other threads print meanwhile is kept."""
        return "".join(self._printed.popleft() for _ in range(len(self._printed)))

    def _show_progress(self, line: str) -> None:
        self.live.progress = line
        self.refresh()

    async def _animate(self) -> None:
        while True:
            await anyio.sleep(live_area.FRAME)
            if self.live.is_moving:
                self.refresh()
            if notification := self.attention.take():
                self._application.output.write_raw(notification)
                self._application.output.flush()

    async def _ask(self, question: Question, lines: Sequence[str], default: str = "") -> str:
        self._read_early_keys()
        if self.live.panel is not None:
            self.live.panel_lines = lines
        else:
            separator, self._is_new_panel = ("\n",) if self._is_new_panel else (), False
            for line in (*separator, *lines):
                self.print(line)
        return await self._question.ask(question, default)

    def _read_early_keys(self) -> None:
        """Put keys that were pressed before the question was shown into the input line."""
        if self._application is None or not self._application.is_running:
            return
        context, processor = self._application.context, self._application.key_processor
        if context is not None:
            processor.feed_multiple(self._application.input.read_keys())
            context.copy().run(processor.process_keys)

    def _steer(self, sent: UserInput) -> bool:
        if self.live.activity is None and not self._sent:
            return False
        self._settle_mode()
        if self.live.activity is None or not self.take_at_once(sent, steers=True):
            self._send(sent)  # the turn has not started yet
        return True

    def _send(self, sent: UserInput | None) -> None:
        self._settle_mode()
        if sent is not None and self.live.activity is not None and self.take_at_once(sent, steers=False):
            return
        self._question.begin_command()
        self._sent.append(sent)
        self._show_queue()
        self._has_sent.set()

    def _show_queue(self) -> None:
        self.live.queued = [sent.shown for sent in self._sent if sent is not None]
        self.live.is_leaving = None in self._sent
        self.refresh()

    def _interrupt(self) -> None:
        """Handle Ctrl-C: clear a non-empty input line if no turn and no question is active; else end both."""
        if self._question.current is not None:
            self._question.current.settle(None)
        elif self.live.activity is None and self._input_line is not None and self._input_line.buffer.text:
            self._input_line.buffer.reset()
            return
        self._on_interrupt()

    def _pop_queued(self) -> UserInput | None:
        """Remove the latest queued message, and return it. A None, which ends the conversation, stays in the queue."""
        for index in range(len(self._sent) - 1, -1, -1):
            if (taken := self._sent[index]) is not None:
                del self._sent[index]
                self._show_queue()
                return taken
        return None

    def _keep_stray(self, text: str) -> None:
        if self._input_line is not None:
            self._input_line.buffer.insert_text(text)

    def _focus(self) -> None:
        if self._application is None:
            return
        if self._question.is_shown:
            self._application.layout.focus(self._question.container)
        elif self._input_line is not None:
            self._application.layout.focus(self._input_line.container)
        self.refresh()

    def _measure_size(self) -> os.terminal_size:
        if self._application is None:
            return shutil.get_terminal_size()
        with suppress(OSError):
            found = self._application.output.get_size()
            return os.terminal_size((found.columns, found.rows))
        return os.terminal_size((80, 24))

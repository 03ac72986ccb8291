"""The prompt_toolkit application of the screen: its layout, its painting, and its output.

Its live area survives a change of the terminal's width.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.styles import Style

from dial_client.cli.input.keyboard import KeyReportingOutput, open_input, open_output
from dial_client.cli.terminal.question_line import QuestionLine

# Seconds between two paintings of the live area; with the time to paint, a piece of text is shown within 50 ms.
REDRAW = 0.02
# Seconds after which Esc counts as the key itself, not as the start of a key code or of Alt with a key; and after which
# no further key can follow another key in a key sequence (Ctrl-X Ctrl-E), as in readline.
ESCAPE, SEQUENCE = 0.1, 0.5
_STYLE = {
    "question": "bold",
    "hint": "italic",
    # The menu of completions has the colours of the terminal, which suit every theme.
    "completion-menu": "bg:default fg:default",
    "completion-menu.completion.current": "bg:default fg:default reverse",
    "completion-menu.meta.completion": "bg:default fg:default dim",
    "completion-menu.meta.completion.current": "bg:default fg:default reverse dim",
    "scrollbar.background": "bg:default",
    "scrollbar.button": "bg:default reverse",
}

# Environment variables of terminals that wrap rows.
_VARIABLES = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "WEZTERM_PANE")
_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")
# Seconds that a terminal may take to report its new width. Of changes within 0.25 s, tmux reports only the last.
REPORT = 0.4


def wraps_rows(environment: Mapping[str, str]) -> bool:
    """Return True if the terminal is known to wrap rows when it becomes narrower; others cut rows, as xterm does.

    The result is False for an unknown terminal, because erasing rows that do not exist would erase printed text above.
    """
    if environment.get("STY"):  # screen cuts rows, whatever terminal it runs in
        return False
    return (
        any(environment.get(name) for name in _VARIABLES)
        or environment.get("TERM_PROGRAM") in _PROGRAMS
        or environment.get("TERM", "").startswith("foot")
    )


def find_cursor(widths: Sequence[int], column: int, columns: int) -> tuple[int, int]:
    """Return the cursor's column and row in the live area after the terminal has wrapped its rows.

    Args:
        widths: The widths of the rows of the area above the cursor.
        column: The column of the cursor before the rows were wrapped.
        columns: The new width of the terminal.
    """
    above = sum(max(1, -(-width // columns)) for width in widths)
    return column % columns, above + column // columns


class LiveApplication(Application[None]):
    """An application that shows the live area and, below it, the input line or a question.

    It finds the beginning of its live area after the terminal has wrapped the rows.

    Args:
        live_text: Returns the text of the live area, with ANSI sequences.
        status_text: Returns the status line below the input line, with ANSI sequences; empty for none.
        input_line: The `InputLine`; None if there is none.
        question: The question line, which replaces the input line while a question is shown.
        key_bindings: The keys of the screen, in addition to those of the input line and of questions.
    """

    def __init__(
        self,
        live_text: Callable[[], str],
        status_text: Callable[[], str],
        input_line: Any,
        question: QuestionLine,
        key_bindings: KeyBindings,
    ) -> None:
        self._wraps_rows = wraps_rows(os.environ)
        self._printed_at = -REPORT
        shown = Condition(lambda: question.is_shown)
        live = Window(FormattedTextControl(lambda: ANSI(live_text())), dont_extend_height=True)
        below = Window(height=1, always_hide_cursor=True) if input_line is None else input_line.container
        containers = [
            ConditionalContainer(live, Condition(lambda: bool(live_text()))),
            ConditionalContainer(question.container, shown),
            ConditionalContainer(below, ~shown),
            ConditionalContainer(
                Window(FormattedTextControl(lambda: ANSI(status_text())), height=1),
                Condition(lambda: bool(status_text())),
            ),
        ]
        bindings, more = [key_bindings, question.key_bindings], dict[str, Any]()
        if input_line is not None:
            bindings.append(input_line.key_bindings)
            more = {"editing_mode": input_line.editing_mode, "cursor": input_line.cursor}
        super().__init__(
            layout=Layout(HSplit(containers), focused_element=None if input_line is None else input_line.buffer),
            key_bindings=merge_key_bindings(bindings),
            style=Style.from_dict(_STYLE),
            erase_when_done=True,
            min_redraw_interval=REDRAW,
            input=open_input(),
            output=open_output(sys.stdout, ScreenOutput),
            **more,
        )
        self.ttimeoutlen, self.timeoutlen = ESCAPE, SEQUENCE
        self.after_render += lambda _: self._hold_output(is_held=False)
        self.key_processor.before_key_press += lambda _: question.note_key()
        self.key_processor.after_key_press += lambda _: self._shorten_escape()

    def _shorten_escape(self) -> None:
        """Let Esc alone act at once: the keyboard has waited `ESCAPE` already for a key that would make it Alt."""
        is_alone = [press.key for press in self.key_processor.key_buffer] == [Keys.Escape]
        self.timeoutlen = 0.0 if is_alone else SEQUENCE

    def paint_above(self, printed: str) -> None:
        """Print final text in place of the live area, which is redrawn below it.

        Without text, the live area is erased only if the width of the terminal has changed, or if the area became
        lower, because prompt_toolkit would keep its old height. The output is held back until the area is redrawn.
        """
        self._hold_output(is_held=not self.is_done)
        size, drawn = self.output.get_size(), self.renderer.last_rendered_screen
        rows = self.layout.container.preferred_height(size.columns, size.rows).preferred
        if printed or self._drawn_columns != size.columns or (drawn is not None and rows < drawn.height):
            self._find_area()
            self.renderer.erase(leave_alternate_screen=False)
        if printed:
            self._printed_at = time.monotonic()
            self.output.write_raw(printed.replace("\n", "\r\n"))

    def _hold_output(self, *, is_held: bool) -> None:
        if isinstance(self.output, ScreenOutput):
            self.output.is_held = is_held
            self.output.flush()

    def _on_resize(self) -> None:
        self._find_area()
        super()._on_resize()

    @property
    def _drawn_columns(self) -> int:
        """The width that the area was drawn for; the width of the terminal if no area is drawn."""
        size = self.renderer._last_size or self.output.get_size()  # noqa: SLF001 - there is no public name
        return size.columns

    def _find_area(self) -> None:
        """Correct the position of the cursor in the area if the terminal is narrower than the area was drawn for.

        Shortly after text was printed, nothing is corrected: the text may have been printed after the terminal wrapped
        the rows, and would be erased.
        """
        drawn, columns = self.renderer.last_rendered_screen, self.output.get_size().columns
        if drawn is None or not self._wraps_rows or not 0 < columns < self._drawn_columns:
            return
        if time.monotonic() - self._printed_at < REPORT:
            return
        cursor = self.renderer._cursor_pos  # noqa: SLF001 - there is no public name
        widths = [_measure_width(drawn.data_buffer[row]) for row in range(cursor.y)]
        self.renderer._cursor_pos = Point(*find_cursor(widths, cursor.x, columns))  # noqa: SLF001 - as above


@contextmanager
def resume_drawing(application: Application[None]) -> Iterator[None]:
    """Restore the terminal modes and redraw after each SIGCONT, because a shell has changed the modes meanwhile."""
    if sys.platform == "win32":
        yield
        return
    loop = asyncio.get_running_loop()

    def redraw() -> None:
        if application._running_in_terminal:  # noqa: SLF001 - another program has the terminal; there is no public name
            return
        application.input.raw_mode().__enter__()
        application.renderer.erase(leave_alternate_screen=False)
        application.invalidate()

    loop.add_signal_handler(signal.SIGCONT, redraw)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)


def _measure_width(row: Any) -> int:
    """Return the columns of a row up to its last character; a wide character takes two columns."""
    return max((column + max(1, cell.width) for column, cell in row.items() if cell.char.strip()), default=0)


class ScreenOutput(KeyReportingOutput):
    """An output that can be held back while the live area is erased and redrawn.

    Bracketed paste stays on meanwhile, so that text pasted at that moment does not arrive as typed keys.
    """

    is_held = False

    def erase_down(self) -> None:
        """Erase from the cursor, in the first column, to the end of the screen.

        tmux gets another sequence: when it erases the screen from the first row, it copies the screen into its history,
        where the live area would remain.
        """
        if os.environ.get("TMUX"):
            self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")
        else:
            super().erase_down()

    def flush(self) -> None:
        """Write the buffered output, unless it is held back."""
        if not self.is_held:
            super().flush()

    def disable_bracketed_paste(self) -> None:
        """Disable bracketed paste, unless the live area will be drawn again at once."""
        if not self.is_held:
            super().disable_bracketed_paste()

    def reset_cursor_shape(self) -> None:
        """Reset the shape of the cursor, unless the live area will be drawn again at once."""
        if not self.is_held:
            super().reset_cursor_shape()

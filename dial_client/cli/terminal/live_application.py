"""The application whose live area survives a change of the terminal's width."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.output import Output, create_output

from dial_client.cli.input.keyboard import KeyReportingOutput

_VARIABLES = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "WEZTERM_PANE")
"""Environment variables of terminals that wrap rows."""
_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")
REPORT = 0.4
"""Seconds that a terminal may take to report its new width. Of changes within 0.25 s, tmux reports only the last."""


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
    """An application that finds the beginning of its live area after the terminal has wrapped the rows."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._wraps_rows = wraps_rows(os.environ)
        self._printed_at = -REPORT

    def erase_area(self, *, prints: bool = False) -> None:
        """Erase the live area.

        Args:
            prints: Whether text is printed in its place.
        """
        self._find_area()
        if prints:
            self._printed_at = time.monotonic()
        self.renderer.erase(leave_alternate_screen=False)

    def follow_size(self) -> None:
        """Erase a live area that was drawn for another width."""
        if self._drawn_columns != self.output.get_size().columns:
            self.erase_area()

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


def _measure_width(row: Any) -> int:
    """Return the columns of a row up to its last character; a wide character takes two columns."""
    return max((at + max(1, cell.width) for at, cell in row.items() if cell.char.strip()), default=0)


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

    def hold(self) -> None:
        """Write nothing until `release`."""
        self.is_held = True

    def release(self) -> None:
        """Write all output that was held back."""
        self.is_held = False
        self.flush()


def open_output() -> Output:
    """Return the output. It never queries the cursor position, because some terminals do not answer."""
    if sys.platform == "win32":
        return create_output()
    output = ScreenOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output

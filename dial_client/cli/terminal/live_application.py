"""The application whose live area survives a change of the terminal's width."""

from __future__ import annotations

import os
import time
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point

from dial_client.cli.terminal.wrapped_rows import find_cursor, wraps_rows

REPORT = 0.4
"""Seconds that a terminal may take to report its new width. Of changes within 0.25 s, tmux reports only the last."""


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

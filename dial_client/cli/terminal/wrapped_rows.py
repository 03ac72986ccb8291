"""Finds the live area after the terminal became narrower: many terminals then wrap the rows that no longer fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_VARIABLES = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "WEZTERM_PANE")
"""Environment variables of terminals that wrap rows."""
_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")


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

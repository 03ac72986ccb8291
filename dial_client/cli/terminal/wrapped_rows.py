"""Where the live area begins after the terminal became narrower: many terminals wrap the rows that no longer fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_VARIABLES = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "WEZTERM_PANE")
"""Are set by terminals that wrap rows."""
_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")


def wraps_rows(environment: Mapping[str, str]) -> bool:
    """Return True for a terminal that is known to wrap rows when it becomes narrower; others cut them, as xterm does.

    The answer is no where that is not known: to erase rows that are not there would erase what is printed above.
    """
    if environment.get("STY"):  # screen cuts rows, whatever terminal it runs in
        return False
    return (
        any(environment.get(name) for name in _VARIABLES)
        or environment.get("TERM_PROGRAM") in _PROGRAMS
        or environment.get("TERM", "").startswith("foot")
    )


def find_cursor(widths: Sequence[int], column: int, columns: int) -> tuple[int, int]:
    """Return the cursor's column, and its rows below the beginning of the area, when the rows have been wrapped.

    Args:
        widths: of the rows of the area above the cursor.
        column: of the cursor before.
        columns: of the terminal now.
    """
    above = sum(max(1, -(-width // columns)) for width in widths)
    return column % columns, above + column // columns

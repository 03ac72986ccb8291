"""Word wrap of a command's output at the width of the terminal; output to a pipe or a file is not wrapped."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from dial_client.cli.trust_prompt import find_terminal_width
from dial_client.cli.word_wrap import break_line

INDENT = 4
"""Columns by which continuation rows are indented, counted from the first word of the line."""


def wrap_line(line: str, columns: int | None, indent: int | None = None) -> str:
    """Return a line, broken into rows of fewer than `columns` columns; a longer word is not broken.

    Args:
        line: The line, without line breaks.
        columns: The width of the terminal; None to leave the line unbroken.
        indent: The indentation of continuation rows in columns, at most half of the width; None for `INDENT`.
    """
    if columns is None:
        return line
    return break_line(line, columns, len(line) - len(line.lstrip()) + INDENT if indent is None else indent)


def print_lines(lines: Iterable[str], indent: int | None = None) -> None:
    """Print lines, each broken for the terminal as `wrap_line` does."""
    columns = find_terminal_width(sys.stdout)
    for line in lines:
        print(wrap_line(line, columns, indent))

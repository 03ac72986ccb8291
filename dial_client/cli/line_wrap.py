"""Lines of a command's output, broken between words where they are wider than the terminal; a pipe has them whole."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from dial_client.cli.trust_prompt import terminal_width
from dial_client.cli.word_wrap import break_line

INDENT = 4
"""Columns by which the further rows of a line are indented, from the beginning of its first word."""


def wrap_line(line: str, columns: int | None, indent: int | None = None) -> str:
    """Return a line in rows of less than `columns` characters; a word that is longer stays whole.

    Args:
        line: without line breaks.
        columns: those of the terminal; None for the line as it is.
        indent: columns before the further rows, at most half of all.
    """
    if columns is None:
        return line
    return break_line(line, columns, len(line) - len(line.lstrip()) + INDENT if indent is None else indent)


def print_lines(lines: Iterable[str], indent: int | None = None) -> None:
    """Print lines, each broken for the terminal as `wrap_line` does."""
    columns = terminal_width(sys.stdout)
    for line in lines:
        print(wrap_line(line, columns, indent))

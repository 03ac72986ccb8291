"""Word wrap for text in a terminal, which by itself breaks a long line within a word, and the width of text in columns.

Each character counts with its own width, independent of the characters next to it. So a line that is shortened or
wrapped by these widths fits in every terminal. Rendered Markdown measures a letter with its marks, or a joined emoji,
as one unit, as newer terminals draw them; this aligns the columns of a table.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from dial_client.cli.markdown.themes import StyleName, choose_theme, style, understands_escapes

HANGING = 2
# The first column of a table row, with the spaces after it.
_FIRST_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")
# Columns by which continuation rows are indented, counted from the first word of the line.
INDENT = 4


def count_cells(text: str) -> int:
    """Return the maximum number of columns that a line takes."""
    from prompt_toolkit.utils import get_cwidth

    return len(text) if text.isascii() else sum(map(get_cwidth, text))


def fit(text: str, columns: int) -> str:
    """Return the line, shortened to at most `columns` columns; an ellipsis marks the cut."""
    if count_cells(text) <= columns:
        return text
    used, kept = 1, []
    for char in text:
        used += count_cells(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""


def break_words(text: str, columns: int) -> str:
    """Return the text with its long lines broken between words.

    A word that is too long is not broken, so that a path or a URL can be copied. Lines with escape sequences are not
    changed. Continuation rows are indented to the second column of a table, or else by `HANGING` columns. So text of a
    server cannot begin a row, where it could imitate the prompt or a question.

    Args:
        text: The lines, escaped already.
        columns: The width of the terminal; a row has at least one column less.
    """
    lines = text.splitlines(keepends=True)
    return "".join(break_line(line, columns, _find_indent(line, columns)) for line in lines)


def break_line(line: str, columns: int, indent: int) -> str:
    """Return a line with breaks between its words, as `break_words` does.

    Args:
        line: The line, escaped already; it may end in a line break.
        columns: The width of the terminal.
        indent: The indentation of continuation rows in columns, at most half of the width.
    """
    width = columns - 1
    if len(line) <= width // 2 or count_cells(line.rstrip("\n")) <= width or "\x1b" in line:
        return line
    words, further = line.split(" "), " " * min(indent, columns // 2)
    row, rows = words[0], []
    for word in words[1:]:
        if row.strip() and count_cells(f"{row} {word}".rstrip()) > width:
            rows.append(row.rstrip())
            row = f"{further}{word}"
        else:
            row = f"{row} {word}"
    if count_cells(row.rstrip("\n")) > width:  # its trailing spaces do not fit
        row = f"{row.rstrip()}\n" if row.endswith("\n") else row.rstrip()
    return "\n".join([*rows, row])


def _find_indent(line: str, columns: int) -> int:
    """Return the indentation of the continuation rows of a line in columns."""
    first = _FIRST_COLUMN.match(line)
    indent = count_cells(first.group()) if first is not None else columns
    return indent if indent <= columns // 2 else len(line) - len(line.lstrip(" ")) + HANGING


def find_terminal_width(stream: TextIO) -> int | None:
    """Return the columns of a stream's terminal; None if the stream is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


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


def print_lines(lines: Iterable[str], indent: int | None = None, styles: Mapping[str, StyleName] | None = None) -> None:
    """Print lines, each broken for the terminal as `wrap_line` does.

    Args:
        lines: The lines, escaped already.
        indent: As in `wrap_line`.
        styles: In a terminal with styles, the kind of `Theme` in which the first occurrence of a word is shown.
    """
    columns = find_terminal_width(sys.stdout)
    shown = styles if styles and columns is not None and understands_escapes(os.environ) else {}
    theme = choose_theme("auto", os.environ)
    for line in lines:
        wrapped = wrap_line(line, columns, indent)
        for word, kind in shown.items():
            wrapped = wrapped.replace(word, style(word, getattr(theme, kind)), 1)
        print(wrapped)

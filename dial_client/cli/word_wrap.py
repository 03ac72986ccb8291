"""Sentences for a terminal, broken between words: a terminal itself breaks a long line within a word."""

from __future__ import annotations

import re
import shutil
import sys

from dial_client.cli.cell_width import cell_width
from dial_client.cli.printed_streams import PrintedStream

HANGING = 2
_FIRST_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")
"""The first column of a row of a table, with the spaces behind it."""


def print_to_stderr(line: str) -> None:
    """Print a line on standard error: broken between words in a terminal, unless a screen has it, which does so itself.

    Args:
        line: safe already.
    """
    is_wrapped = sys.stderr.isatty() and not isinstance(sys.stderr, PrintedStream)
    shown = break_words(line, shutil.get_terminal_size().columns) if is_wrapped else line
    print(shown, file=sys.stderr, flush=True)


def break_words(text: str, columns: int) -> str:
    """Return the text with its long lines broken between words.

    A word that is too long stays whole, so that a path or an address can be copied. Lines with escape sequences stay
    as they are. Further rows begin where the second column of a table does, else `HANGING` columns behind the line's
    beginning: a text of a server in the line cannot begin a row, and look like the prompt or a question there.

    Args:
        text: lines, safe already.
        columns: of the terminal; a row has at most one less.
    """
    lines = text.splitlines(keepends=True)
    return "".join(break_line(line, columns, _find_indent(line, columns)) for line in lines)


def break_line(line: str, columns: int, indent: int) -> str:
    """Return a line with breaks between its words, as `break_words` does.

    Args:
        line: safe already; it may end in a line break.
        columns: of the terminal.
        indent: columns before the further rows, at most half of all.
    """
    width = columns - 1
    if len(line) <= width // 2 or cell_width(line.rstrip("\n")) <= width or "\x1b" in line:
        return line
    words, further = line.split(" "), " " * min(indent, columns // 2)
    row, rows = words[0], []
    for word in words[1:]:
        if row.strip() and cell_width(f"{row} {word}".rstrip()) > width:
            rows.append(row.rstrip())
            row = f"{further}{word}"
        else:
            row = f"{row} {word}"
    if cell_width(row.rstrip("\n")) > width:  # the spaces at its end
        row = f"{row.rstrip()}\n" if row.endswith("\n") else row.rstrip()
    return "\n".join([*rows, row])


def _find_indent(line: str, columns: int) -> int:
    """Return the columns before the further rows of a line."""
    first = _FIRST_COLUMN.match(line)
    indent = cell_width(first.group()) if first is not None else columns
    return indent if indent <= columns // 2 else len(line) - len(line.lstrip(" ")) + HANGING

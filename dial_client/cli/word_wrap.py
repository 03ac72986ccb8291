"""Sentences for a terminal, broken between words: a terminal itself breaks a long line within a word."""

from __future__ import annotations

from dial_client.cli.cell_width import cell_width


def break_words(text: str, columns: int) -> str:
    """Return the text with its long lines broken between words.

    A word that is too long stays whole, so that a path or an address can be copied. Lines with escape sequences stay
    as they are.

    Args:
        text: lines, safe already.
        columns: of the terminal; a row has at most one less.
    """
    lines = text.splitlines(keepends=True)
    return "".join(break_line(line, columns, len(line) - len(line.lstrip(" "))) for line in lines)


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

"""The width of text in columns of the terminal, as the sum of its characters' widths.

Each character counts with its own width, independent of the characters next to it. So a line that is shortened or
wrapped by these widths fits in every terminal. `markdown.text_layout.count_columns` measures a letter with its marks,
or a joined emoji, as one unit, as newer terminals draw them; this aligns the columns of a table.
"""

from __future__ import annotations


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

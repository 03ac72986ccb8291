"""The width of text in columns of the terminal, as the sum of its characters' widths.

Each character counts with its own width, independent of the characters next to it. So a line that is shortened or
wrapped by these widths fits in every terminal. `markdown.text_layout.columns_of` measures a letter with its marks, or a
joined emoji, as one unit, as newer terminals draw them; this aligns the columns of a table.
"""

from __future__ import annotations


def cell_width(text: str) -> int:
    """Return the maximum number of columns that a line takes."""
    from prompt_toolkit.utils import get_cwidth

    return len(text) if text.isascii() else sum(map(get_cwidth, text))


def fit(text: str, columns: int) -> str:
    """Return the line, shortened to at most `columns` columns; an ellipsis marks the cut."""
    if cell_width(text) <= columns:
        return text
    used, kept = 1, []
    for char in text:
        used += cell_width(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""

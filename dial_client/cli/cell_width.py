"""The width of text in columns of the terminal, character by character.

A character has its own width here, whatever stands beside it: a line that is shortened or wrapped by these widths is
never wider than in any terminal. `markdown.text_layout.columns_of` measures letters with their marks and joined emoji
as one, as newer terminals draw them, so that the columns of a table stand below each other.
"""

from __future__ import annotations


def cell_width(text: str) -> int:
    """Return how many columns a line takes at most."""
    from prompt_toolkit.utils import get_cwidth

    return len(text) if text.isascii() else sum(map(get_cwidth, text))


def fit(text: str, columns: int) -> str:
    """Return the line in at most so many columns; an ellipsis stands for what is missing."""
    if cell_width(text) <= columns:
        return text
    used, kept = 1, []
    for char in text:
        used += cell_width(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""

"""The width of text in columns of the terminal."""

from __future__ import annotations


def cell_width(text: str) -> int:
    """Return how many columns a line takes."""
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

"""Numbers with their nouns, in the singular or the plural."""

from __future__ import annotations


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: "1 tool", "1,381 tools"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

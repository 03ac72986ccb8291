"""An item that a person can choose, and the search that finds items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """An item of a list."""

    value: str
    """What is returned for it."""
    label: str
    """One line, safe to print."""


MAX_FOUND = 100
"""Items of a long list that a search returns at most; more words find the rest."""

Search = Callable[[str], Awaitable[Sequence[Choice]]]
"""Returns the items that contain all these words, the most likely first; all items for no word, at most `MAX_FOUND`."""

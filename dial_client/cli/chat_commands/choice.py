"""An item that a user can choose, and the search that finds items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """An item of a list."""

    value: str
    """The value that is returned if the item is chosen."""
    label: str
    """One line of text, escaped already."""


MAX_FOUND = 100
"""The maximum number of items that a search returns; more words find the other items."""

Search = Callable[[str], Awaitable[Sequence[Choice]]]
"""Returns the items that contain all words of a text, at most `MAX_FOUND`; for an empty text it returns all items."""

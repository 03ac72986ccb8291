"""What was built from the first items of a sequence, for a longer sequence that begins with the same items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Generic, TypeVar

Built = TypeVar("Built")


class KeptPrefix(Generic[Built]):
    """Keeps what was built from the last sequence, of items that never change.

    Items are compared by identity: it says that nothing has changed, and costs less than to compare them.
    """

    def __init__(self) -> None:
        self._settings: tuple[object, ...] = ()
        self._items: Sequence[object] = ()
        self._built: Built | None = None

    def find(self, items: Sequence[object], *settings: object, begin: Callable[[], Built]) -> tuple[int, Built]:
        """Return the number of first items that something was built from, and what was built; else 0 and ``begin()``.

        Args:
            items: The items.
            settings: All else that the built value depends on.
            begin: Returns what is built from no items.
        """
        kept, built = self._items, self._built
        if built is not None and len(kept) <= len(items) and self._settings == settings and all(map(is_, kept, items)):
            return len(kept), built
        return 0, begin()

    def keep(self, items: Sequence[object], *settings: object, built: Built) -> None:
        """Keep what was built from the items, in place of what was kept; nobody may change either."""
        self._items, self._settings, self._built = items, settings, built

"""A value whose changes tasks can wait for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

Value = TypeVar("Value")


class Observable(Generic[Value]):
    """A value whose changes tasks of one event loop can wait for."""

    def __init__(self, value: Value) -> None:
        self._value = value
        self._changed: anyio.Event | None = None
        """Set when the value changes; None if no task waits."""

    @property
    def value(self) -> Value:
        """The current value."""
        return self._value

    def set(self, value: Value) -> None:
        """Replace the value. All waiting tasks check their predicates again, even if the value is equal."""
        self._value = value
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def wait_until(self, predicate: Callable[[Value], bool], seconds: float = math.inf) -> Value:
        """Wait until the predicate is true of the value, at most `seconds`, and return the value."""
        # A turn asks many times for what is true already: only a task that waits needs a cancel scope.
        if not predicate(self._value):
            with anyio.move_on_after(seconds):
                while not predicate(self._value):
                    self._changed = self._changed or anyio.Event()
                    await self._changed.wait()
        return self._value

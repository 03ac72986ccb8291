"""A value whose changes tasks can wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

Value = TypeVar("Value")


class Observable(Generic[Value]):
    """A value whose changes tasks of one event loop can wait for."""

    def __init__(self, value: Value) -> None:
        self._value = value
        self._changed = anyio.Event()

    @property
    def value(self) -> Value:
        """The current value."""
        return self._value

    def set(self, value: Value) -> None:
        """Replace the value. All waiting tasks check their predicates again, even if the value is equal."""
        self._value = value
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_until(self, predicate: Callable[[Value], bool]) -> Value:
        """Wait until the predicate is true of the value, and return that value."""
        while not predicate(self._value):
            await self._changed.wait()
        return self._value

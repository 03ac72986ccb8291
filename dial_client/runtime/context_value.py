"""The value of a context variable within a ``with`` block."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class ContextValue(AbstractContextManager[None], Generic[ValueT]):
    """Sets a context variable within a ``with`` block. A generator would cost four times as much, for each call.

    Args:
        variable: The variable.
        value: Its value within the block.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[ValueT], value: ValueT) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token: Token[ValueT] = self._variable.set(self._value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._variable.reset(self._token)

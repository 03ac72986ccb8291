"""The deadline of a turn or a call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from types import TracebackType

import anyio
import anyio.lowlevel


class Deadline:
    """The time at which a turn or a call has to end; time spent waiting for the user extends it.

    The cancel scopes of `scope` move with the deadline, so that waits that started earlier end at the right time.

    Args:
        seconds: The seconds until the deadline.
        most: The seconds until the latest deadline that `restart` can set.
        reserve: The seconds by which `allow_reserve` moves the deadline.
        outer: The deadlines that pause with this one: of the turn that waits for this turn.
    """

    def __init__(
        self, seconds: float, most: float = math.inf, *, reserve: float = 0.0, outer: tuple[Deadline, ...] = ()
    ) -> None:
        now = anyio.current_time() if min(seconds, most) < math.inf else 0.0
        self._outer = outer
        self._reserve = reserve
        self._is_reserve_allowed = False
        self._at = now + seconds
        self._last = now + most
        self._scopes: set[anyio.CancelScope] = set()
        self._waiting = 0
        self._stopped_at = 0.0

    def restart(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now."""
        now = self._stopped_at if self._waiting else anyio.current_time()
        self._at = min(now + seconds, self._last)
        if not self._waiting:
            self._move(self._at)

    def allow_reserve(self, *, allowed: bool) -> None:
        """Set whether the deadline includes the reserve."""
        if allowed is not self._is_reserve_allowed:
            self._is_reserve_allowed = allowed
            self._at += self._reserve if allowed else -self._reserve
            if not self._waiting:
                self._move(self._at)

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline, without a pause that has begun; below 0 after it."""
        return self._at - anyio.current_time()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return not self._waiting and anyio.current_time() >= self._at

    async def checkpoint(self) -> None:
        """Raise the cancellation if the deadline has passed, or if the task is cancelled for another reason."""
        await anyio.lowlevel.checkpoint_if_cancelled()

    def scope(self) -> AbstractContextManager[anyio.CancelScope]:
        """Cancel the ``with`` block at the deadline; ``scope.cancelled_caught`` tells whether it was cancelled."""
        return _Scope(math.inf if self._waiting else self._at, self._scopes)

    def detach(self, scope: anyio.CancelScope) -> None:
        """Leave the time of a scope of `scope` to the caller, who sets an earlier one."""
        self._scopes.discard(scope)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the deadline within the ``with`` block; blocks that overlap pause it once."""
        if not self._waiting:
            self._stopped_at = anyio.current_time()
            self._move(math.inf)
        self._waiting += 1
        try:
            with ExitStack() as pauses:
                for deadline in self._outer:
                    pauses.enter_context(deadline.pause())
                yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                waited = anyio.current_time() - self._stopped_at
                self._at, self._last = self._at + waited, self._last + waited
                self._move(self._at)

    def _move(self, at: float) -> None:
        for scope in self._scopes:
            scope.deadline = at


class NoDeadline(Deadline):
    """No deadline: for a call of another host, which cancels it itself. Its scope does nothing."""

    def __init__(self) -> None:
        super().__init__(math.inf)

    def restart(self, seconds: float) -> None:
        """Do nothing."""
        del seconds

    async def checkpoint(self) -> None:
        """Do nothing: a task that is cancelled learns of it when it waits."""

    def scope(self) -> AbstractContextManager[anyio.CancelScope]:
        """Do nothing; ``scope.cancelled_caught`` is False."""
        return _find_open_scope()


@cache
def _find_open_scope() -> AbstractContextManager[anyio.CancelScope]:
    """Return a scope that is never entered."""
    return nullcontext(anyio.CancelScope())


class _Scope(AbstractContextManager[anyio.CancelScope]):
    """A cancel scope that is among others as long as it is entered. A generator would cost twice as much."""

    def __init__(self, at: float, scopes: set[anyio.CancelScope]) -> None:
        self._scope, self._scopes = anyio.CancelScope(deadline=at), scopes

    def __enter__(self) -> anyio.CancelScope:
        self._scopes.add(self._scope)
        return self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._scopes.discard(self._scope)
        return self._scope.__exit__(kind, error, trace)

"""On whose behalf a server is called: whose time stops while it asks a person, and who pays for what it asks for.

What a server asks may come to the host in the caller's task or in another one, so this travels beside the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dial_client.audit.entries import Origin
from dial_client.deadline import Deadline
from dial_client.messages import Usage

Spend = Callable[[Usage, float | None], None]
"""Is told the tokens that were used, and their price in US dollars where it is known."""


@dataclass(frozen=True, slots=True, eq=False)
class CallContext:
    """One call, as its server's questions meet it."""

    turn: Deadline
    """Of the whole turn; one turn has one."""
    call: Deadline
    """Of this call."""
    spend: Spend | None = None
    origin: Origin = Origin()  # noqa: RUF009 - frozen
    """The turn the call belongs to."""

    @property
    def clocks(self) -> tuple[Deadline, Deadline]:
        """What stops while a person is being waited for."""
        return (self.turn, self.call)


@contextmanager
def waiting_for_a_person(errands: Iterable[CallContext]) -> Iterator[None]:
    """Stop the clocks of these calls and of their turns for as long as this lasts."""
    with ExitStack() as stopped:
        for clock in {clock for one in errands for clock in one.clocks}:
            stopped.enter_context(clock.waiting_for_a_person())
        yield


_CURRENT: ContextVar[CallContext | None] = ContextVar("errand", default=None)


@contextmanager
def on(errand: CallContext) -> Iterator[None]:
    """Make the calls in here on this errand."""
    token = _CURRENT.set(errand)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> CallContext | None:
    """Give the errand of the call that is being made; None for a call nobody has sent anybody on."""
    return _CURRENT.get()

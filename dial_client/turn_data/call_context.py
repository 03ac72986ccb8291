"""The context of a tool call: the deadlines that stop while a person is asked, and the turn that pays for sampling.

A server's request may reach the host in the caller's task or in another one, so the context travels beside the
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dial_client.audit.entries import Origin
from dial_client.runtime.deadline import Deadline
from dial_client.turn_data.token_usage import Usage

Spend = Callable[[Usage, float | None], None]
"""Receives the tokens that were used, and their price in US dollars where it is known."""


@dataclass(frozen=True, slots=True, eq=False)
class CallContext:
    """One call, for the requests its server makes meanwhile."""

    turn: Deadline
    """The deadline of the whole turn; one turn has one."""
    call: Deadline
    """The deadline of this call."""
    spend: Spend | None = None
    origin: Origin = Origin()  # noqa: RUF009 - frozen
    """The turn the call belongs to."""

    @property
    def clocks(self) -> tuple[Deadline, Deadline]:
        """The deadlines that stop while a person is asked."""
        return (self.turn, self.call)


@contextmanager
def waiting_for_a_person(contexts: Iterable[CallContext]) -> Iterator[None]:
    """Stop the deadlines of these calls and of their turns for as long as this lasts."""
    with ExitStack() as stopped:
        for clock in {clock for context in contexts for clock in context.clocks}:
            stopped.enter_context(clock.waiting_for_a_person())
        yield


_CURRENT: ContextVar[CallContext | None] = ContextVar("call_context", default=None)


@contextmanager
def on(context: CallContext) -> Iterator[None]:
    """Set the context of the calls in this block."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> CallContext | None:
    """Return the context of the current call; None for a call without one."""
    return _CURRENT.get()

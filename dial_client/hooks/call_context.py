"""The context of a tool call: the deadlines that pause while the user is asked, and the turn that pays for sampling.

A server's request may arrive in the task of the call or in another task, so the context is a context variable and not
an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.token_usage import Usage
from dial_client.runtime.deadline import Deadline

# Receives the tokens that were used, and their price in US dollars; None if the price is unknown.
Spend = Callable[[Usage, float | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class CallContext:
    """The context of one call, for the requests that its server sends during the call."""

    turn: Deadline
    """The deadline of the whole turn; it identifies the turn."""
    call: Deadline
    """The deadline of this call."""
    spend: Spend | None = None
    origin: Origin = Origin()  # noqa: RUF009 - frozen
    """The turn the call belongs to."""
    meta: Mapping[str, Any] | None = None
    """The ``_meta`` of the request to the server: members that the caller of the gateway has sent; None for none."""


@contextmanager
def pause_deadlines(contexts: Iterable[CallContext]) -> Iterator[None]:
    """Pause the deadlines of the calls and of their turns within the ``with`` block."""
    with ExitStack() as pauses:
        for deadline in {deadline for context in contexts for deadline in (context.turn, context.call)}:
            pauses.enter_context(deadline.pause())
        yield


_CURRENT: ContextVar[CallContext | None] = ContextVar("call_context", default=None)


@contextmanager
def set_current(context: CallContext) -> Iterator[None]:
    """Set the current context within the ``with`` block."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def find_current() -> CallContext | None:
    """Return the context of the current call; None outside of a call."""
    return _CURRENT.get()

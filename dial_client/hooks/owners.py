"""Whom the program acts for, and what each person has given it: the credentials of servers with ``perUser``.

Each entry point of the program (a turn, a request over HTTP, a call) sets for whom it acts; code that finds a server
below it finds the session of that person. A task without such an owner finds the session of no person.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from dial_client.runtime.context_value import ContextValue

_OWNER: ContextVar[str] = ContextVar("owner", default="")


def act_for(owner: str) -> ContextValue[str]:
    """Act for a person within the ``with`` block; an empty text for nobody in particular."""
    return ContextValue(_OWNER, owner)


def find_owner() -> str:
    """Return the person whom the program acts for; empty for nobody in particular."""
    return _OWNER.get()


@runtime_checkable
class CredentialProvider(Protocol):
    """Knows what each person has filled in for ``${user.NAME}`` in the entries of servers.

    It is asked before each use of a server, so that a value that was taken back is not used any more. An attribute
    ``hint``, if it has one, says in a few words where a person fills in a value; the model and the person read it.
    """

    async def find(self, owner: str, server: str, name: str) -> str | None:
        """Return a value; None if the person has given none.

        Args:
            owner: The keyword ``owner`` of the turn or the call; empty if the program names no person.
            server: The server's name in the configuration.
            name: The name in ``${user.NAME}``.
        """

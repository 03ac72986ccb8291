"""Everything the public methods raise, apart from cancellation.

DialError
├── ConfigError            the configuration, a model's name or an option is wrong; says where and what to do
├── ServerError            something with one MCP server
│   ├── ServerStartError   it could not be started, or not in time
│   └── ServerGone         it was there and is not any more
├── ProviderError          the model could not be reached, or refused the request
├── LimitReached           a limit was met, and the caller asked for ``on_limit="raise"``
├── ConversationNotFound   no conversation with this id
└── ConversationBusy       another turn of this conversation is under way

A tool that fails raises nothing: its failure is a result the model reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class DialError(Exception):
    """The root of all errors of this package."""


@dataclass(eq=False)
class ConfigError(DialError):
    """What is wrong in the configuration, where, and what would be right.

    ``str()`` gives one line: ``servers.json:3:14: mcpServers.time: … (hint)``.
    """

    problem: str
    """What is wrong, naming the offending key."""
    hint: str = ""
    """What was expected, or what to do about it."""
    path: str = ""
    """The file, as the user named it; empty where no file is to blame."""
    line: int = 0
    """Counted from 1; 0 where the place is not known."""
    column: int = 0
    """Counted from 1; 0 where the place is not known."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part)
        said = f"{place}: {self.problem}" if place else self.problem
        return f"{said} ({self.hint})" if self.hint else said


class ServerError(DialError):
    """Something with one MCP server; ``server`` is its name in the configuration."""

    def __init__(self, server: str, problem: str) -> None:
        super().__init__(f"{server}: {problem}")
        self.server = server
        self.problem = problem


class ServerStartError(ServerError):
    """The server could not be started, or was not ready within its start-up timeout."""


class ServerGone(ServerError):
    """The server's process ended or its connection broke."""


class ProviderError(DialError):
    """The model's endpoint could not be reached, refused the request, or broke off."""

    def __init__(
        self, problem: str, *, status: int | None = None, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(problem)
        self.status = status
        """The HTTP status, where there was one."""
        self.code = code
        """The endpoint's own word for the error (``insufficient_quota``), or ``connection``, ``timeout``, ``cut``."""
        self.retry_after = retry_after
        """Seconds the endpoint asked to wait, where it did."""
        self.messages: tuple[Any, ...] = ()
        """What the turn had added before it broke off (`Message`s): behind the caller's messages a valid history."""


class LimitReached(DialError):
    """A limit was met and ``on_limit="raise"`` was asked for; ``turn`` has everything up to then."""

    def __init__(self, reason: str, turn: Any) -> None:
        super().__init__(f"the turn was stopped: {reason}")
        self.reason = reason
        self.turn = turn


class ConversationNotFound(DialError):
    """There is no conversation with this id in the store."""


class ConversationBusy(DialError):
    """Another turn of this conversation is under way, in this program or in another."""

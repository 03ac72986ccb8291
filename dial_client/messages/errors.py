"""Everything the public methods raise, apart from cancellation.

DialError
├── ConfigError                the configuration, a model's name or an option is wrong; says where and what to do
├── ServerError                an error of one MCP server
│   ├── ServerStartError       the server could not be started, or not in time
│   └── ServerGone             the server's process ended, or its connection broke
├── LoginFailed                an OAuth login did not succeed
├── ProviderError              the model could not be reached, or refused the request
├── RequestRefused             a middleware refused a request to the model, or its reply
├── MiddlewareError            a middleware of the embedding program raised an exception
├── LimitReached               a limit was met, and the caller set ``on_limit="raise"``
├── OutputError                a turn with an ``output_type`` ended without an answer of that type
└── ConversationError          an error of one conversation
    ├── ConversationNotFound   there is no conversation with this id
    └── ConversationBusy       another turn of this conversation is running

A failed tool call raises no error: the failure is a result that the model reads. Wrong use raises a built-in error:
`TypeError`, `ValueError` or `RuntimeError`.
"""

from __future__ import annotations

import copyreg
from dataclasses import dataclass
from typing import Any

from dial_client.messages.message import Message
from dial_client.messages.turn_result import Turn


class DialError(Exception):
    """The base class of all errors of this package."""

    left_out: bool = False
    """Whether later requests of the conversation leave out the question, because the endpoint has refused it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # `Exception.__reduce__` would call the constructor with `args`: the text, and not the constructor's arguments.
        return copyreg.__newobj__, (type(self), *self.args), dict(self.__dict__)  # type: ignore[attr-defined]


@dataclass(eq=False)
class ConfigError(DialError):
    """An error in the configuration: the problem, its place, and what was expected.

    ``str()`` returns one line: ``servers.json:3:14: mcpServers.time: … (hint)``.
    """

    problem: str
    """The error, with the name of the offending key."""
    hint: str = ""
    """What was expected, or how to correct the error."""
    path: str = ""
    """The file's path as the user wrote it; empty if the error is not in a file."""
    line: int = 0
    """The line number, counted from 1; 0 if it is unknown."""
    column: int = 0
    """The column number, counted from 1; 0 if it is unknown."""

    def __str__(self) -> str:
        position = ":".join(str(part) for part in (self.path, self.line, self.column) if part)
        problem = f"{position}: {self.problem}" if position else self.problem
        return f"{problem} ({self.hint})" if self.hint else problem


class NoModel(ConfigError):
    """No model is named, and none was found."""


class ServerError(DialError):
    """An error of one MCP server; ``server`` is its name in the configuration."""

    def __init__(self, server: str, problem: str) -> None:
        super().__init__(f"{server}: {problem}")
        self.server = server
        self.problem = problem


class ServerStartError(ServerError):
    """The server could not be started, or was not ready within its start-up timeout."""


class ServerGone(ServerError):
    """The server's process ended or its connection broke."""


class LoginFailed(DialError):
    """An OAuth login did not succeed. The text is one line for the user, and contains no secret."""


# The codes of a `ProviderError` that this package acts on, in place of the endpoint's own code.
# The endpoint does not support native tool calls. A text format may still work.
TOOLS_UNSUPPORTED = "tools_unsupported"
# The model does not accept images.
IMAGES_UNSUPPORTED = "images_unsupported"
# The endpoint could not read one of the images.
IMAGE_UNREADABLE = "image_unreadable"
# The endpoint does not support tool search. The client searches instead.
SEARCH_UNSUPPORTED = "tool_search_unsupported"
# The endpoint cannot enforce this JSON Schema. The answer is requested in another way.
OUTPUT_FORMAT_UNSUPPORTED = "output_format_unsupported"
# The endpoint could not parse a tool call of the model (Groq): a retry may help.
CALL_UNREADABLE = "tool_use_failed"
# The conversation is too long for the model. Each endpoint's own code for this error is mapped to this code.
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


class ProviderError(DialError):
    """The model's endpoint could not be reached, refused the request, or broke off."""

    def __init__(
        self, problem: str, *, status: int | None = None, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(problem)
        self.status = status
        """The HTTP status code; None if there was no HTTP response."""
        self.code = code
        """A code of this module, or one of this package such as ``connection``, ``timeout`` or ``cut``; otherwise the
        endpoint's own code for the error (``insufficient_quota``)."""
        self.retry_after = retry_after
        """Seconds to wait before the next request; None if the endpoint does not specify them."""
        self.messages: tuple[Message, ...] = ()
        """The question, and the messages that the turn had added before the error, as in `Turn.messages`. After the
        conversation before the question they form a valid history."""


class RequestRefused(DialError):
    """A middleware refused a request to the model, or the reply, of which nothing is stored or sent to the model."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.messages: tuple[Message, ...] = ()
        """The question, and the messages that the turn had added before, as in `ProviderError.messages`."""


class MiddlewareError(DialError):
    """A middleware raised an exception, which is its ``__cause__``, or returned a value of the wrong type."""

    def __init__(self, middleware: str, problem: str) -> None:
        super().__init__(f"the middleware {middleware} {problem}")
        self.middleware = middleware
        """The name of the middleware's class."""


class LimitReached(DialError):
    """A limit was met and ``on_limit="raise"`` was set; ``turn`` is the turn up to the limit."""

    def __init__(self, reason: str, turn: Turn) -> None:
        super().__init__(f"the turn was stopped: {reason}")
        self.reason = reason
        self.turn = turn


class OutputError(DialError):
    """A turn with an ``output_type`` ended without an answer of that type; ``turn`` is that turn."""

    def __init__(self, reason: str, turn: Turn, errors: tuple[str, ...] = ()) -> None:
        details = "".join(f"; {error}" for error in errors)
        super().__init__(f"the turn has no output: {reason}{details}")
        self.reason = reason
        self.turn = turn
        self.errors = errors
        """The validation errors of the last answer, each with its place; empty if the turn has no answer."""

    @property
    def text(self) -> str:
        """The answer as the model wrote it."""
        return self.turn.text


class StoreUnavailable(DialError):
    """The database of conversations failed, or cannot be reached. What was asked for may be tried again later."""


class ConversationError(DialError):
    """An error of one conversation; ``conversation_id`` names it."""

    def __init__(self, conversation_id: str, problem: str) -> None:
        super().__init__(problem)
        self.conversation_id = conversation_id


class ConversationNotFound(ConversationError):
    """There is no conversation with this id in the store."""

    def __init__(self, conversation_id: str, problem: str = "") -> None:
        super().__init__(conversation_id, problem or f"there is no conversation {conversation_id!r}")


class ConversationBusy(ConversationError):
    """Another turn of this conversation is running, in this process or in another one."""


def describe_system_error(error: Exception, otherwise: str = "") -> str:
    """Return the operating system's text of an `OSError`. For other errors return `otherwise`, or their own text."""
    return (error.strerror if isinstance(error, OSError) else None) or otherwise or str(error)

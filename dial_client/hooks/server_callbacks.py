"""The requests of servers and their answers: elicitation, sampling, roots; and the log messages of servers.

Texts for users contain no invisible characters (`safe_text`), but may have any number of lines. Names and values that
are sent back are unchanged: escape them before you show them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from dial_client.hooks.call_context import CallContext, Callers
from dial_client.messages.message import Message


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A request for the user to log in with a browser."""

    server: str
    """The server's name in the configuration."""
    url: str = field(repr=False)
    """The http or https URL to open, without characters that a shell would interpret."""
    origin: str
    """The origin of the authorization server (``https://auth.example``); it may differ from the server's origin."""
    scopes: tuple[str, ...] = ()
    """The requested scopes."""
    needs_issuer: bool = False
    """True if the redirect URL must contain the issuer (RFC 9207, ``iss``), so that the code alone is not enough."""
    reason: str = ""
    """Why the user is asked although the program was registered before; show it. Empty for a usual login."""
    owner: str = ""
    """The person who has to log in, for a server with ``perUser``; empty if the program does not name one."""


class Login(Protocol):
    """A callback that lets the user log in. The client does not limit its time: the callback needs its own timeout."""

    redirect_uri: str
    """The redirect URI."""

    async def __call__(self, request: LoginRequest) -> str:
        """Let the user open `LoginRequest.url`, and return the complete redirect URL.

        Raises:
            LoginFailed: The user refused, or took too long.
        """


# What a person of a service has to do, whose logins are not those of `dial-chat`.
PAGE_LOGIN_HINT = "log in on the page of the service, in the list of servers"


def build_login_hint(server: str) -> str:
    """Return a hint with the command that logs in to a server."""
    return f"run `dial-chat servers login {shlex.quote(server)}`"


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A server's request for input from the user: a form to fill in, or a URL to open (MCP, "Elicitation")."""

    server: str
    """The server's name in the configuration; show it, so that the user knows which server asks."""
    message: str
    schema: Mapping[str, Any] | None = None
    """The form: a flat JSON Schema with strings, numbers, booleans and enumerations. None for a URL."""
    url: str | None = None
    """The complete http or https URL; None for a form. Show it to the user in full; only the user may open it."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The form's default values."""
    warnings: tuple[str, ...] = ()
    """Warnings about the request, one line each: a form that asks for a secret, a URL that hides its destination."""
    tools: tuple[str, ...] = ()
    """The server's own names of the tools whose calls may need the answer; empty for a request outside of calls."""
    turn_id: str = ""
    """The id of the turn whose call led to the request; empty if there is none."""
    conversation_id: str = ""
    """The id of the turn's conversation; empty if it has none."""
    owner: str = ""
    """The person that the turn is for (keyword ``owner``); empty if the program does not name one."""


class ElicitationAction(StrEnum):
    """The action of the user in response to an elicitation."""

    ACCEPT = "accept"
    """The user submitted the form, or agreed to open the URL."""
    DECLINE = "decline"
    """The user refused."""
    CANCEL = "cancel"
    """The user dismissed the request without an answer."""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """The answer to an elicitation: ``ElicitationAnswer("accept", {"age": 7})``, ``ElicitationAnswer("decline")``.

    Args:
        action: The action of the user.
        content: The fields of an accepted form. Missing fields get the form's defaults; a field that is None is left
            out. Empty for a URL: its acceptance means that the user agreed to open it.

    Raises:
        ValueError: The action is not ``accept``, ``decline`` or ``cancel``.
    """

    action: ElicitationAction | str
    content: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", ElicitationAction(self.action))


Elicit = Callable[[Elicitation], Awaitable[ElicitationAnswer]]
"""Asks the user. If it raises, the type of the error is logged, and the server's request fails."""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A server's request for a model's reply (MCP, "Sampling"); deprecated in the protocol since 2026-07-28."""

    server: str
    """The server's name in the configuration."""
    messages: tuple[Message, ...]
    max_tokens: int
    """The most tokens of the reply."""
    system: str = ""
    """The server's system prompt; empty if there is none."""
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    """Stop sequences, which end the reply."""
    model_hints: tuple[str, ...] = ()
    """The models that the server prefers, the best first: names or parts of names."""
    tools: tuple[str, ...] = ()
    """The server's own names of the tools whose calls may need the reply; empty for a request outside of calls."""


@dataclass(frozen=True, slots=True)
class SamplingReply:
    """A model's reply to a sampling request."""

    text: str
    model: str = "unknown"
    """The model's name, which is sent to the server."""
    stop_reason: str = "endTurn"
    """``endTurn``, ``stopSequence`` or ``maxTokens``."""


Sample = Callable[[SamplingRequest], Awaitable[SamplingReply | str | None]]
"""Returns a model's reply; None refuses. If it raises, the type of the error is logged, and the request fails."""
# Returns a model's reply for a request during these tool calls; None refuses.
Sampler = Callable[[SamplingRequest, tuple[CallContext, ...]], Awaitable[SamplingReply | None]]


@dataclass(frozen=True, slots=True)
class ServerLog:
    """A log message of a server, without terminal escapes; long messages are shortened."""

    server: str
    """The server's name in the configuration."""
    level: str
    """``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or ``emergency``."""
    text: str
    logger: str = ""
    """The name of the server's logger; empty if there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Return the log message as JSON."""
        return {"server": self.server, "level": self.level, "text": self.text, "logger": self.logger}


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
OnLog = Callable[[ServerLog], None]
"""Receives each log message of a server. Errors that it raises are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The callbacks for servers' requests. A feature without a callback is not offered to any server."""

    elicit: Elicit | None = None
    """Asks the user for input that a server requests (elicitation)."""
    sample: Sample | Literal["model"] | None = None
    """Answers sampling requests. With ``"model"`` the client's own model answers requests during tool calls, each after
    the approver's consent and within the `Limits` for sampling."""
    roots: Iterable[str | os.PathLike[str]] = ()
    """Folders, or file URIs, that servers may use; the ``roots`` of a server's entry replace them."""
    on_log: OnLog | None = None
    """Receives the log messages of the servers."""
    log_level: str | None = None
    """The lowest level of log messages to request from servers; by default ``info`` if `on_log` is set."""
    login: Login | None = None
    """Lets the user log in to a server that requires OAuth. Without this callback the user has to run
    ``dial-chat servers login NAME`` first."""
    apps: bool = False
    """True if the program shows MCP Apps (`DialClient.apps`): servers are told, and `Turn.apps` has a turn's apps."""
    callers: Callers | None = None
    """The clients of a gateway. They answer the requests of servers during their calls themselves, in place of the
    other callbacks. None for a program that makes its calls for itself."""

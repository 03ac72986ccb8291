"""The requests of servers and their answers: elicitation, sampling, roots; and the log messages of servers.

Texts for people have no invisible characters (`safe_text`), but may have any number of lines. Names and values that are
sent back are as the server wrote them: make them safe before they are shown.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from dial_client.audit.call_audit import TurnAudit
from dial_client.callbacks.oauth_callbacks import Login
from dial_client.messages.message import Message
from dial_client.turn_data.call_context import CallContext


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A server's request for input from the user: a form to fill in, or a URL to open (MCP, "Elicitation")."""

    server: str
    """The name in the configuration: show it, so that the user knows which server asks."""
    message: str
    schema: Mapping[str, Any] | None = None
    """The form: a flat JSON Schema, its properties texts, numbers, booleans and choices. None for a URL."""
    url: str | None = None
    """The whole http or https URL; None for a form. Only the user opens it, and sees all of it first."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The form's default values."""
    warnings: tuple[str, ...] = ()
    """Doubts about the request, a line each: a form that asks for a secret, a URL that hides its destination."""
    tools: tuple[str, ...] = ()
    """The server's own names of the tools that may need the answer; empty for a request outside of calls."""


class ElicitationAction(StrEnum):
    """The user's reaction to an elicitation."""

    ACCEPT = "accept"
    DECLINE = "decline"
    """The user refused."""
    CANCEL = "cancel"
    """The user gave no answer."""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """``ElicitationAnswer("accept", {"age": 7})``, ``ElicitationAnswer("decline")``, ``ElicitationAnswer("cancel")``.

    Args:
        action: the user's reaction.
        content: the fields of an accepted form; missing fields get the form's defaults, and None leaves a field out.
            For a URL it is empty: accepting means that the user agreed to open it.

    Raises:
        ValueError: the action is none of accept, decline, cancel.
    """

    action: ElicitationAction | str
    content: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", ElicitationAction(self.action))


Elicit = Callable[[Elicitation], Awaitable[ElicitationAnswer]]
"""Asks the user. If it raises, the log gets the type of the error, and the server's request fails."""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A server's request for a model's reply (MCP, "Sampling"); deprecated in the protocol since 2026-07-28."""

    server: str
    """The name in the configuration."""
    messages: tuple[Message, ...]
    max_tokens: int
    """Tokens of the reply, at most."""
    system: str = ""
    """Instructions, in the server's words; empty for none."""
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    """Sequences that end the reply."""
    model_hints: tuple[str, ...] = ()
    """Names, or parts of names, of models the server would like best, the best one first."""
    tools: tuple[str, ...] = ()
    """The server's own names of the tools that may need the answer; empty for a request outside of calls."""


@dataclass(frozen=True, slots=True)
class SamplingReply:
    """A model's reply for a server."""

    text: str
    model: str = "unknown"
    """The model's name for the server."""
    stop_reason: str = "endTurn"
    """``endTurn``, ``stopSequence`` or ``maxTokens``."""


Sample = Callable[[SamplingRequest], Awaitable[SamplingReply | str | None]]
"""Returns a model's reply; None refuses. If it raises, the log gets the type of the error, and the request fails."""
Sampler = Callable[[SamplingRequest, tuple[CallContext, ...]], Awaitable[SamplingReply | None]]
"""Returns a model's reply on behalf of these calls; None refuses."""


@dataclass(frozen=True, slots=True)
class ServerLog:
    """One log message of a server, without terminal escapes, and cut where it is long."""

    server: str
    """The name in the configuration."""
    level: str
    """``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or ``emergency``."""
    text: str
    logger: str = ""
    """The server's logger; empty for none."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        return {"server": self.server, "level": self.level, "text": self.text, "logger": self.logger}


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
OnLog = Callable[[ServerLog], None]
"""Receives each log message of a server. Its errors are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a client does for servers that ask for it. A feature without a callback is not offered to any server."""

    elicit: Elicit | None = None
    """Asks the user for the input a server wants."""
    sample: Sample | Literal["model"] | None = None
    """Answers sampling requests. With ``"model"`` the client's own model answers them while a call is under way, each
    time with the approver's consent, within the `Limits` for sampling."""
    roots: Iterable[str | os.PathLike[str]] = ()
    """Folders, or file URIs, that servers may use; the ``roots`` of a server's entry replace them."""
    on_log: OnLog | None = None
    """Receives the log messages of the servers."""
    log_level: str | None = None
    """The lowest level of those messages; ``info`` where there is an `on_log`."""
    login: Login | None = None
    """Lets the user log in to a server that requires OAuth; without it such a server is available only after
    ``dial-chat servers login NAME``."""
    apps: bool = False
    """The program shows MCP Apps (`DialClient.apps`): servers are told so, and `Turn.apps` has the apps of a turn."""


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """What servers may ask this host for; a feature that is None, or empty, is not offered to any."""

    elicit: Elicit | None = None
    sample: Sampler | None = None
    roots: tuple[str, ...] = ()
    """Folders, or file URIs, a server is told it may use."""
    on_log: OnLog | None = None
    log_level: str | None = None
    """The lowest level of the messages servers are asked for; None leaves it to them (no messages on 2026-07-28)."""
    login: Login | None = None
    apps: bool = False
    """The client shows MCP Apps."""
    audit: TurnAudit = TurnAudit()  # noqa: RUF009 - it has no state
    """Records the decisions about requests and about tool calls."""

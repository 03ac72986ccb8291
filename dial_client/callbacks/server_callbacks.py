"""What servers ask of the host, and what it answers: a person's word, a model's, folders; and what they log.

What is for people to read has no character that nobody sees (`safe_text`), but may have any number of lines; names and
values that are sent back are as the server wrote them: whoever shows one cleans it first.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from dial_client.audit.call_audit import TurnAudit
from dial_client.call_context import CallContext
from dial_client.callbacks.oauth_callbacks import Login
from dial_client.messages import Message


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question of a server's for the person: a form to fill in, or an address to open (MCP, "Elicitation")."""

    server: str
    """The name in the configuration: show it, so that the person knows who asks."""
    message: str
    schema: Mapping[str, Any] | None = None
    """Of the form: a flat JSON Schema, its properties texts, numbers, booleans and choices. None for an address."""
    url: str | None = None
    """The whole http or https address; None for a form. Nothing opens it but the person, who sees all of it first."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the form says of itself for fields that are left alone."""
    warnings: tuple[str, ...] = ()
    """What is doubtful about it, a line each: a form that asks for a secret, an address that hides where it leads."""
    tools: tuple[str, ...] = ()
    """The server's own names of the tools it may be asking for; empty where it asks of its own accord."""


class ElicitationAction(StrEnum):
    """What a person can do about a question."""

    ACCEPT = "accept"
    DECLINE = "decline"
    """Said no."""
    CANCEL = "cancel"
    """Said nothing."""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """``ElicitationAnswer("accept", {"age": 7})``, ``ElicitationAnswer("decline")``, ``ElicitationAnswer("cancel")``.

    Args:
        action: what the person did.
        content: the fields of an accepted form; the form's defaults stand for those that are missing, and None for a
            field leaves it out. An accepted address has none: it means that the person agreed to open it.

    Raises:
        ValueError: the action is none of accept, decline, cancel.
    """

    action: ElicitationAction | str
    content: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", ElicitationAction(self.action))


Elicit = Callable[[Elicitation], Awaitable[ElicitationAnswer]]
"""Asks the person. What it raises goes to the log by its type only, and makes the server's question fail."""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """What a server wants a model to say (MCP, "Sampling"); deprecated in the protocol since 2026-07-28."""

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
    """The server's own names of the tools it may be asking for; empty where it asks of its own accord."""


@dataclass(frozen=True, slots=True)
class SamplingReply:
    """What a model said to a server."""

    text: str
    model: str = "unknown"
    """Its name, as the server is told."""
    stop_reason: str = "endTurn"
    """``endTurn``, ``stopSequence`` or ``maxTokens``."""


Sample = Callable[[SamplingRequest], Awaitable[SamplingReply | str | None]]
"""Answers for a model; None refuses. What it raises goes to the log by its type only, and makes the request fail."""
Sampler = Callable[[SamplingRequest, tuple[CallContext, ...]], Awaitable[SamplingReply | None]]
"""The same, and knows for which calls."""


@dataclass(frozen=True, slots=True)
class ServerLog:
    """One log message of a server's, cleaned of what a terminal would act on, and cut where it is long."""

    server: str
    """The name in the configuration."""
    level: str
    """``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or ``emergency``."""
    text: str
    logger: str = ""
    """Which part of the server says it; empty where it does not say."""

    def to_dict(self) -> dict[str, Any]:
        """Give JSON types only."""
        return {"server": self.server, "level": self.level, "text": self.text, "logger": self.logger}


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
OnLog = Callable[[ServerLog], None]
"""Is told of each log message of a server. What it raises is thrown away."""


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
    audit: TurnAudit = TurnAudit()  # noqa: RUF009 - it has no state
    """Records the decisions about requests and about tool calls."""

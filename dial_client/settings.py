"""What a configuration says: servers, models, and all of it together. `config` reads it from a file.

No repr shows what may hold a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from dial_client.model import ToolFormat


class Transport(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class Protocol(StrEnum):
    """Which era of MCP is spoken: whichever the server knows, the one with a handshake, or the one without."""

    AUTO = "auto"
    LEGACY = "legacy"
    MODERN = "2026-07-28"


class Wire(StrEnum):
    """Which API a model is asked through: Chat Completions, OpenAI's Responses, or Anthropic's Messages."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server. Whatever may hold a secret is left out of the repr."""

    name: str
    transport: Transport
    command: str | None = None
    """The program, for stdio."""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the program finds in its environment besides the little that every child gets."""
    cwd: str | None = None
    """An absolute folder; None for the host's own."""
    url: str | None = field(default=None, repr=False)
    """An http or https address, for the other transports."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Fit to be sent: tokens for names, printable ASCII without line breaks for values."""
    enabled: bool = True
    """A server that is not enabled keeps its settings as they are written: nothing in them is expanded."""
    auto_approve: tuple[str, ...] = ()
    """Names of tools, or `fnmatch` patterns, that are called without asking."""
    enabled_tools: tuple[str, ...] | None = None
    """The only tools on offer; None for all."""
    disabled_tools: tuple[str, ...] = ()
    startup_timeout: float = 60.0
    """Seconds until it has to be ready."""
    tool_timeout: float | None = None
    """Seconds for one call; None for the limit that holds for all servers."""
    protocol: Protocol = Protocol.AUTO
    required: bool = False
    """Without it there is no conversation."""
    pinned: bool = False
    """Its tools are always on offer, however many there are."""
    trusted: bool = False
    """What it says of its tools (read-only, idempotent) is believed."""
    warnings: tuple[str, ...] = ()
    """What is odd in its entry, a line each."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One profile of ``models``. Whatever may hold a secret is left out of the repr."""

    name: str
    wire: Wire | None = None
    """None for the one its preset is usually asked through, else `Wire.CHAT`."""
    base_url: str | None = field(default=None, repr=False)
    """None for the endpoint the wire usually has."""
    model: str = ""
    """The model's id at the endpoint; the profile's own name where the file gives none."""
    api_key: str | None = field(default=None, repr=False)
    tool_format: ToolFormat | None = None
    """None, in the file also ``auto``: native, or text where the endpoint has no tools."""
    temperature: float | None = None
    max_tokens: int | None = None
    """Tokens of one reply."""
    context_window: int | None = None
    """Tokens of a whole exchange."""
    quirks: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How the endpoint differs from OpenAI's: those of `config.QUIRKS` that the profile sets."""
    preset: str | None = None
    """The endpoint it is, by a name of `providers.presets`; None for what is known of its host."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration."""

    servers: Mapping[str, ServerSettings] = field(default_factory=dict)
    """In the order of the file, those that are not enabled included."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    default_model: str | None = None
    """A key of `models`, or any other name of a model."""
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    """What is odd but does not stop anything, a line each, with its place."""

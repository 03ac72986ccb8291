"""The types of a configuration: servers, models, and the whole. `configuration` reads them from a file.

No repr shows what may hold a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from dial_client.model import ToolFormat
from dial_client.settings.policy_config import Policy


class Transport(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class Protocol(StrEnum):
    """The generation of MCP to use: any that the server supports, the one with a handshake, or the one without."""

    AUTO = "auto"
    LEGACY = "legacy"
    MODERN = "2026-07-28"


class Wire(StrEnum):
    """The API of a model: Chat Completions, OpenAI's Responses, or Anthropic's Messages."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class OAuthGrant(StrEnum):
    """The OAuth grant of a login: by a person (authorization code), or by the host (client credentials)."""

    AUTHORIZATION_CODE = "authorization_code"
    CLIENT_CREDENTIALS = "client_credentials"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The login to a server behind a URL. The repr leaves out whatever may hold a secret."""

    grant: OAuthGrant = OAuthGrant.AUTHORIZATION_CODE
    client_id: str | None = None
    """As the authorization server knows this host; None to register, or for `client_metadata_url`."""
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    """In PEM, in place of the secret (RFC 7523); for `OAuthGrant.CLIENT_CREDENTIALS`."""
    signing_algorithm: str = "RS256"
    client_metadata_url: str | None = None
    """An https address that says who this host is, and is its id where the server takes such (CIMD)."""
    callback_port: int | None = None
    """Where the browser is sent back to on this machine; None for any free port."""
    scopes: tuple[str, ...] | None = None
    """The only rights that are asked for; None for those the server names."""
    issuer: str | None = None
    """The authorization server the id and the secret belong to; None for the one the server names first."""
    trusted_origins: tuple[str, ...] = ()
    """Origins (``https://auth.example``) the login may use though they are not the issuer's, or are not public."""
    auth: Any = field(default=None, repr=False)
    """What signs all requests in place of all that: an ``httpx2.Auth``, in configurations made in Python."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of one server. The repr leaves out whatever may hold a secret."""

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
    """Valid HTTP headers: names are tokens, values printable ASCII without line breaks."""
    oauth: OAuthSettings | None = None
    """How to log in; None for the usual login, where the server requires one and the headers have no token."""
    enabled: bool = True
    """No variable is expanded in the settings of a server that is not enabled."""
    auto_approve: tuple[str, ...] = ()
    """Names, or `fnmatch` patterns, of tools that run without approval."""
    enabled_tools: tuple[str, ...] | None = None
    """The only tools on offer; None for all."""
    disabled_tools: tuple[str, ...] = ()
    startup_timeout: float = 60.0
    """Seconds until the server must be ready."""
    tool_timeout: float | None = None
    """Seconds for one call; None for the limit of all servers."""
    protocol: Protocol = Protocol.AUTO
    required: bool = False
    """If this server does not start, the client does not open."""
    lazy: bool = False
    """The first call of one of its tools starts the server, if the tools are cached from an earlier run."""
    roots: tuple[str, ...] | None = None
    """The roots of the server: absolute folders or file URIs; None for the roots of all servers."""
    instructions: bool = True
    """The instructions of the server are given to the model."""
    pinned: bool = False
    """The tools of the server are always offered, however many tools there are."""
    resources: Literal["user", "tools"] = "user"
    """Who may read its resources: the user only, by a reference, or also the model, by two tools."""
    trusted: bool = False
    """The annotations of its tools (read-only, idempotent) are trusted."""
    untrusted: tuple[str, ...] = ()
    """Globs of its tools whose results hold text of third parties: web pages, mail, issues."""
    warnings: tuple[str, ...] = ()
    """Warnings about the entry, one line each."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One profile of ``models``. The repr leaves out whatever may hold a secret."""

    name: str
    wire: Wire | None = None
    """None for the usual API of its preset, else `Wire.CHAT`."""
    base_url: str | None = field(default=None, repr=False)
    """None for the usual endpoint of the API."""
    model: str = ""
    """The model's id at the endpoint; the profile's own name where the file gives none."""
    api_key: str | None = field(default=None, repr=False)
    tool_format: ToolFormat | None = None
    """None, in the file also ``auto``: native, or text where the endpoint has no tools."""
    temperature: float | None = None
    max_tokens: int | None = None
    """Tokens of one reply."""
    context_window: int | None = None
    """Tokens of the request and the reply together."""
    quirks: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How the endpoint differs from OpenAI's: the flags of `model_config.QUIRKS` that the profile sets."""
    preset: str | None = None
    """The name of a preset in `providers.presets`; None for the preset of the host."""
    fallback_models: tuple[str, ...] | None = None
    """Names of models that are asked, in this order, where this one cannot answer; None where the entry has no list."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One entry of ``profiles``: a choice of model, servers, instructions and rules."""

    name: str
    model: str | None = None
    """In place of ``defaultModel``."""
    servers: tuple[str, ...] | None = None
    """Names of servers, or `fnmatch` patterns; other servers are not used. None for all."""
    system: str | None = None
    """Instructions for the model."""
    policy: Policy = ()
    """Rules that are tried before those of the file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration."""

    servers: Mapping[str, ServerSettings] = field(default_factory=dict)
    """In the order of the file, including disabled servers."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    default_model: str | None = None
    """A key of `models`, or any other name of a model."""
    path: Path | None = None
    """The file; of several, the one whose values count."""
    warnings: tuple[str, ...] = ()
    """Warnings, one line each, with the place in the file."""
    policy: Policy = ()
    """The rules for calls, in the order of the file."""
    system: str | None = None
    """The instructions of the profile in use."""
    profiles: tuple[str, ...] = ()
    """The names of the profiles."""
    base_paths: tuple[Path, ...] = ()
    """Further files; a value of theirs counts where no file before has it."""
    startup_patience: float | None = None
    """Seconds a turn waits for servers that are starting; None for the default."""
    fallback_models: tuple[str, ...] | None = None
    """Names of models to ask where `default_model` cannot answer, unless its own entry has a list; None for no list."""

    def find_fallback_models(self, model: str | None) -> tuple[str, ...]:
        """Return the names of the models to ask where a model cannot answer.

        Args:
            model: a key of `models`, or any other name of a model; None for `default_model`.
        """
        name = model or self.default_model
        entry = self.models.get(name or "")
        if entry is not None and entry.fallback_models is not None:
            return entry.fallback_models
        return (self.fallback_models or ()) if name == self.default_model else ()

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files in use, beginning with the one whose values count."""
        return (*(() if self.path is None else (self.path,)), *self.base_paths)

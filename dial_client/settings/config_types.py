"""The types of a configuration: servers, models, profiles, and the whole. `configuration` reads them from a file.

The reprs leave out all values that may be secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from dial_client.messages.model import ModelSettings, ToolFormat
from dial_client.settings.config_values import (
    Node,
    build_choice_reader,
    read_command,
    read_document_url,
    read_env,
    read_headers,
    read_line,
    read_port,
    read_roots,
    read_url,
    read_urls,
    read_words,
)
from dial_client.settings.policy_config import Policy, matches_name, read_background_after, read_untrusted


class Transport(StrEnum):
    """The transport over which a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class Protocol(StrEnum):
    """The generation of MCP to use: any that the server supports, only with handshake, or only without handshake."""

    AUTO = "auto"
    LEGACY = "legacy"
    MODERN = "2026-07-28"


class Api(StrEnum):
    """The API of a model: Chat Completions, OpenAI's Responses, or Anthropic's Messages."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class OAuthGrant(StrEnum):
    """The OAuth grant of a login.

    It is a login by the user (authorization code), by this program (client credentials), or by the user's login at the
    identity provider of a company (JWT bearer; MCP, "Enterprise-Managed Authorization").
    """

    AUTHORIZATION_CODE = "authorization_code"
    CLIENT_CREDENTIALS = "client_credentials"
    JWT_BEARER = "jwt-bearer"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The OAuth settings of a server behind a URL. The repr leaves out all values that may be secrets."""

    grant: OAuthGrant = OAuthGrant.AUTHORIZATION_CODE
    client_id: str | None = None
    """The client id at the authorization server; None to register dynamically, or to use `client_metadata_url`."""
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    """A private key in PEM instead of the secret (RFC 7523), for `OAuthGrant.CLIENT_CREDENTIALS`."""
    signing_algorithm: str = "RS256"
    """The algorithm of the signature with `private_key`."""
    client_metadata_url: Annotated[str, read_document_url] | None = None
    """An https URL of the client's metadata, used as client id by servers that support this (CIMD)."""
    callback_port: Annotated[int, read_port] | None = None
    """The port of the redirect URI on this machine; None for any free port."""
    callback_host: Literal["127.0.0.1", "localhost"] = "127.0.0.1"
    """The host of the redirect URI on this machine; some authorization servers accept only ``localhost``."""
    redirect_uri: Annotated[str, read_url] | None = None
    """The whole redirect URI; None for one with `callback_host` and `callback_port`, or that of the program's login."""
    scopes: Annotated[tuple[str, ...], read_words] | None = None
    """The only scopes to request; None for the scopes that the server names."""
    issuer: Annotated[str, read_url] | None = None
    """The authorization server of the client id and the secret; None for the first one that the server names."""
    trusted_origins: Annotated[tuple[str, ...], read_urls] = ()
    """Origins (``https://auth.example``) that the login may use although they are not public, or not the issuer's."""
    identity_provider: Annotated[str, read_url] | None = None
    """The token endpoint of the company's identity provider, which exchanges the ID token, for `JWT_BEARER`."""
    identity_file: str | None = None
    """The file with the user's ID token, which is read for each exchange; None for that of the person's login."""
    identity_client_id: str | None = None
    """The client id at the identity provider; None for `client_id`."""
    identity_client_secret: str | None = field(default=None, repr=False)
    allow_unannounced_pkce: bool = False
    """True to log in at an authorization server that checks PKCE (S256), but does not announce it."""
    auth: Any = field(default=None, repr=False)
    """An ``httpx2.Auth`` that authorizes all requests instead, for configurations made in Python."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of one server. The repr leaves out all values that may be secrets."""

    name: str
    transport: Transport
    command: Annotated[str, read_command] | None = None
    """The program to run, for stdio."""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Annotated[Mapping[str, str], read_env] = field(default_factory=dict, repr=False)
    """Environment variables of the program, in addition to the few inherited ones."""
    cwd: str | None = None
    """The absolute working folder of the program; None for the current folder of this process."""
    url: Annotated[str, read_url] | None = field(default=None, repr=False)
    """An http or https URL, for the transports other than stdio."""
    headers: Annotated[Mapping[str, str], read_headers] = field(default_factory=dict, repr=False)
    """Valid HTTP headers: names are tokens, values printable ASCII without line breaks."""
    oauth: OAuthSettings | None = None
    """The OAuth settings; None for the default settings, but no login if `headers` contain ``Authorization``."""
    enabled: bool = True
    """False for a server that is not used. No variables are expanded in its settings."""
    auto_approve: tuple[str, ...] = ()
    """Names, or `fnmatch` patterns, of tools that run without approval."""
    enabled_tools: tuple[str, ...] | None = None
    """Names, or `fnmatch` patterns, of the only tools on offer; None for all tools."""
    disabled_tools: tuple[str, ...] = ()
    """Names, or `fnmatch` patterns, of tools that are not offered."""
    startup_timeout: float = 60.0
    """Seconds within which the server must be ready."""
    tool_timeout: float | None = None
    """Timeout in seconds of a call; None for the timeout of the client's limits."""
    background_after: Annotated[Mapping[str, float], read_background_after] = field(default_factory=dict)
    """Seconds after which a call goes on in the background, by globs of tools; the first that matches holds."""
    protocol: Protocol = Protocol.AUTO
    required: bool = False
    """True if the client must not open when this server does not start."""
    lazy: bool = False
    """True to start the server with the first call of one of its tools, if its tools are cached from an earlier run."""
    per_client: bool = False
    """True to give each client of a gateway a session of its own with the server, started by its first call."""
    per_user: bool = False
    """True to give each person a session of their own with the server, also without ``${user.NAME}`` in the entry."""
    roots: Annotated[tuple[str, ...], read_roots] | None = None
    """The roots of the server: absolute folders or file URIs; None for the roots of the client."""
    instructions: bool = True
    """True to give the instructions of the server to the model."""
    skills: bool = True
    """True to offer the skills of the server to the model, which reads them by a tool."""
    pinned: bool = False
    """True to offer the server's tools in every turn, even if there are too many tools to offer all."""
    resources: Literal["user", "tools"] = "user"
    """Who may read the server's resources: only the user, by a reference, or also the model, with two tools."""
    trusted: bool = False
    """True to trust the annotations of the server's tools (read-only, idempotent)."""
    untrusted: Annotated[tuple[str, ...], read_untrusted] = ()
    """Globs of tools whose results may contain text of third parties: web pages, mail, issues."""
    warnings: tuple[str, ...] = ()
    """Warnings about the entry, one line each."""
    user_secrets: tuple[str, ...] = field(default=(), repr=False)
    """What a person has filled in for ``${user.NAME}``: secrets, whatever they look like."""

    def find_background_after(self, tool: str) -> float | None:
        """Return the seconds after which a call of a tool goes to the background; None for those of the limits."""
        values = self.background_after.items()
        return next((seconds for glob, seconds in values if matches_name((glob,), tool)), None)


_read_tool_format = build_choice_reader({**{kind: kind for kind in ToolFormat}, "auto": "auto"})


# How a terminal tells the user that the program waits for them: a bell, a desktop notification by OSC 9 or OSC 777.
Notification = Literal["bell", "osc9", "osc777", "none"]
read_notification = build_choice_reader({word: word for word in get_args(Notification)})


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """One profile of ``models``. The repr leaves out all values that may be secrets."""

    name: str
    api: Api | None = None
    """The model API; None for the API of the preset, or `Api.CHAT` without a preset."""
    base_url: Annotated[str, read_url] | None = field(default=None, repr=False)
    """The URL of the endpoint; None for the usual endpoint of the API."""
    model: str = ""
    """The model's id at the endpoint; by default the name of the profile."""
    api_key: Annotated[str, read_line] | None = field(default=None, repr=False)
    tool_format: Annotated[ToolFormat | Literal["auto"] | None, _read_tool_format] = None
    """The tool format; None for native calls, or text if the endpoint has no tool calls; ``auto`` for code mode in
    place of native calls where the model is large (`EndpointProfile.writes_code`)."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    """The settings for requests that have none of their own; in the file, keys of the profile itself."""
    context_window: int | None = None
    """Maximum tokens of request and reply together."""
    quirks: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Flags of `endpoint_profile.FLAGS` that the profile sets: how the endpoint differs from OpenAI's API."""
    preset: str | None = None
    """The name of a preset in `providers.presets`; None for the preset that belongs to the URL's host."""
    fallback_models: tuple[str, ...] | None = None
    """Names of the models to use, in this order, if this one cannot answer; None if the entry has no list."""


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """A folder with a ``SKILL.md``, or with several such folders."""

    path: Path
    digests: Mapping[str, str] | None = None
    """For a skill that the user trusts by its content: the SHA-256 of each file, by its path in the folder with ``/``.
    No other file of the folder is used, and none that has changed. None for a skill without such trust."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One entry of ``profiles``: a choice of model, servers, instructions, rules and limits."""

    name: str
    model: str | None = None
    """The model to use instead of ``defaultModel``; None to use ``defaultModel``."""
    servers: tuple[str, ...] | None = None
    """Names, or `fnmatch` patterns, of the servers to use; None for all servers."""
    system: str | None = None
    """Instructions for the model."""
    policy: Policy = ()
    """Rules that are tried before the rules of the file."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits of a turn that replace those of the file, by the names of the fields of `Limits`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration."""

    servers: Mapping[str, ServerSettings] = field(default_factory=dict)
    """All servers in the order of the file, including disabled servers."""
    models: Mapping[str, ModelProfile] = field(default_factory=dict)
    default_model: str | None = None
    """A key of `models`, or any other name of a model."""
    path: Path | None = None
    """The path of the file; of several files, the one with the highest precedence."""
    warnings: tuple[str, ...] = ()
    """Warnings, one line each, with the place in the file."""
    policy: Policy = ()
    """The rules for tool calls, in the order they are tried."""
    system: str | None = None
    """The instructions of the profile in use."""
    profiles: tuple[str, ...] = ()
    """The names of the profiles."""
    base_paths: tuple[Path, ...] = ()
    """The paths of further files, in descending precedence."""
    startup_patience: float | None = None
    """Seconds a turn waits for servers that are starting; None for the default."""
    notify: Notification | None = None
    """How a terminal tells the user that the program waits for them; None for the default."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """The limits of a turn that the configuration sets, by the names of the fields of `Limits`."""
    fallback_models: tuple[str, ...] | None = None
    """Names of models to use if `default_model` cannot answer, unless its own entry has a list; None for no list."""
    skills: tuple[Path, ...] = ()
    """Absolute paths of folders with skills: each has a ``SKILL.md``, or folders with one."""
    agents: tuple[Path, ...] = ()
    """Absolute paths of the files of agents, or of folders with such files."""

    def find_fallback_models(self, model: str | None) -> tuple[str, ...]:
        """Return the names of the models to use if a model cannot answer.

        Args:
            model: A key of `models`, or any other name of a model; None for `default_model`.
        """
        name = model or self.default_model
        entry = self.models.get(name or "")
        if entry is not None and entry.fallback_models is not None:
            return entry.fallback_models
        return (self.fallback_models or ()) if name == self.default_model else ()

    @property
    def sources(self) -> tuple[Path, ...]:
        """The paths of all files in use, in descending precedence."""
        return (*(() if self.path is None else (self.path,)), *self.base_paths)


# The members of an object: known keys under their canonical names, unknown keys unchanged.
OutlineEntry = Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Outline:
    """The entries of a configuration, in the order of the file."""

    servers: Mapping[str, OutlineEntry]
    models: Mapping[str, OutlineEntry]
    default_model: Node | None = None
    unknown: OutlineEntry = field(default_factory=dict)
    """The top-level members that are not in the other fields."""


def is_enabled(entry: OutlineEntry) -> bool:
    """Return True if the server of an entry is enabled."""
    on, off = (entry[key].value if key in entry else None for key in ("enabled", "disabled"))
    return on is not False and off is not True


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One difference between the configuration that the user trusted and that of now."""

    kind: Literal["server", "model", "key"]
    """The kind of entry: a server, a model, or a key at the top level."""
    name: str
    """The name of the server, of the model or of the key."""
    key: str = ""
    """The key of the entry; empty if the entry as a whole is new or gone, and for a key at the top level."""
    before: Any = field(default=None, repr=False)
    """The old value, which may be a secret; None if there was none."""
    after: Any = field(default=None, repr=False)
    """The new value, which may be a secret; None if there is none."""
    is_harmless: bool = False
    """True if the change needs no question."""

    @property
    def place(self) -> str:
        """The place of the change in a few words: ``server git: args``."""
        head = self.name if self.kind == "key" else f"{self.kind} {self.name}"
        if self.key:
            return f"{head}: {self.key}"
        return f"{head}{' is new' if self.before is None else ' is gone' if self.after is None else ''}"

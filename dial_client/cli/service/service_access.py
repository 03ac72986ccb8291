"""Who may use ``dial-chat serve``, by its options: the one token, tokens of persons, an OpenID provider, or a proxy."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from dial_client.cli.options import ServeOptions
from dial_client.messages.errors import ConfigError
from dial_client.serve.people.authentication import (
    MCP,
    SCOPES,
    Authenticator,
    FirstOf,
    GroupScopes,
    PersonalTokens,
    ProxyUsers,
    TokenAuthenticator,
)
from dial_client.serve.people.identity_provider import IdentityProvider, OidcTokens
from dial_client.serve.people.oidc_login import OidcLogin
from dial_client.serve.security import check_token, is_loopback
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore

TOKEN_VARIABLE = "DIAL_SERVE_TOKEN"  # noqa: S105 - its name
# The secret of this service at its OpenID provider. There is no option for it: lists of processes would show it.
SECRET_VARIABLE = "DIAL_OIDC_CLIENT_SECRET"  # noqa: S105 - its name
# The values of ``--auth``: one token for one person; tokens in the database; tokens of an OpenID provider; a header.
ONE_TOKEN, PERSONAL_TOKENS, OIDC, PROXY = KINDS = ("token", "tokens", "oidc", "proxy")


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Who may use the service."""

    token: str | None
    """The token of the one person, or of the operator; None if there is none."""
    token_source: str
    """Where the token comes from; empty for a generated token, or for no token."""
    authenticator: Authenticator | None = None
    """Knows the persons of the service; None for the one token."""
    proxy_headers: frozenset[str] = frozenset()
    """The headers that only proxies may send."""
    login: OidcLogin | None = None
    """Logs persons in on the page; None if the page asks for a token."""


def list_host_names(serve_options: ServeOptions) -> tuple[str, ...]:
    """Return the names of ``--allow-host``, and that of ``--public-url``: clients send it as they reach the service.

    Raises:
        ConfigError: The URL has no host.
    """
    url = serve_options.public_url
    try:
        name = urlsplit(url).hostname
    except ValueError:  # such as an unfinished IPv6 address
        name = None
    if url and not name:
        raise ConfigError(f"--public-url: {url!r} has no host", hint="such as https://chat.example.com")
    return (*serve_options.allow_host, *([name] if name else []))


def choose_access(serve_options: ServeOptions, store: SQLStore | MemoryStore) -> ServiceAccess:
    """Return who may use a service with these options.

    Raises:
        ConfigError: The token is invalid or too short, or the options are incomplete or contradict each other.
    """
    kind = serve_options.auth
    if kind not in KINDS:
        raise ConfigError(f"--auth: there is no choice {kind!r}", f"one of {', '.join(KINDS)}")
    _refuse_options_of_others(serve_options)
    token, source = _choose_token(serve_options)
    if kind == ONE_TOKEN:
        return ServiceAccess(token, source)
    if serve_options.no_token:
        raise ConfigError(f"--no-token cannot be combined with --auth {kind}")
    known: list[Authenticator] = [TokenAuthenticator(token)] if token is not None else []
    if isinstance(store, SQLStore):
        known.append(PersonalTokens(store.tokens))
    elif kind == PERSONAL_TOKENS:
        raise ConfigError(f"--auth {PERSONAL_TOKENS} cannot be combined with --no-save", "tokens are in the database")
    if kind == OIDC:
        tokens, login = _build_oidc(serve_options)
        return ServiceAccess(token, source, FirstOf(*known, tokens), login=login)
    if kind == PROXY:
        if not serve_options.proxy:
            raise ConfigError("--auth proxy needs the address of the proxy", hint="--proxy 10.0.0.2")
        users = ProxyUsers(
            _read_group_scopes(serve_options.group_scopes), serve_options.user_header, serve_options.groups_header
        )
        # A person whom the proxy names is that person, also if a program sends a token of another one. Who sends
        # neither is told of the proxy.
        return ServiceAccess(token, source, FirstOf(users, *known, users), users.header_names)
    return ServiceAccess(token, source, FirstOf(*known))


def _refuse_options_of_others(serve_options: ServeOptions) -> None:
    """Refuse options that would have no effect: whoever sets them believes that somebody is checked.

    Raises:
        ConfigError: An option belongs to another choice of ``--auth``.
    """
    of_oidc = (serve_options.oidc_issuer, serve_options.oidc_client_id, serve_options.oidc_audience)
    if any(of_oidc) and serve_options.auth != OIDC:
        raise ConfigError(f"--oidc-issuer, --oidc-client-id and --oidc-audience are for --auth {OIDC}")
    if serve_options.group_scopes and serve_options.auth not in (OIDC, PROXY):
        raise ConfigError(f"--group-scopes is for --auth {OIDC} and --auth {PROXY}")


def _build_oidc(serve_options: ServeOptions) -> tuple[OidcTokens, OidcLogin | None]:
    """Return what checks the tokens of the OpenID provider, and the login of the page if it has a client id."""
    if not serve_options.oidc_issuer:
        raise ConfigError("--auth oidc needs the OpenID provider", hint="--oidc-issuer https://login.example.com/realm")
    provider, client_id = IdentityProvider(serve_options.oidc_issuer), serve_options.oidc_client_id
    tokens = OidcTokens(
        provider,
        [*([client_id] if client_id else []), *serve_options.oidc_audience],
        _read_group_scopes(serve_options.group_scopes),
        serve_options.groups_claim,
        f"{serve_options.public_url.rstrip('/')}{MCP}" if serve_options.public_url else "",
    )
    secret = os.environ.get(SECRET_VARIABLE, "")
    login = OidcLogin(provider, client_id, serve_options.public_url, secret) if client_id else None
    return tokens, login


def _read_group_scopes(values: Sequence[str]) -> GroupScopes:
    """Return what groups may do.

    Raises:
        ConfigError: A value has not the form ``GROUP=SCOPE,SCOPE``, or there is no such scope.
    """
    by_group: dict[str, list[str]] = {}
    for value in values:
        group, separator, names = value.rpartition("=")
        scopes = [name.strip() for name in names.split(",")]
        if not group or not separator:
            raise ConfigError(f"--group-scopes: {value!r} has not the form GROUP=SCOPE,SCOPE")
        if unknown := [name for name in scopes if name not in SCOPES]:
            raise ConfigError(f"--group-scopes: there is no scope {unknown[0]!r}", f"one of {', '.join(SCOPES)}")
        by_group.setdefault(group, []).extend(scopes)
    return GroupScopes(by_group) if by_group else GroupScopes()


def _choose_token(serve_options: ServeOptions) -> tuple[str | None, str]:
    """Return the token of clients and its source. The source is empty for a generated token, or for no token.

    If other tokens are accepted too, it is the token of the operator, if there is one.

    Raises:
        ConfigError: The token is invalid or too short, or the options contradict each other.
    """
    if serve_options.no_token:
        if serve_options.allow_admin:
            raise ConfigError("--allow-admin cannot be combined with --no-token: every program here could add a server")
        if serve_options.token:
            raise ConfigError("--token cannot be combined with --no-token")
        if not is_loopback(serve_options.host):
            raise ConfigError(f"--no-token is for loopback only, not for {serve_options.host}")
        return None, ""
    if serve_options.token == "":
        raise ConfigError("--token is empty", "leave it out for a generated one")
    token_of_environment = os.environ.get(TOKEN_VARIABLE)
    token = serve_options.token or token_of_environment
    if not token and serve_options.auth != ONE_TOKEN:
        return None, ""
    token = token or secrets.token_urlsafe(32)
    check_token(token, serve_options.host)
    source = "given with --token" if serve_options.token else f"in {TOKEN_VARIABLE}" if token_of_environment else ""
    return token, source

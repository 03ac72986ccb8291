"""The command ``tokens``: the tokens of persons for ``dial-chat serve --auth tokens``, whether it runs or not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from dial_client.cli.option_checks import parse_lifetime
from dial_client.cli.options import Options
from dial_client.cli.service.serve_command import open_database
from dial_client.cli.service.service_access import PERSONAL_TOKENS
from dial_client.cli.streams.error_stream import warn
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.serve.people.authentication import ADMIN, SCOPES
from dial_client.stores.access_tokens import AccessToken
from dial_client.stores.sql_store import SQLStore


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a command line says about a new token."""

    owner: str | None
    """The person whom the token stands for."""
    scopes: tuple[str, ...]
    """What the token may be used for; empty for everything but `ADMIN`."""
    lifetime: str
    """How long it is valid, such as ``90d``; empty for ever."""
    rate: int
    """Maximum number of requests in a minute; 0 for no limit."""


async def manage_tokens(action: str, name: str | None, new: NewToken, options: Options, *, as_json: bool) -> None:
    """Create, list or revoke tokens.

    Args:
        action: ``create``, ``list`` or ``revoke``.
        name: The name of a new token; for ``revoke`` the id of a token.
        new: What else is said of a new token.
        options: Name the store.
        as_json: Whether the output is JSON.

    Raises:
        ConfigError: The action is unknown, its name is missing, or an option is wrong.
    """
    async with open_database(options) as store:
        match action, name:
            case "list", None:
                _print_tokens(await store.tokens.list_all(), as_json=as_json)
            case "create", str():
                await _create_token(store, name, new, as_json=as_json)
            case "revoke", str():
                if not await store.tokens.revoke(name):
                    raise ConfigError(f"there is no token {name!r}", hint="`dial-chat tokens` lists the ids")
                warn(f"the token {name} is revoked; running services refuse it within five seconds")
            case "create" | "revoke", _:
                raise ConfigError(
                    f"missing {'name' if action == 'create' else 'id'}",
                    hint="dial-chat tokens [list | create NAME --owner PERSON | revoke ID]",
                )
            case "list", _:
                raise ConfigError(f"list takes no name, and {name!r} is given")
            case _:
                raise ConfigError(f"unknown action {action!r}", hint="one of list, create, revoke")


async def _create_token(store: SQLStore, name: str, new: NewToken, *, as_json: bool) -> None:
    if new.owner is None:
        raise ConfigError("a token has an owner", hint="--owner PERSON, for example an e-mail address")
    scopes = {scope for value in new.scopes for scope in value.split(",")}
    if unknown := sorted(scopes - {*SCOPES}):
        raise ConfigError(f"--scope: there is no scope {unknown[0]!r}", hint=f"one of {', '.join(SCOPES)}")
    text, token = await store.tokens.create(
        name,
        new.owner,
        scopes or {*SCOPES} - {ADMIN},
        lifetime=parse_lifetime(new.lifetime, "--expires"),
        requests_per_minute=new.rate,
    )
    if as_json:
        print(json.dumps(_token_to_dict(token) | {"token": text}, indent=2))
        return
    print(text)
    warn(f"the token {token.id} of {escape_line(token.owner)} is shown only now: {_describe_use(token)}")
    warn(f"`dial-chat serve --auth {PERSONAL_TOKENS}` accepts it; `dial-chat tokens revoke {token.id}` revokes it")


def _print_tokens(tokens: list[AccessToken], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_token_to_dict(token) for token in tokens], indent=2))
        return
    if not tokens:
        warn("there are no tokens; `dial-chat tokens create NAME --owner PERSON` creates one")
        return
    owners = max(len(escape_line(token.owner)) for token in tokens)
    names = max(len(escape_line(token.name)) for token in tokens)
    for token in tokens:
        print(
            f"{token.id}  {escape_line(token.owner):<{owners}}  {escape_line(token.name):<{names}}  "
            f"{_describe_use(token)}"
        )


def _describe_use(token: AccessToken) -> str:
    parts = [" ".join(scope for scope in SCOPES if scope in token.scopes)]
    if token.expires_at is not None:
        parts.append(f"{'expired' if token.has_expired else 'until'} {token.expires_at:%Y-%m-%d %H:%M} UTC")
    if token.requests_per_minute:
        parts.append(f"{token.requests_per_minute} requests a minute")
    return ", ".join(parts)


def _token_to_dict(token: AccessToken) -> dict[str, Any]:
    times = {"created_at": token.created_at.isoformat(), "scopes": sorted(token.scopes)}
    return asdict(token) | times | {"expires_at": token.expires_at.isoformat() if token.expires_at else None}

"""The commands of a service's operator: ``tokens``, ``credentials`` and ``db``.

They work on the database of conversations, whether the service runs or not: on the tokens of persons for ``--auth
tokens``, on what persons have given for their servers, and on the schema and the data of a person.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from anyio import to_thread

from dial_client.cli.option_checks import parse_lifetime
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.service.serve_command import build_store
from dial_client.cli.service.service_access import PERSONAL_TOKENS
from dial_client.cli.streams import tty
from dial_client.cli.streams.error_stream import warn
from dial_client.client.client_setup import open_grants
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.serve.people.authentication import ADMIN, SCOPES
from dial_client.serve.people.stored_credentials import StoredCredentials, open_box
from dial_client.stores.access_tokens import AccessToken
from dial_client.stores.owner_credentials import KEY_VARIABLE, SecretBox
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


@asynccontextmanager
async def _open_store(options: Options) -> AsyncIterator[SQLStore]:
    store = build_store(options, is_durable=False)
    assert isinstance(store, SQLStore)  # these commands have no option for a store in memory
    async with aclosing(store):
        yield store


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
    async with _open_store(options) as store:
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


async def manage_database(action: str, owner: str | None, options: Options, *, is_agreed: bool) -> int:
    """Run one action, and return the exit code.

    Args:
        action: ``check``, ``migrate``, ``export`` or ``erase``.
        owner: The person whose data is exported or erased.
        options: Name the store.
        is_agreed: Whether the person may be erased without a question.

    Raises:
        ConfigError: The action is unknown, the person is missing, or the database cannot be used.
    """
    async with _open_store(options) as store:
        match action, owner:
            case "check", None:
                return await _check(store)
            case "migrate", None:
                before, known = await store.find_versions()
                await store.open()
                print(f"the schema is {known}" if before == known else f"the schema was {before}, and is {known} now")
            case "export", str():
                async for row in store.owner_data.export(owner):
                    sys.stdout.write(f"{json.dumps(row)}\n")
            case "erase", str():
                await _erase(store, owner, is_agreed=is_agreed)
            case "export" | "erase", _:
                raise ConfigError(f"{action} needs the name of a person", hint=f"dial-chat db {action} PERSON")
            case "check" | "migrate", _:
                raise ConfigError(f"{action} takes no name, and {owner!r} is given")
            case _:
                raise ConfigError(f"unknown action {action!r}", hint="one of check, migrate, export, erase")
    return ExitCode.ANSWERED


async def _check(store: SQLStore) -> int:
    found, known = await store.find_versions()
    if not found:
        print("there is no database yet: it is created at its first use")
        return ExitCode.ANSWERED
    problems = await store.find_damage()
    if found > known:
        problems.append(f"the schema is {found}, of a newer version of this program, which knows {known}")
    for problem in problems:
        print(problem)
    if not problems:
        ready = "" if found == known else f"; `dial-chat db migrate` makes it {known}, as the next use does"
        print(f"the database is whole, and its schema is {found}{ready}")
    return ExitCode.UNEXPECTED if problems else ExitCode.ANSWERED


async def _erase(store: SQLStore, owner: str, *, is_agreed: bool) -> None:
    shown = escape_line(owner)
    if not is_agreed:
        raise ConfigError(f"everything of {shown} would be gone", hint=f"dial-chat db erase {shown} --yes")
    counts = await store.owner_data.erase(owner)
    if (grants := open_grants(True)) is not None:  # noqa: FBT003 - the user's own
        own = grants.select_owner(owner)
        counts["grants"] = len(own.revoke({grant.id for grant in own.list_grants()}))
    print(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in sorted(counts.items())))
    warn(f"the audit log still names {shown}: its lines are a chain; see `dial-chat help deploy`")


_CREDENTIALS_USAGE = "dial-chat credentials [list | set SERVER NAME | revoke SERVER [NAME] | key] [--owner PERSON]"


async def manage_credentials(
    action: str, server: str | None, name: str | None, owner: str, options: Options, *, as_json: bool
) -> None:
    """List, set or revoke credentials, or print a new key.

    Args:
        action: ``list``, ``set``, ``revoke`` or ``key``.
        server: The server's name in the configuration.
        name: The name in ``${user.NAME}``; None for all of a server.
        owner: The person; empty for the one person of a service without persons.
        options: Name the store.
        as_json: Whether the output is JSON.

    Raises:
        ConfigError: The action is unknown, an argument is missing, or there is no key, or nothing to revoke.
    """
    if action == "key":
        print(SecretBox.generate_key())
        warn(f"set {KEY_VARIABLE} to this key for the service; without it nobody can read what is stored")
        return
    async with _open_store(options) as store:
        stored = StoredCredentials(store.credentials, await open_box())
        match action, server, name:
            case "list", None, None:
                await _print_credentials(stored, owner, as_json=as_json)
            case "set", str(), str():
                value = await _read_value(f"{server}/{name}")
                await stored.put(owner, server, name, value)
                warn("stored; a running service uses it from the next use of the server on")
            case "revoke", str(), _:
                if not await stored.forget(owner, server, name):
                    raise ConfigError("there is no such credential", hint="dial-chat credentials list")
                warn("revoked; a running service closes the session at the next use of the server")
            case "list" | "set" | "revoke", _, _:
                raise ConfigError(f"{action} has too many arguments, or too few", hint=_CREDENTIALS_USAGE)
            case _:
                raise ConfigError(f"unknown action {action!r}", hint=_CREDENTIALS_USAGE)


async def _read_value(shown: str) -> str:
    """Return a value from standard input: arguments of programs are shown to everybody on the machine."""
    if sys.stdin.isatty():
        return await tty.ask_for_line(f"{escape_line(shown)}: ", hidden=True)
    piped: str = await to_thread.run_sync(sys.stdin.read)
    return piped.strip()


async def _print_credentials(stored: StoredCredentials, owner: str, *, as_json: bool) -> None:
    found = await stored.list(owner)
    if as_json:
        rows = [{"server": row.server, "name": row.name, "set_at": row.changed_at.isoformat()} for row in found]
        print(json.dumps(rows, indent=2))
    for known in found if not as_json else ():
        what = escape_line(known.name) if known.name else "login"
        print(f"{escape_line(known.server)}  {what}  {known.changed_at:%Y-%m-%d %H:%M} UTC")
    if not found and not as_json:
        if owner:
            warn(f"nothing is stored for {escape_line(owner)}; `dial-chat credentials set SERVER NAME` stores a value")
        else:
            warn("nothing is stored for a service without persons; --owner PERSON names a person")

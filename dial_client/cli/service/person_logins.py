"""The logins of a person to servers, as the database of a service has them: revoked when they are deleted."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from dial_client.cli.load_settings import read_settings
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import warn
from dial_client.messages.errors import ConfigError
from dial_client.serve.people.stored_credentials import StoredCredentials, open_box
from dial_client.servers.oauth.token_revocation import describe_valid_tokens, revoke_tokens
from dial_client.servers.oauth.token_storage import TokenRecord, TokenStorage, parse_record
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.user_variables import fill_in, find_user_variables
from dial_client.stores.owner_credentials import LOGIN
from dial_client.stores.sql_store import SQLStore


@dataclass(frozen=True, slots=True)
class PersonLogin:
    """A login of a person, read before it is deleted."""

    key: str
    """The key of the login in the store."""
    record: TokenRecord
    """What is stored of it; empty if it cannot be read."""
    server: ServerSettings | None
    """The server of the configuration that it belongs to; None if there is none any more."""


async def read_logins(store: SQLStore, owner: str, options: Options, key: str | None = None) -> list[PersonLogin]:
    """Read the logins of a person.

    Args:
        store: The database.
        owner: The person.
        options: Name the configuration with the servers.
        key: The only login to read; None for all.

    Raises:
        ConfigError: The options name a configuration that is wrong.
    """
    known = await store.credentials.list(owner)
    keys = [row.server for row in known if row.name == LOGIN and key in (None, row.server)]
    if not keys:
        return []
    stored = StoredCredentials(store.credentials, await open_box())
    servers = await _read_servers(stored, owner, options)
    logins = []
    for found in keys:
        try:
            record = parse_record(await stored.for_owner(owner).load(found))
        except ConfigError:  # the key is another one
            record = TokenRecord()
        logins.append(PersonLogin(found, record, servers.get(found)))
    return logins


async def revoke_logins(logins: list[PersonLogin]) -> int:
    """Revoke logins that were deleted, all at the same time, and return how many; warn of each that stays valid."""
    revoked = 0

    async def revoke(login: PersonLogin) -> None:
        nonlocal revoked
        if login.server is None:
            problem = describe_valid_tokens(login.record, None, "the configuration has no such server")
        else:
            problem = await revoke_tokens(login.server, login.record)
        if problem:
            warn(f"{login.key}: {problem}")
        else:
            revoked += 1

    async with anyio.create_task_group() as group:
        for login in logins:
            group.start_soon(revoke, login)
    return revoked


async def _read_servers(stored: StoredCredentials, owner: str, options: Options) -> dict[str, ServerSettings]:
    """Return the servers by the keys of the person's logins."""
    try:
        settings = await read_settings(options, may_ask=False, leaves_out=True, needs_servers=False)
    except ConfigError as error:
        if options.config is not None:
            raise
        warn(f"the configuration cannot be used ({error}), so no tokens are revoked; --config names another one")
        return {}
    servers = {}
    for name, server in settings.servers.items():
        try:
            values = {word: await stored.find(owner, name, word) or "" for word in find_user_variables(server)}
            filled = fill_in(server, values)
        except ConfigError:
            continue
        servers[TokenStorage(filled, stored).key] = filled
    return servers

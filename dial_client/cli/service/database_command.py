"""The command ``db``: the schema of the database of conversations, and the data of a person in it."""

from __future__ import annotations

import json
import sys

from dial_client.cli.options import ExitCode, Options
from dial_client.cli.service.person_logins import read_logins, revoke_logins
from dial_client.cli.service.serve_command import open_database
from dial_client.cli.streams.error_stream import warn
from dial_client.client.client_setup import open_grants
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.stores.sql_store import SQLStore


async def manage_database(action: str, owner: str | None, options: Options, *, is_agreed: bool) -> int:
    """Run one action, and return the exit code.

    Args:
        action: ``check``, ``migrate``, ``export`` or ``erase``.
        owner: The person whose data is exported or erased.
        options: Name the store, and the configuration with the servers whose logins end with a person.
        is_agreed: Whether the person may be erased without a question.

    Raises:
        ConfigError: The action is unknown, the person is missing, or the database cannot be used.
    """
    async with open_database(options) as store:
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
                await _erase(store, owner, options, is_agreed=is_agreed)
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


async def _erase(store: SQLStore, owner: str, options: Options, *, is_agreed: bool) -> None:
    shown = escape_line(owner)
    if not is_agreed:
        raise ConfigError(f"everything of {shown} would be gone", hint=f"dial-chat db erase {shown} --yes")
    logins = await read_logins(store, owner, options)
    counts = await store.owner_data.erase(owner)
    if (grants := open_grants(True)) is not None:  # noqa: FBT003 - the user's own
        own = grants.select_owner(owner)
        counts["grants"] = len(own.revoke({grant.id for grant in own.list_grants()}))
    counts["logins_revoked"] = await revoke_logins(logins)
    print(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in sorted(counts.items())))
    warn(f"the audit log still names {shown}: its lines are a chain; see `dial-chat help deploy`")

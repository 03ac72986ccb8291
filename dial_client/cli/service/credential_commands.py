"""The command ``credentials``: what persons have given for ``${user.NAME}`` of their servers, and the key of it."""

from __future__ import annotations

import json
import sys

from anyio import to_thread

from dial_client.cli.options import Options
from dial_client.cli.service.person_logins import read_logins, revoke_logins
from dial_client.cli.service.serve_command import open_database
from dial_client.cli.streams import tty
from dial_client.cli.streams.error_stream import warn
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.serve.people.stored_credentials import StoredCredentials, open_box
from dial_client.stores.owner_credentials import KEY_VARIABLE, SecretBox

_USAGE = "dial-chat credentials [list | set SERVER NAME | revoke SERVER [NAME] | key] [--owner PERSON]"


async def manage_credentials(
    action: str, server: str | None, name: str | None, owner: str, options: Options, *, as_json: bool
) -> None:
    """List, set or revoke credentials, or print a new key.

    Args:
        action: ``list``, ``set``, ``revoke`` or ``key``.
        server: The server's name in the configuration.
        name: The name in ``${user.NAME}``; None for all of a server.
        owner: The person; empty for the one person of a service without persons.
        options: Name the store, and the configuration with the servers whose logins are revoked.
        as_json: Whether the output is JSON.

    Raises:
        ConfigError: The action is unknown, an argument is missing, or there is no key, or nothing to revoke.
    """
    if action == "key":
        print(SecretBox.generate_key())
        warn(f"set {KEY_VARIABLE} to this key for the service; without it nobody can read what is stored")
        return
    async with open_database(options) as store:
        stored = StoredCredentials(store.credentials, await open_box())
        match action, server, name:
            case "list", None, None:
                await _print_credentials(stored, owner, as_json=as_json)
            case "set", str(), str():
                value = await _read_value(f"{server}/{name}")
                await stored.put(owner, server, name, value)
                warn("stored; a running service uses it from the next use of the server on")
            case "revoke", str(), _:
                logins = await read_logins(store, owner, options, server) if name is None else []
                if not await stored.forget(owner, server, name):
                    raise ConfigError("there is no such credential", hint="dial-chat credentials list")
                await revoke_logins(logins)
                warn("revoked; a running service closes the session at the next use of the server")
            case "list" | "set" | "revoke", _, _:
                raise ConfigError(f"{action} has too many arguments, or too few", hint=_USAGE)
            case _:
                raise ConfigError(f"unknown action {action!r}", hint=_USAGE)


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

"""What persons have given to a service: credentials and logins for servers with ``perUser``, encrypted in its database.

The key is in `KEY_VARIABLE`, else in the system's keyring. Without a key nothing is stored.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio

from dial_client.hooks.server_callbacks import PAGE_LOGIN_HINT
from dial_client.messages.errors import ConfigError
from dial_client.servers.oauth.login_stores import FolderLogins, LoginStore, MemoryLogins, use_keyring
from dial_client.settings.user_variables import check_value
from dial_client.stores.owner_credentials import KEY_VARIABLE, LOGIN, OwnerCredentials, SecretBox, StoredCredential

_SERVICE, _KEY_NAME = "dial-client", "credentials-key"


async def open_box() -> SecretBox | None:
    """Return what encrypts credentials, by the key of the environment, else of the keyring, which may get a new key.

    Returns None if there is neither.

    Raises:
        ConfigError: The variable has no valid key.
    """
    if text := os.environ.get(KEY_VARIABLE):
        return SecretBox.from_text(text)

    def find_or_create(keyring: Any) -> str:
        known = keyring.get_password(_SERVICE, _KEY_NAME)
        if known is None:
            known = SecretBox.generate_key()
            keyring.set_password(_SERVICE, _KEY_NAME, known)
        return str(known)

    kept = await use_keyring(find_or_create)
    return SecretBox.from_text(kept) if kept is not None else None


class StoredCredentials(FolderLogins):
    """The `CredentialProvider` of a service, and its `LoginStore`, in which each person has logins of their own.

    Without the name of a person, as in a service of one person, the logins are those of `dial-chat`, and what is not
    stored is a variable of the environment.

    Args:
        stored: The credentials in the database.
        box: Encrypts them; None to store none.
    """

    hint = "fill them in on the page of the service, in the list of servers"

    def __init__(self, stored: OwnerCredentials, box: SecretBox | None) -> None:
        super().__init__()
        self._stored, self._box = stored, box
        self._in_memory: defaultdict[str, MemoryLogins] = defaultdict(_PassingLogins)

    @property
    def can_store(self) -> bool:
        """True if there is a key."""
        return self._box is not None

    async def find(self, owner: str, server: str, name: str) -> str | None:
        """Return a value; None if the person has given none."""
        value = await self._stored.find(self._box, owner, server, name) if self._box is not None else None
        return value if value is not None or owner else os.environ.get(name)

    async def list(self, owner: str) -> list[StoredCredential]:
        """Return what a person has given, without the values."""
        return await self._stored.list(owner)

    async def put(self, owner: str, server: str, name: str, value: str) -> None:
        """Store a value.

        Raises:
            ConfigError: There is no key, or the value cannot be used.
        """
        check_value(value)
        await self._stored.put(self._require_box(), owner, server, name, value)

    async def forget(self, owner: str, server: str, name: str | None = None) -> bool:
        """Delete a value, or all of a server; return False if there was none."""
        return await self._stored.delete(owner, server, name)

    def for_owner(self, owner: str) -> LoginStore:
        """Return the logins of one person: in the database, or without a key in memory until the service ends."""
        if not owner:
            return self
        return _OwnerLogins(self._stored, self._box, owner) if self._box is not None else self._in_memory[owner]

    def _require_box(self) -> SecretBox:
        if self._box is None:
            raise ConfigError(
                "this service has no key to encrypt credentials",
                hint=f"its operator sets {KEY_VARIABLE}; `dial-chat credentials key` prints a key",
            )
        return self._box


class _PassingLogins(MemoryLogins):
    """The logins of one person of a service without a key."""

    login_hint = PAGE_LOGIN_HINT


class _OwnerLogins:
    """The logins of one person in the database.

    Two processes may refresh a login at the same time; whose refresh token is refused then reads what the other stored.
    """

    login_hint = PAGE_LOGIN_HINT

    def __init__(self, stored: OwnerCredentials, box: SecretBox, owner: str) -> None:
        self._stored, self._box, self._owner = stored, box, owner
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def load(self, key: str) -> str | None:
        return await self._stored.find(self._box, self._owner, key, LOGIN)

    async def save(self, key: str, login: str) -> None:
        await self._stored.put(self._box, self._owner, key, LOGIN, login)

    async def delete(self, key: str) -> bool:
        return await self._stored.delete(self._owner, key, LOGIN)

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:
        return self._locks[key]

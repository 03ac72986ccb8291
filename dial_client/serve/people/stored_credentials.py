"""What persons have given to a service: credentials and logins for servers with ``perUser``, encrypted in its database.

The key is in `KEY_VARIABLE`, else in the system's keyring. Without a key nothing is stored.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import anyio

from dial_client.hooks.server_callbacks import PAGE_LOGIN_HINT
from dial_client.messages.errors import ConfigError
from dial_client.servers.oauth.login_stores import FolderLogins, LoginStore, MemoryLogins, use_keyring
from dial_client.settings.user_variables import check_value
from dial_client.stores.owner_credentials import KEY_VARIABLE, LOGIN, OwnerCredentials, SecretBox, StoredCredential

_SERVICE, _KEY_NAME = "dial-client", "credentials-key"
# Seconds for which a value that was read counts without another look: a credential that another process, or
# `dial-chat credentials`, changes or takes back is used at most so long after that. A call costs a millisecond or more
# with a look at the database, and a model makes several within a second. The time is short and needs no notification,
# so that it also holds over SQLite, without `--durable`, and while a notification is lost.
LIFETIME = 2.0
# Values that are kept, those that were read last; and the characters of the longest one.
_MAX_KEPT, _MAX_CHARS = 256, 16_384


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
        lifetime: Seconds for which a value counts that was read.
        clock: Returns the time in seconds.
    """

    hint = "fill them in on the page of the service, in the list of servers"

    def __init__(
        self,
        stored: OwnerCredentials,
        box: SecretBox | None,
        *,
        lifetime: float = LIFETIME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._stored, self._box = stored, box
        self._lifetime, self._clock = lifetime, clock
        # Decrypted values by owner, server and name, each with the time until which it counts. This gives away nothing
        # that the process has not: an open session has the value too, in the environment or the headers of the server.
        self._kept: OrderedDict[tuple[str, str, str], tuple[float, str]] = OrderedDict()
        # Grows with each change in this process: what was read before a change must not be kept after it.
        self._changes = 0
        self._in_memory: dict[str, _PassingLogins] = {}
        # The ID tokens of persons who are logged in, the latest of each, to exchange for tokens of their servers. They
        # are in memory alone: each request of the page brings one.
        self._id_tokens: OrderedDict[str, str] = OrderedDict()

    @property
    def can_store(self) -> bool:
        """True if there is a key."""
        return self._box is not None

    async def find(self, owner: str, server: str, name: str) -> str | None:
        """Return a value; None if the person has given none. It is that of the last `LIFETIME` seconds."""
        value = await self._find(self._box, (owner, server, name)) if self._box is not None else None
        return value if value is not None or owner else os.environ.get(name)

    async def _find(self, box: SecretBox, key: tuple[str, str, str]) -> str | None:
        # The time counts from before the look, which may take long: at its end the value may have been taken back.
        now, changes = self._clock(), self._changes
        if (known := self._kept.get(key)) is not None and now < known[0]:
            return known[1]
        value = await self._stored.find(box, *key)
        self._kept.pop(key, None)
        # What is missing is looked for each time: who fills it in at another process must not wait.
        if value is not None and len(value) <= _MAX_CHARS and changes == self._changes:
            self._kept[key] = now + self._lifetime, value
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return value

    def _drop(self) -> None:
        """Forget all values of all persons: changes are rare, and one that stays by mistake would be a leak."""
        self._changes += 1
        self._kept.clear()

    async def list(self, owner: str) -> list[StoredCredential]:
        """Return what a person has given, without the values."""
        return await self._stored.list(owner)

    async def put(self, owner: str, server: str, name: str, value: str) -> None:
        """Store a value.

        Raises:
            ConfigError: There is no key, or the value cannot be used.
        """
        check_value(value)
        try:
            await self._stored.put(self._require_box(), owner, server, name, value)
        finally:
            self._drop()

    async def forget(self, owner: str, server: str, name: str | None = None) -> bool:
        """Delete a value, or all of a server; return False if there was none."""
        try:
            return await self._stored.delete(owner, server, name)
        finally:  # after it: what is read while the row is deleted is dropped too, and so it is if the answer was lost
            self._drop()

    def for_owner(self, owner: str) -> LoginStore:
        """Return the logins of one person: in the database, or without a key in memory until the service ends."""
        if not owner:
            return self
        find_id_token = partial(self._id_tokens.get, owner)
        if self._box is not None:
            return _OwnerLogins(self._stored, self._box, owner, find_id_token)
        return self._in_memory.setdefault(owner, _PassingLogins(find_id_token))

    def keep_id_token(self, owner: str, token: str) -> None:
        """Keep the ID token of a person for logins to servers, in place of an earlier one."""
        self._id_tokens[owner] = token
        self._id_tokens.move_to_end(owner)
        if len(self._id_tokens) > _MAX_KEPT:
            self._id_tokens.popitem(last=False)

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

    def __init__(self, find_id_token: Callable[[], str | None]) -> None:
        super().__init__()
        self.find_id_token = find_id_token


class _OwnerLogins:
    """The logins of one person in the database.

    Two processes may refresh a login at the same time; whose refresh token is refused then reads what the other stored.
    """

    login_hint = PAGE_LOGIN_HINT

    def __init__(
        self, stored: OwnerCredentials, box: SecretBox, owner: str, find_id_token: Callable[[], str | None]
    ) -> None:
        self._stored, self._box, self._owner = stored, box, owner
        self.find_id_token = find_id_token
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def load(self, key: str) -> str | None:
        return await self._stored.find(self._box, self._owner, key, LOGIN)

    async def save(self, key: str, login: str) -> None:
        await self._stored.put(self._box, self._owner, key, LOGIN, login)

    async def delete(self, key: str) -> bool:
        return await self._stored.delete(self._owner, key, LOGIN)

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:
        return self._locks[key]

"""The credentials that persons gave to a service, encrypted in its database.

A row is encrypted with AES-256-GCM, with its owner, server and name as associated data: whoever can write to the
database, but has no key, can neither read a value nor move it to another person or another server.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import ConfigError
from dial_client.stores.conversation_store import check_owner, to_sortable_time
from dial_client.stores.database import Database
from dial_client.stores.row_batches import execute, to_text, to_time

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

# The variable with the keys: each 32 random bytes in base64, separated by blanks. The first one encrypts.
KEY_VARIABLE = "DIAL_CREDENTIALS_KEY"
_KEY_BYTES, _NONCE_BYTES = 32, 12
# Maximum characters of a name, and bytes of a value.
_MAX_NAME, _MAX_VALUE = 200, 1024 * 1024
# The name of a login, which is no name of a credential.
LOGIN = ""


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """What is known of a credential without its value, which is never shown again."""

    server: str
    """The server's name in the configuration; of a login the key of its store."""
    name: str
    """The name in ``${user.NAME}``; `LOGIN` for a login with OAuth."""
    changed_at: datetime


class SecretBox:
    """Encrypts texts; each fits only the place that it was encrypted for.

    Args:
        keys: Keys of 32 bytes: the first one encrypts, the others still decrypt.

    Raises:
        ConfigError: There is no key, or a key has another length.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise ConfigError(
                f"{KEY_VARIABLE} has no valid key", hint="`dial-chat credentials key` prints one: 32 bytes in base64"
            )
        self._keys = tuple(keys)

    @classmethod
    def from_text(cls, text: str) -> SecretBox:
        """Return the box of keys in base64, separated by blanks; raise `ConfigError` as the class."""
        try:
            return cls([base64.b64decode(part, altchars=b"-_", validate=True) for part in text.split()])
        except Base64Error:
            return cls(())

    @staticmethod
    def generate_key() -> str:
        """Return a new key."""
        return base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()

    def seal(self, text: str, *place: str) -> str:
        """Return the encrypted text, in ASCII."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes time, and few need it

        # 96 random bits are enough for 2**32 values with one key (NIST SP 800-38D, 8.3).
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._keys[0]).encrypt(nonce, text.encode(), _describe(place))
        return base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, *place: str) -> str:
        """Return the decrypted text.

        Raises:
            ConfigError: It was encrypted with another key, for another place, or was changed.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = base64.b64decode(sealed, validate=True)
        except ValueError:
            data = b""
        for key in self._keys:
            try:
                return AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _describe(place)).decode()
            except (InvalidTag, ValueError):
                continue
        raise ConfigError("a stored credential cannot be decrypted", hint=f"was {KEY_VARIABLE} another one?")


def _describe(place: Sequence[str]) -> bytes:
    return json.dumps(place).encode()


class OwnerCredentials:
    """The credentials in one database.

    All methods raise `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, owner: str) -> list[StoredCredential]:
        """Return what an owner has given, by server and name."""
        rows = await self._select("server, name, changed_at", "ORDER BY server, name", owner=owner)
        return [StoredCredential(to_text(row.server), to_text(row.name), to_time(row.changed_at)) for row in rows]

    async def find(self, box: SecretBox, owner: str, server: str, name: str) -> str | None:
        """Return a value; None if there is none; raise `ConfigError` as `SecretBox.open`."""
        rows = await self._select(
            "value", "AND server = :server AND name = :name", owner=owner, server=server, name=name
        )
        return box.open(to_text(rows[0].value), owner, server, name) if rows else None

    async def put(self, box: SecretBox, owner: str, server: str, name: str, value: str) -> None:
        """Store a value in place of an earlier one.

        Raises:
            ConfigError: The owner or a name cannot be stored, or the value is too long.
        """
        check_owner(owner)
        if max(len(server), len(name)) > _MAX_NAME or not f"{server}{name}".isprintable() or len(value) > _MAX_VALUE:
            raise ConfigError("the name of a server, of a credential, or a value is too long or cannot be stored")
        row = {
            "owner": owner,
            "server": server,
            "name": name,
            "value": box.seal(value, owner, server, name),
            "changed": to_sortable_time(datetime.now(UTC)),
        }

        async def insert(connection: AsyncConnection) -> None:
            await execute(
                connection,
                "INSERT INTO owner_credentials (owner, server, name, value, changed_at)"
                " VALUES (:owner, :server, :name, :value, :changed) ON CONFLICT (owner, server, name)"
                " DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at",
                row,
            )

        await self._database.run(insert, writes=True)

    async def delete(self, owner: str, server: str, name: str | None = None) -> bool:
        """Delete a value, or all of a server; return False if there was none."""
        condition = "" if name is None else " AND name = :name"
        statement = f"DELETE FROM owner_credentials WHERE owner = :owner AND server = :server{condition}"  # noqa: S608
        row = {"owner": owner, "server": server} | ({} if name is None else {"name": name})

        async def delete(connection: AsyncConnection) -> bool:
            return (await execute(connection, statement, row)).rowcount > 0

        return await self._database.run(delete, writes=True)

    async def _select(self, columns: str, condition: str, **values: Any) -> Sequence[Any]:
        async def read(connection: AsyncConnection) -> Sequence[Any]:
            statement = f"SELECT {columns} FROM owner_credentials WHERE owner = :owner {condition}"  # noqa: S608
            return (await execute(connection, statement, values)).all()

        return await self._database.run(read, writes=False)

"""The access tokens of a service in its database: who may send requests, for which purposes, and until when.

A token is shown once, when it is created. Only its SHA-256 is stored: a token has 32 random bytes, which nobody finds
by trying, so that a slow hash would protect nothing and cost each request.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import ConfigError
from dial_client.stores.conversation_store import check_owner, to_sortable_time
from dial_client.stores.database import Database
from dial_client.stores.row_batches import execute, to_count, to_text, to_time

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

# The beginning of each token, by which programs that search for leaked secrets recognize one.
PREFIX = "dial_"
# A token: its id, which lists show, and 32 random bytes.
_TOKEN = re.compile(rf"{PREFIX}[0-9a-f]{{8}}_[A-Za-z0-9_-]{{43}}")
# Characters of a name.
MAX_NAME = 60

_COLUMNS = "id, name, owner, scopes, created_at, expires_at, requests_per_minute"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """What is known of a token, without its secret."""

    id: str
    """Eight hexadecimal digits, which are a part of the token."""
    name: str
    """What the token is for, such as ``laptop``."""
    owner: str
    """The person whose conversations, approvals and questions the token gives access to."""
    scopes: frozenset[str]
    """What the token may be used for."""
    created_at: datetime
    expires_at: datetime | None = None
    """When the token stops being valid, in UTC; None for never."""
    requests_per_minute: int = 0
    """Maximum number of requests in a minute at each process; 0 for no limit."""

    @property
    def has_expired(self) -> bool:
        """True if the token is not valid any more."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


class AccessTokens:
    """The tokens of one database.

    All methods raise `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        name: str,
        owner: str,
        scopes: Collection[str],
        *,
        lifetime: timedelta | None = None,
        requests_per_minute: int = 0,
    ) -> tuple[str, AccessToken]:
        """Create a token, and return it with what is stored of it.

        Args:
            name: What the token is for, at most `MAX_NAME` printable characters.
            owner: The person whom the token stands for, at most 200 characters.
            scopes: What the token may be used for.
            lifetime: How long the token is valid; None for ever.
            requests_per_minute: Maximum number of requests in a minute; 0 for no limit.

        Raises:
            ConfigError: The name or the owner is empty, too long, or cannot be shown.
        """
        if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise ConfigError(f"the name of a token has 1 to {MAX_NAME} printable characters")
        if not check_owner(owner) or not owner.isprintable():
            raise ConfigError("a token has an owner", hint="name the person, for example by an e-mail address")
        id_, now = secrets.token_hex(4), datetime.now(UTC)
        text = f"{PREFIX}{id_}_{secrets.token_urlsafe(32)}"
        token = AccessToken(
            id_,
            name,
            owner,
            frozenset(scopes),
            now,
            now + lifetime if lifetime is not None else None,
            requests_per_minute,
        )
        row = {
            "id": id_,
            "name": name,
            "owner": owner,
            "scopes": " ".join(sorted(scopes)),
            "digest": _hash(text),
            "created": to_sortable_time(now),
            "expires": to_sortable_time(token.expires_at) if token.expires_at is not None else "",
            "rate": requests_per_minute,
        }

        async def insert(connection: AsyncConnection) -> None:
            await execute(
                connection,
                "INSERT INTO access_tokens (id, name, owner, scopes, digest, created_at, expires_at,"
                " requests_per_minute) VALUES (:id, :name, :owner, :scopes, :digest, :created, :expires, :rate)",
                row,
            )

        await self._database.run(insert, writes=True)
        return text, token

    async def find(self, text: str) -> AccessToken | None:
        """Return what is stored of a token; None if there is no such token, or it has expired."""
        if _TOKEN.fullmatch(text) is None:
            return None
        rows = await self._select("WHERE digest = :digest", {"digest": _hash(text)})
        return next((token for token in rows if not token.has_expired), None)

    async def list_all(self) -> list[AccessToken]:
        """Return all tokens, by owner and name, also those that have expired."""
        return await self._select("ORDER BY owner, name, created_at", {})

    async def revoke(self, id_: str) -> bool:
        """Delete a token; return False if there is none with this id."""

        async def delete(connection: AsyncConnection) -> bool:
            deleted = await execute(connection, "DELETE FROM access_tokens WHERE id = :id", {"id": id_})
            return deleted.rowcount > 0

        return await self._database.run(delete, writes=True)

    async def _select(self, condition: str, parameters: dict[str, Any]) -> list[AccessToken]:
        async def read(connection: AsyncConnection) -> list[AccessToken]:
            statement = f"SELECT {_COLUMNS} FROM access_tokens {condition}"  # noqa: S608 - our own text
            return [_to_token(row) for row in (await execute(connection, statement, parameters)).all()]

        return await self._database.run(read, writes=False)


def _to_token(row: Any) -> AccessToken:
    expires = to_text(row.expires_at)
    return AccessToken(
        to_text(row.id),
        to_text(row.name),
        to_text(row.owner),
        frozenset(to_text(row.scopes).split()),
        to_time(row.created_at),
        # A time that cannot be read is long ago: the token is refused instead of being valid for ever.
        to_time(expires) if expires else None,
        to_count(row.requests_per_minute, 1),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

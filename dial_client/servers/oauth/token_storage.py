"""The stored login of one server, identified by name and URL.

It names the issuer of its tokens, which are sent to no other authorization server.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.logs import get_logger
from dial_client.servers.oauth.login_stores import MAX_BYTES, LoginStore
from dial_client.settings.config_types import ServerSettings

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The stored result of one login, as JSON of the protocol. Its repr shows the issuer only."""

    issuer: str | None = None
    """The issuer of the tokens; None for a server that is its own authorization server."""
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    """When the access token expires, in seconds since 1970; None if the server did not state it."""
    client: dict[str, Any] | None = None
    """The client's registration at the authorization server."""
    metadata: dict[str, Any] | None = None
    """The metadata of the authorization server, needed to refresh tokens after a restart of the program."""
    resource: dict[str, Any] | None = None
    """The protected resource metadata of the MCP server (RFC 9728)."""
    wanted_scope: str | None = None
    """Scopes that the server required when no user could grant them; requested at the next login."""

    def __repr__(self) -> str:
        return f"TokenRecord(issuer={self.issuer!r})"


def parse_record(text: object) -> TokenRecord:
    """Return the record that a store has as a text; an empty record if it is damaged."""
    from pydantic import TypeAdapter, ValidationError

    try:
        text = text if isinstance(text, str) and len(text) <= MAX_BYTES else "{}"
        record = TypeAdapter(TokenRecord).validate_json(text)
    except ValidationError:
        log.debug("login_unreadable")
        return TokenRecord()
    is_time = record.expires_at is None or math.isfinite(record.expires_at)
    return record if is_time else replace(record, expires_at=0.0)


class TokenStorage:
    """Stores the `TokenRecord` of one server in the logins of a client."""

    def __init__(self, settings: ServerSettings, logins: LoginStore) -> None:
        # The name alone would give the tokens of one server to another one that is configured under the same name. The
        # readable part is only for people; the digest tells apart names that differ in replaced characters.
        url = settings.url or ""
        digest = hashlib.sha256(f"{settings.name}\0{url}".encode()).hexdigest()[:16]
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", settings.name)[:40]
        self.key = f"{readable}-{digest}"
        """The key of the login in the store."""
        self._logins = logins

    async def load(self) -> TokenRecord:
        """Return the record; an empty record if none is stored, or it is damaged.

        Raises:
            LoginFailed: The store fails.
        """
        try:
            text = await self._logins.load(self.key)
        except Exception as error:
            raise LoginFailed(f"its stored login cannot be read ({type(error).__name__})") from error
        return parse_record(text or "{}")

    async def save(self, record: TokenRecord) -> None:
        """Replace the stored record; raises what the store raises, such as `OSError`."""
        fields = {name: value for name, value in asdict(record).items() if value is not None}
        await self._logins.save(self.key, json.dumps(fields))

    async def forget(self) -> TokenRecord | None:
        """Remove the record, and return it, so that its tokens can be revoked; None if there was none.

        A record that cannot be read is removed too; it is empty.
        """
        try:
            record = await self.load()
        except LoginFailed:
            record = TokenRecord()
        return record if await self._logins.delete(self.key) else None

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return the lock of this login; see `LoginStore.lock`."""
        return self._logins.lock(self.key)

"""Token storage: in the system's keyring if `keyring` is installed, otherwise in private files.

There is one record for each server, identified by name and URL. It names the issuer of its tokens, which are sent to no
other authorization server.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import write_private
from dial_client.settings.config_types import ServerSettings

log = get_logger(__name__)

# Timeout in seconds for the keyring: a locked keyring may wait for a password.
KEYRING_SECONDS = 10.0
# Maximum bytes of a record that is read.
MAX_BYTES = 1024 * 1024
_SERVICE = "dial-client"

T = TypeVar("T")


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


class TokenStorage:
    """Stores the `TokenRecord` of one server."""

    def __init__(self, settings: ServerSettings, folder: Path | None = None) -> None:
        import platformdirs

        # The name alone would give the tokens of one server to another one that is configured under the same name. The
        # readable part is only for people; the digest tells apart names that differ in replaced characters.
        url = settings.url or ""
        digest = hashlib.sha256(f"{settings.name}\0{url}".encode()).hexdigest()[:16]
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", settings.name)[:40]
        self._folder = folder or platformdirs.user_data_path("dial-client", appauthor=False) / "logins"
        self._key = f"{readable}-{digest}"

    async def load(self) -> TokenRecord:
        """Return the record; an empty record if none is stored, or it cannot be read."""
        from pydantic import TypeAdapter, ValidationError

        text = await _use_keyring(lambda keyring: keyring.get_password(_SERVICE, self._key))
        if text is None:
            with suppress(OSError, ValueError), self._path.open("rb") as file:
                text = file.read(MAX_BYTES + 1).decode()
        try:
            text = text if isinstance(text, str) and len(text) <= MAX_BYTES else "{}"
            record = TypeAdapter(TokenRecord).validate_json(text or "{}")
        except ValidationError:
            log.debug("login_unreadable", path=str(self._path))
            return TokenRecord()
        is_time = record.expires_at is None or math.isfinite(record.expires_at)
        return record if is_time else replace(record, expires_at=0.0)

    async def save(self, record: TokenRecord) -> None:
        """Replace the stored record.

        Raises:
            OSError: The record cannot be written.
        """
        text = json.dumps({name: value for name, value in asdict(record).items() if value is not None})

        def store(keyring: Any) -> bool:
            keyring.set_password(_SERVICE, self._key, text)
            return True

        if await _use_keyring(store):
            self._path.unlink(missing_ok=True)
        else:
            if self._folder.is_dir():
                # In a folder that others may write to, another user could replace the file.
                self._folder.chmod(0o700)
            write_private(self._path, text.encode())

    async def forget(self) -> bool:
        """Remove the record; return False if there was none."""

        def remove(keyring: Any) -> bool:
            exists = keyring.get_password(_SERVICE, self._key) is not None
            if exists:
                keyring.delete_password(_SERVICE, self._key)
            return exists

        in_keyring = bool(await _use_keyring(remove))
        in_file = self._path.exists()
        self._path.unlink(missing_ok=True)
        return in_keyring or in_file

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._key}.json"


async def _use_keyring(use: Callable[[Any], T]) -> T | None:
    """Call `use` with the system's keyring, and return its result.

    Returns None if there is no keyring, or if it fails or does not answer within `KEYRING_SECONDS`.
    """
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        return None

    def run() -> T | None:
        if keyring.get_keyring().priority <= 0:  # the placeholder backend of a system without keyring
            return None
        return use(keyring)

    with anyio.move_on_after(KEYRING_SECONDS):
        try:
            return await to_thread.run_sync(run, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 (each backend has its own errors; a file is used instead)
            log.debug("keyring_failed", error=type(error).__name__)
    return None

"""The key that seals what the gateway lets clients keep for it (``requestState``).

The key is a file of the user, so that a question which a gateway has asked can be answered to the next one.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from pathlib import Path

from mcp.server.request_state import AESGCMRequestStateCodec

from dial_client.runtime.file_lock import FileLock
from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import write_private

log = get_logger(__name__)

_NAME = "request-state.key"
_BYTES = 32
# Seconds to wait for another gateway that makes the key.
_PATIENCE = 2.0


class StateCodec:
    """Seals states with the key of a folder, which is read when it is needed first.

    Args:
        folder: The folder; None for that of the user.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._codec: AESGCMRequestStateCodec | None = None

    def seal(self, payload: bytes) -> str:
        """Return a text that only this key opens."""
        return self._open().seal(payload)

    def unseal(self, token: str) -> bytes:
        """Return what was sealed.

        Raises:
            mcp.server.request_state.InvalidRequestState: The text was changed, or sealed with another key.
        """
        return self._open().unseal(token)

    def _open(self) -> AESGCMRequestStateCodec:
        if self._codec is None:
            self._codec = AESGCMRequestStateCodec([read_or_make_key(self._folder or find_state_folder())])
        return self._codec


def find_state_folder() -> Path:
    """Return the user's folder for the state of gateways."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dial-client"), "gateway")


def read_or_make_key(folder: Path) -> bytes:
    """Return the key of a folder, which is made if it is not there.

    A file that others may read is replaced. If the folder cannot be written, the key is that of this process only.
    """
    path = folder / _NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / f"{_NAME}.lock")
        try:
            with lock.held(_PATIENCE):
                if (key := _read(path)) is not None:
                    return key
                key = secrets.token_bytes(_BYTES)
                write_private(path, key)
                return key
        finally:
            lock.close()
    except OSError as error:  # TimeoutError is one
        log.warning("gateway_key_not_stored", error=type(error).__name__)
        return secrets.token_bytes(_BYTES)


def _read(path: Path) -> bytes | None:
    """Return a key that only its owner can read; None for any other file."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(_BYTES + 1)
    except FileNotFoundError:
        return None
    if sys.platform != "win32" and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077):
        log.warning("gateway_key_replaced", why="others may read it")
        return None
    return key if len(key) == _BYTES else None

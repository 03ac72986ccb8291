"""The seal of the states that a gateway leaves with its clients (2026-07-28), and the key of it."""

from __future__ import annotations

import secrets
from pathlib import Path

from mcp.server.request_state import AESGCMRequestStateCodec

from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import read_or_make_key

log = get_logger(__name__)


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
            self._codec = AESGCMRequestStateCodec([_find_key(self._folder or find_state_folder())])
        return self._codec


def find_state_folder() -> Path:
    """Return the user's folder for the state of gateways."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dial-client"), "gateway")


def _find_key(folder: Path) -> bytes:
    """Return the key of a folder; if the folder cannot be written, a key of this process only."""
    try:
        return read_or_make_key(folder / "request-state.key")
    except OSError as error:
        log.warning("gateway_key_not_stored", error=type(error).__name__)
        return secrets.token_bytes(32)

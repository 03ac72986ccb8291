"""A cache of data about servers from run to run: a folder with one small JSON file for each server.

A server is identified by how it is reached, not by its name in a configuration. A file is written atomically, and only
its owner can read it. Several programs may use a folder at once; the last write of a file wins. A file that cannot be
read or written counts as missing: a cache never causes a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import write_private
from dial_client.settings.config_types import ServerSettings

log = get_logger(__name__)

MAX_FILES = 200
"""Maximum number of files, and so of servers, in a cache."""
MAX_BYTES = 2 * 1024 * 1024
"""Maximum bytes of a file; a larger file is neither written nor read."""
FORM = 1
"""Version of the file format; a file of another version is not read."""


def compute_identity(server: ServerSettings) -> str:
    """Return the identity of a server: a hash of how it is reached, without the values of variables and headers."""
    parts = [server.command, *server.args], server.cwd, server.url, sorted(server.env), sorted(server.headers)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class JsonCache:
    """One folder; it is created when a file is first written.

    Args:
        folder: The path of the folder.
        max_files: Maximum number of files; the files written longest ago are removed first.
    """

    def __init__(self, folder: str | os.PathLike[str], max_files: int = MAX_FILES) -> None:
        self._folder = Path(folder)
        self._max_files = max_files

    def read(self, server: ServerSettings) -> dict[str, Any]:
        """Return the stored data of a server; empty if there is no readable file."""
        return self.read_key(compute_identity(server))

    def read_key(self, key: str) -> dict[str, Any]:
        """Return the stored data of the server with this identity; empty if there is no readable file."""
        try:
            with self._build_path(key).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            value = json.loads(data) if len(data) <= MAX_BYTES else None
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) and value.get("form") == FORM else {}

    def write(self, server: ServerSettings, value: Mapping[str, Any]) -> bool:
        """Replace the stored data of a server; return False if it could not be written."""
        return self._write(compute_identity(server), value)

    def rewrite(self, key: str, value: Mapping[str, Any] | None) -> bool:
        """Replace the stored data of the server with this identity; None removes it.

        Returns:
            False if the file could not be written, or removed.
        """
        if value is not None:
            return self._write(key, value)
        with suppress(OSError):
            self._build_path(key).unlink(missing_ok=True)
        return not self._build_path(key).exists()

    def list_keys(self) -> tuple[str, ...]:
        """Return the identities of all servers with stored data."""
        try:
            return tuple(sorted(path.stem for path in self._folder.glob("*.json")))
        except OSError:
            return ()

    def _write(self, key: str, value: Mapping[str, Any]) -> bool:
        try:
            data = json.dumps({"form": FORM, **value}).encode()
            if len(data) > MAX_BYTES:
                return False
            write_private(self._build_path(key), data)
            self._remove_oldest()
        except (OSError, ValueError, TypeError, RecursionError) as error:
            log.debug("cache_not_written", error=type(error).__name__)
            return False
        return True

    def _build_path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _remove_oldest(self) -> None:
        """Remove the oldest files beyond `max_files`; another program may remove them at the same time."""
        ages: list[tuple[float, Path]] = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                ages.append((path.stat().st_mtime, path))
        for _, path in sorted(ages)[: -self._max_files]:
            with suppress(OSError):
                path.unlink()

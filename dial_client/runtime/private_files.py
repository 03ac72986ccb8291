"""Files that only their owner can read, written atomically; and keys in such files.

What one program seals for itself with a key, the user's next program can open.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dial_client.runtime.file_lock import FileLock
from dial_client.runtime.logs import get_logger

# The permissions of a file that only its owner may read and write.
PRIVATE = 0o600


def write_private(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Write or replace a file atomically; by default only its owner can read it.

    If its folder or the folder above is missing, it is created for the owner only.

    Args:
        path: The file.
        data: The content of the file.
        mode: The permissions of the file; pass those of an existing file to keep them.

    Raises:
        OSError: The file cannot be written.
    """
    import tempfile

    for folder in (path.parent.parent, path.parent):  # `mkdir` applies `mode` to the last folder only
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")  # readable by its owner only
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if mode != PRIVATE:
            Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


log = get_logger(__name__)

_BYTES = 32
# Seconds to wait for another program that makes the key.
_PATIENCE = 2.0


def read_json_object(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in a file that `write_private` wrote.

    The object is empty if the file cannot be read, has more bytes, or contains anything else: what a program keeps for
    its next run can be missing, and can have been damaged by others.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
        value = json.loads(data) if len(data) <= max_bytes else None
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_or_make_key(path: Path) -> bytes:
    """Return the key in a file, 32 random bytes, which is made if it is not there.

    A file that others may read, or that belongs to somebody else, is replaced: what was sealed with its key cannot be
    opened any more.

    Raises:
        OSError: The file cannot be read or written, or another program holds it for two seconds (`TimeoutError`).
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        with lock.held(_PATIENCE):
            if (key := _read(path)) is not None:
                return key
            key = secrets.token_bytes(_BYTES)
            write_private(path, key)
            return key
    finally:
        lock.close()


def _read(path: Path) -> bytes | None:
    """Return a key that only its owner can read; None for any other file."""
    try:
        with path.open("rb") as file:
            # Of the open file: another one could take its place between a look at the name and the reading.
            status = os.fstat(file.fileno())
            key = file.read(_BYTES + 1)
    except FileNotFoundError:
        return None
    if sys.platform != "win32" and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077):
        log.warning("key_replaced", file=path.name, why="others may read it")
        return None
    return key if len(key) == _BYTES else None

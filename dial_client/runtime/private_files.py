"""Files that only their owner can read, written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600
"""The permissions of a file that its owner may read and write, and no other user."""


def write_private(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Write a file in place of the one before, atomically; it is readable by its owner only.

    Its folder and the folder above are created readable by their owner only, where they are missing.

    Args:
        path: The file.
        data: Its content.
        mode: Its permissions, where a file that was there before has to keep its own.

    Raises:
        OSError: it cannot be written.
    """
    import tempfile

    for folder in (path.parent.parent, path.parent):  # `mode` is that of the last folder only
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

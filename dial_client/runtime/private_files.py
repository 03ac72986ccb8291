"""Files that only their owner can read, written atomically."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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

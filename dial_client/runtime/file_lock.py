"""A lock between processes: a file that one of them holds at a time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Flag of `os.open` that refuses symbolic links; 0 on Windows, which has no such flag.
NO_FOLLOW = 0 if sys.platform == "win32" else os.O_NOFOLLOW
# Seconds between two attempts to lock.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.01


class FileLock:
    """Locks a file against other processes, and against other objects of this class.

    Args:
        path: The path of the file, which is created, readable by its owner only.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._handle = -1
        self._inode = 0

    @contextmanager
    def held(self, patience: float) -> Iterator[None]:
        """Hold the lock inside the context. Raises as `acquire`."""
        self.acquire(patience)
        try:
            yield
        finally:
            self.release()

    def acquire(self, patience: float) -> None:
        """Acquire the lock; wait while another process has it.

        Raises:
            TimeoutError: Another process has held the lock for `patience` seconds.
            OSError: The file cannot be opened.
        """
        if self.try_acquire():
            return
        end, pause = time.monotonic() + patience, _FIRST_PAUSE
        while not self.try_acquire():
            if time.monotonic() >= end:
                raise TimeoutError(f"another program holds {self._path}")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def close(self) -> None:
        """Close the file."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def release(self) -> None:
        """Release the lock."""
        try:  # noqa: SIM105 - runs for each line, and costs nothing
            _unlock(self._handle)
        except OSError:
            pass

    def try_acquire(self) -> bool:
        """Acquire the lock if nobody holds it, without waiting; return whether this succeeded.

        Raises:
            OSError: The file cannot be opened.
        """
        if self._handle < 0:
            flags = os.O_RDWR | os.O_CREAT | NO_FOLLOW
            self._handle = os.open(self._path, flags, 0o600)
            self._inode = os.fstat(self._handle).st_ino
        if not _lock(self._handle):
            return False
        try:
            if os.stat(self._path).st_ino == self._inode:  # noqa: PTH116 - runs for each line, and is twice as fast
                return True
        except OSError:
            pass
        # The file was removed, so the next process would lock another file.
        self.close()
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> bool:
        os.lseek(handle, 0, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)

"""Writes the audit log. Several processes append to one chain, each line in a single write under a lock."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dial_client.hooks.audit.entries import AuditEntry
from dial_client.hooks.audit.record_format import (
    FORMAT,
    Mask,
    build_fields,
    build_next_path,
    list_log_files,
    seal,
    unseal,
)
from dial_client.runtime.file_lock import NO_FOLLOW, FileLock
from dial_client.runtime.logs import get_logger

# Flag of `os.open` that writes line feeds unchanged; only Windows has it.
BINARY = 0
if sys.platform == "win32":
    BINARY = os.O_BINARY

log = get_logger(__name__)

# The most bytes of a file; the next line begins a new file.
MAX_BYTES = 10_000_000
# The number of files that are kept; the oldest is deleted first.
MAX_FILES = 10
LOCK_NAME = "audit.lock"
# Seconds to wait for another process's lock; writing a line takes microseconds.
_PATIENCE = 0.25
# Seconds to wait for the lock after a failed write, so that not every call waits for a process that hangs.
_SHORT_PATIENCE = 0.005
# The most entries that wait in memory while the log cannot be written.
_MAX_PENDING = 1000
# Bytes at the end of a file that are read to find its last line; a line is shorter.
_TAIL = 256 * 1024


@dataclass(eq=False, slots=True)
class _End:
    """The end of the chain: the file, its size, and its last line. It moves with each line."""

    path: Path
    identity: tuple[int, int]
    """The device and the inode of the file."""
    size: int
    n: int
    """The number of the last line."""
    digest: str
    """The digest of the last line."""
    is_full: bool = False
    """True if the last line announces another file."""


class AuditLog:
    """An `AuditRecorder` that writes JSON lines to files in a folder, readable by their owner only.

    A line is written to the operating system before `record` returns: it survives a crash of the program, but may be
    lost in a power failure. While the log cannot be written (a full disk), at most 1,000 entries wait in memory, and
    are written with the next entry; this is reported once.

    Args:
        folder: The folder of the files ``audit-000001.jsonl`` and so on, used for nothing else; created with the first
            entry.
        program: The name of the program in each line, such as ``dial-chat serve``; empty if there is none.
        with_arguments: True to record the complete arguments of calls, and not only their digests.
        mask: Masks known secrets in the arguments; None to mask nothing.
        max_bytes: The most bytes of a file.
        max_files: The number of files that are kept.
        on_problem: Called with a sentence when the log cannot be written, and when it can be written again.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        program: str = "",
        with_arguments: bool = False,
        mask: Mask | None = None,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._about = {"program": program, "pid": os.getpid()} if program else {"pid": os.getpid()}
        self._with_arguments = with_arguments
        self._mask = mask
        self._max_bytes = max_bytes
        self._max_files = max(1, max_files)
        self._on_problem = on_problem or (lambda problem: log.warning("audit_problem", problem=problem))
        self._lock = FileLock(self._folder / LOCK_NAME)
        self._threads = threading.Lock()
        self._pending: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._is_failing = False
        self._handle, self._file = -1, ""
        self._end: _End | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def record(self, entry: AuditEntry) -> None:
        """Append an entry to the chain."""
        fields = build_fields(entry, with_arguments=self._with_arguments, mask=self._mask)
        fields |= self._about
        with self._threads:
            self._pending.append(fields)
            self._flush()

    def close(self) -> None:
        """Write the waiting entries, and close the files. The next entry opens them again."""
        with self._threads:
            if self._pending:
                self._flush()
            self._release()
            self._lock.close()

    def _flush(self) -> None:
        try:
            if self._end is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if sys.platform != "win32" and self._folder.stat().st_mode & 0o077:
                    self._folder.chmod(0o700)
            self._lock.acquire(_SHORT_PATIENCE if self._is_failing else _PATIENCE)
            try:
                self._find_end()
                while self._pending:
                    fields = self._pending[0]
                    self._append(fields | {"lost": self._lost} if self._lost else fields)
                    self._pending.popleft()
                    self._lost = 0
            finally:
                self._lock.release()
        except OSError as error:
            self._release()
            if len(self._pending) > _MAX_PENDING:
                self._pending.popleft()
                self._lost += 1
            self._report(f"the audit log cannot be written: {error.strerror or error}", is_failing=True)
        else:
            if self._is_failing:
                self._report("the audit log can be written again", is_failing=False)

    def _report(self, problem: str, *, is_failing: bool) -> None:
        if is_failing != self._is_failing:
            self._is_failing = is_failing
            self._on_problem(problem)

    def _find_end(self) -> None:
        """Find the end of the chain, unless no other process has written since the last line of this one."""
        end = self._end
        if end is not None:
            try:
                found = os.stat(self._file)  # noqa: PTH116 - runs for each line, and is twice as fast
                if (found.st_dev, found.st_ino) == end.identity and found.st_size == end.size:
                    return
            except FileNotFoundError:
                pass
        self._release()
        files = list_log_files(self._folder)
        if not files:
            self._begin(build_next_path(self._folder, None), None)
            return
        self._open(files[-1])
        end, torn = _scan_end(files[-1], self._handle)
        if end is None:
            # The process that created this file died before it had written the whole first line.
            os.ftruncate(self._handle, 0)
            self._begin(files[-1], _read_end(files[-2]) if len(files) > 1 else None)
            return
        self._end = end
        if torn == b"\n":
            end.size += os.write(self._handle, torn)  # only the line feed was missing
        elif torn:
            about = {"torn_bytes": len(torn), "torn_digest": hashlib.sha256(torn).hexdigest()}
            self._append({"n": 0, "event": "torn", **about} | self._about, lead=b"\n")
        if end.is_full:
            self._begin(build_next_path(self._folder, end.path), end)

    def _append(self, fields: dict[str, Any], lead: bytes = b"") -> None:
        assert self._end is not None
        data = lead + self._build_line(fields, self._end)
        if self._end.size + len(data) > self._max_bytes and not lead:
            following = build_next_path(self._folder, self._end.path)
            self._write(self._build_line({"n": 0, "event": "end", "next": following.name}, self._end))
            self._begin(following, self._end)
            for path in list_log_files(self._folder)[: -self._max_files]:
                with suppress(OSError):
                    path.unlink()
            data = self._build_line(fields, self._end)
        self._write(data)

    def _build_line(self, fields: dict[str, Any], end: _End) -> bytes:
        """Return the line of fields, the first of which is a number: its place in the chain is set in them."""
        fields["n"], fields["previous"] = end.n + 1, end.digest
        return seal(fields)

    def _begin(self, path: Path, before: _End | None) -> None:
        self._open(path)
        n, digest = (before.n, before.digest) if before is not None else (0, "")
        self._end = _End(path, _read_identity(self._handle), 0, n, digest)
        fields = {"n": 0, "event": "begin", "format": FORMAT, "file": path.name} | self._about
        if before is not None:
            fields["previous_file"] = before.path.name
        self._write(self._build_line(fields, self._end))

    def _write(self, data: bytes) -> None:
        """Write a line with a single system call.

        Raises:
            OSError: Only a part could be written, which is removed again.
        """
        assert self._end is not None
        written = os.write(self._handle, data)
        if written != len(data):
            os.ftruncate(self._handle, self._end.size)
            raise OSError(None, "the disk is full")
        self._end.size += len(data)
        self._end.n += 1
        self._end.digest = data[-67:-3].decode()

    def _open(self, path: Path) -> None:
        self._release()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | NO_FOLLOW | BINARY
        self._handle, self._file = os.open(path, flags, 0o600), os.fspath(path)
        if sys.platform != "win32" and os.fstat(self._handle).st_mode & 0o077:
            path.chmod(0o600)

    def _release(self) -> None:
        handle, self._handle, self._end = self._handle, -1, None
        if handle >= 0:
            os.close(handle)


def delete_old_files(folder: Path, before: float) -> int:
    """Delete the files whose last line is older than a time, but never the newest one; return their number.

    Args:
        folder: The folder of an audit log, which programs may write to meanwhile.
        before: The time in seconds since 1970, in UTC.
    """
    count = 0
    for path in list_log_files(folder)[:-1]:
        with suppress(OSError):
            if path.stat().st_mtime >= before:
                break  # the chain stays whole: only its beginning goes
            path.unlink()
            count += 1
    return count


def _read_identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _read_end(path: Path) -> _End | None:
    """Return the end of a file; None if the file has no complete line."""
    with path.open("rb") as file:
        return _scan_end(path, file.fileno())[0]


def _scan_end(path: Path, handle: int) -> tuple[_End | None, bytes]:
    """Return the end of a file, and the torn bytes after its last complete line.

    The end is None if the file has no complete line. If only the line feed of the last line is missing, the line counts
    as complete, and a line feed is returned in place of the torn bytes.
    """
    size = os.fstat(handle).st_size
    start = max(0, size - _TAIL)
    os.lseek(handle, start, os.SEEK_SET)
    data = b""
    while chunk := os.read(handle, _TAIL):
        data += chunk
    *whole, torn = data.split(b"\n")
    if torn:
        with suppress(ValueError):
            unseal(torn)
            whole, torn = [torn], b"\n"
    if not whole:
        return None, torn
    line, identity = whole[-1], _read_identity(handle)
    try:
        fields = unseal(line)
    except ValueError:
        # The last line was edited: the chain continues, and `verification` will report that line.
        return _End(path, identity, size, 0, hashlib.sha256(line).hexdigest()), torn
    return _End(path, identity, size, fields["n"], line[-66:-2].decode(), fields.get("event") == "end"), torn

"""Reads an audit log, and verifies its hash chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client.hooks.audit.log_writer import LOCK_NAME
from dial_client.hooks.audit.record_format import list_log_files, unseal
from dial_client.runtime.file_lock import FileLock

_EDITED = "this line was edited or cut off: its bytes do not match its digest"
# Seconds to wait for the lock. A log that stays locked, or is on a read-only disk, is read without the lock.
_LOCK_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    file: Path
    number: int
    """The number of the line in its file, from 1."""
    text: bytes
    """The bytes of the line without the line feed."""
    is_whole: bool
    """True if the line ends in a line feed."""

    @property
    def fields(self) -> dict[str, Any] | None:
        """The record of the line, not verified; None if the line is not a JSON object."""
        try:
            fields = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return fields if isinstance(fields, dict) else None


@dataclass(slots=True)
class Verification:
    """The result of verifying the chain of a log."""

    lines: int = 0
    """The number of lines before the first problem."""
    files: int = 0
    first_time: str = ""
    last_time: str = ""
    first_n: int = 0
    """The number of the first line; greater than 1 if older files were deleted."""
    head: str = ""
    """The digest of the last valid line. A copy kept in another place can prove later that the log still contains that
    line and all lines before it."""
    torn: int = 0
    """The number of incomplete lines of programs that died while writing; these are not a problem."""
    problem: str = ""
    """The first problem; empty if the chain is intact."""
    problem_file: str = ""
    problem_line: int = 0
    has_head: bool | None = None
    """True if the chain contains the expected digest; None if no digest is expected."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        """True if the chain has no problem, and contains the expected digest."""
        return not self.problem and self.has_head is not False


def read_lines(folder: Path) -> Iterator[Line]:
    """Yield the lines that a log has at the start of the call, the oldest first.

    Raises:
        OSError: A file cannot be read.
    """
    for path, size in _read_sizes(folder):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue  # another process has deleted the oldest file meanwhile
        with file:
            read = 0
            for number, text in enumerate(file, 1):
                read += len(text)
                if read > size:
                    break
                yield Line(path, number, text.removesuffix(b"\n"), text.endswith(b"\n"))


def _read_sizes(folder: Path) -> list[tuple[Path, int]]:
    """Return the files and their sizes, read under the lock so that no process is writing."""
    with ExitStack() as stack:
        if (folder / LOCK_NAME).exists():
            lock = FileLock(folder / LOCK_NAME)
            stack.callback(lock.close)
            with suppress(OSError):
                stack.enter_context(lock.held(_LOCK_PATIENCE))
        return [(path, path.stat().st_size) for path in list_log_files(folder)]


def verify(folder: Path, head: str = "") -> Verification:
    """Verify that each line is unchanged, and that it follows the line that it was written after.

    Args:
        folder: The folder of the log.
        head: A digest from an earlier verification, which the chain must contain; empty if there is none.

    Raises:
        OSError: A file cannot be read.
    """
    checked = _Check(Verification(has_head=False if head else None), head.lower())
    for line in read_lines(folder):
        checked.take(line)
        if checked.result.problem:
            if checked.missing and _has_line(folder, checked.missing):
                checked.result.problem = "lines were reordered: the line that belongs before this one comes later"
            return checked.result
    checked.end()
    return checked.result


@dataclass(slots=True)
class _Check:
    """Verifies a chain line by line."""

    result: Verification
    _head: str
    missing: int = 0
    """The number of the first missing line; 0 for none."""
    _before: dict[str, Any] | None = None
    _unsealed: Line | None = None
    _file: Path | None = None

    def take(self, line: Line) -> None:
        """Verify one line."""
        if line.file != self._file:
            self._file = line.file
            self.result.files += 1
        try:
            fields = unseal(line.text)
        except ValueError:
            # The program may have died while writing the line: then the next line records this (event ``torn``).
            if self._unsealed is not None:
                self._break(self._unsealed, _EDITED)
            self._unsealed = line
            return
        if self._unsealed is not None and not _explains(fields, self._unsealed):
            self._break(self._unsealed, _EDITED)
        elif problem := self._check_position(fields):
            self._break(line, problem)
        else:
            self._accept(fields)

    def end(self) -> None:
        """Check the bytes after the last valid line."""
        if self._unsealed is not None and self._unsealed.is_whole:
            self._break(self._unsealed, _EDITED)
        elif self._unsealed is not None:
            self.result.torn += 1
            self.result.notes.append("the last line is incomplete: its program died while writing it")
        if self.result.first_n > 1:
            self.result.notes.append(f"the log begins with line {self.result.first_n}: older files were deleted")

    def _check_position(self, fields: dict[str, Any]) -> str:
        """Return why an unchanged line is in the wrong place; empty if its place is right."""
        if self._before is None:
            self.result.first_n = fields["n"]
            return "" if fields.get("event") == "begin" else "lines were removed before this one"
        expected, n = self._before["n"] + 1, fields["n"]
        if n > expected:
            self.missing = expected
            which = f"line {expected}" if n == expected + 1 else f"lines {expected} to {n - 1}"
            return f"{which} of the log {'was' if n == expected + 1 else 'were'} removed before this one"
        if n < expected:
            return f"lines were reordered or repeated: this is line {n} of the log"
        if fields.get("previous") != self._before["digest"]:
            return "the line before this one was replaced: this one was written after another line"
        return ""

    def _accept(self, fields: dict[str, Any]) -> None:
        result = self.result
        if self._unsealed is not None:
            self._unsealed = None
            result.torn += 1
        self._before = fields
        result.lines += 1
        result.head = fields["digest"]
        if self._head == fields["digest"]:
            result.has_head = True
        if time := fields.get("time"):
            result.first_time = result.first_time or time
            result.last_time = time

    def _break(self, line: Line, problem: str) -> None:
        if not self.result.problem:
            self.result.problem = problem
            self.result.problem_file, self.result.problem_line = line.file.name, line.number


def _explains(fields: dict[str, Any], line: Line) -> bool:
    """Return True if a record states that a program died while writing the line."""
    return fields.get("event") == "torn" and fields.get("torn_digest") == hashlib.sha256(line.text).hexdigest()


def _has_line(folder: Path, n: int) -> bool:
    """Return True if a log has an unchanged line with the number `n` in any place."""
    for line in read_lines(folder):
        with suppress(ValueError):
            if unseal(line.text)["n"] == n:
                return True
    return False

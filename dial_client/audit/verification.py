"""Reads an audit log, and checks its chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client.audit.file_lock import FileLock
from dial_client.audit.log_writer import LOCK_NAME
from dial_client.audit.record_format import log_files, unseal

_EDITED = "this line was edited, or cut off: its bytes are not those of its digest"
_LOCK_PATIENCE = 2.0
"""Seconds to wait for the lock; a log that stays locked, or is on a read-only disk, is read as it is."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    file: Path
    number: int
    """The number of the line in its file, from 1."""
    text: bytes
    """The bytes without the line feed."""
    is_whole: bool
    """True if the line ends in a line feed."""

    @property
    def fields(self) -> dict[str, Any] | None:
        """The record of the line, unchecked; None where it has none."""
        try:
            fields = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return fields if isinstance(fields, dict) else None


@dataclass(slots=True)
class Verification:
    """The result of checking the chain of a log."""

    lines: int = 0
    """Lines up to the first problem."""
    files: int = 0
    first_time: str = ""
    last_time: str = ""
    first_n: int = 0
    """The number of the first line; more than 1 where older files are gone."""
    head: str = ""
    """The digest of the last line that is in order: whoever keeps it elsewhere can tell later whether the log still
    has that line, and with it all before."""
    torn: int = 0
    """Lines that a program had not written whole when it died; they are in order."""
    problem: str = ""
    """What is wrong; empty where the chain is unbroken."""
    problem_file: str = ""
    problem_line: int = 0
    has_head: bool | None = None
    """Whether the expected digest is in the chain; None where none is expected."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        """True if the chain has no fault."""
        return not self.problem and self.has_head is not False


def read_lines(folder: Path) -> Iterator[Line]:
    """Return the lines of a log that are present at the call, the oldest first.

    Raises:
        OSError: a file cannot be read.
    """
    for path, size in _sizes(folder):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue  # it was the oldest, and is gone since
        with file:
            read = 0
            for number, text in enumerate(file, 1):
                read += len(text)
                if read > size:
                    break
                yield Line(path, number, text.removesuffix(b"\n"), text.endswith(b"\n"))


def _sizes(folder: Path) -> list[tuple[Path, int]]:
    """Return the files with their sizes, at a moment when no program writes."""
    with ExitStack() as stack:
        if (folder / LOCK_NAME).exists():
            lock = FileLock(folder / LOCK_NAME)
            stack.callback(lock.close)
            with suppress(OSError):
                stack.enter_context(lock.held(_LOCK_PATIENCE))
        return [(path, path.stat().st_size) for path in log_files(folder)]


def verify(folder: Path, head: str = "") -> Verification:
    """Check that each line is as it was written, and that it stands behind the line it was written behind.

    Args:
        folder: of the log.
        head: a digest that was kept elsewhere, which has to be in the chain.

    Raises:
        OSError: a file cannot be read.
    """
    checked = _Check(Verification(has_head=False if head else None), head.lower())
    for line in read_lines(folder):
        checked.take(line)
        if checked.result.problem:
            if checked.missing and _has_line(folder, checked.missing):
                checked.result.problem = "lines were reordered: the one that belongs before this one comes later"
            return checked.result
    checked.end()
    return checked.result


class _Check:
    """Walks along a chain."""

    def __init__(self, result: Verification, head: str) -> None:
        self.result = result
        self.missing = 0
        """The number of the line that should be where another one is."""
        self._head = head
        self._before: dict[str, Any] | None = None
        self._unsealed: Line | None = None
        self._file: Path | None = None

    def take(self, line: Line) -> None:
        """Check one line."""
        if line.file != self._file:
            self._file = line.file
            self.result.files += 1
        try:
            fields = unseal(line.text)
        except ValueError:
            # Its program may have died while writing it: then the next line says so.
            if self._unsealed is not None:
                self._break(self._unsealed, _EDITED)
            self._unsealed = line
            return
        if self._unsealed is not None and not _explains(fields, self._unsealed):
            self._break(self._unsealed, _EDITED)
        elif problem := self._misplaced(fields):
            self._break(line, problem)
        else:
            self._accept(fields)

    def end(self) -> None:
        """Check the bytes behind the last line."""
        if self._unsealed is not None and self._unsealed.is_whole:
            self._break(self._unsealed, _EDITED)
        elif self._unsealed is not None:
            self.result.torn += 1
            self.result.notes.append("the last line is torn: its program died while it wrote")
        if self.result.first_n > 1:
            self.result.notes.append(f"the log begins with line {self.result.first_n}: older files are gone")

    def _misplaced(self, fields: dict[str, Any]) -> str:
        """Return why an unchanged line is not where it was written; empty where it is."""
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
            return "the line before this one was replaced: this one was written behind another"
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
    """Return True if a record says that the program that was writing a line died."""
    return fields.get("event") == "torn" and fields.get("torn_digest") == hashlib.sha256(line.text).hexdigest()


def _has_line(folder: Path, n: int) -> bool:
    """Return True if a log has the line of this number anywhere."""
    for line in read_lines(folder):
        with suppress(ValueError):
            if unseal(line.text)["n"] == n:
                return True
    return False

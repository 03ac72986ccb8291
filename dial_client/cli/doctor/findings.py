"""The findings of checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dial_client.cli.doctor.finding_codes import CODES, Level


class Group(StrEnum):
    """The groups of checks; the values of ``--only``."""

    CONFIG = "config"
    SERVERS = "servers"
    TOOLS = "tools"
    MODEL = "model"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of a file's text or permissions that removes the cause of a finding."""

    description: str
    """The description in the imperative: ``rename "comand" to "command"``."""
    path: str
    edit: Callable[[str], str] | None = field(default=None, repr=False)
    """Returns the changed text of the file; None if only the permissions change."""
    mode: int | None = None
    """The new permissions of the file (POSIX); None if they do not change."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, or something that can be improved. Its texts contain no secrets."""

    code: str
    """A key of `finding_codes.CODES`."""
    text: str
    """The finding, with the name of the server, tool, or key; one line."""
    hint: str = ""
    """What to do about the finding."""
    path: str = ""
    """The file; empty if the finding is in no file."""
    line: int = 0
    """The line, counted from 1; 0 if unknown."""
    column: int = 0
    """The column, counted from 1 in characters; 0 if unknown."""
    fix: Fix | None = None

    @property
    def level(self) -> Level:
        """How serious the finding is."""
        return CODES[self.code].level

    @property
    def place(self) -> str:
        """The place in the format of compilers: ``servers.json:3:14``; empty without a file."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types."""
        return {
            "code": self.code,
            "level": self.level.value,
            "text": self.text,
            "hint": self.hint,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "fix": self.fix.description if self.fix is not None else None,
        }

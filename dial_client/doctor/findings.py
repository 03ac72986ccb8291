"""A finding of a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dial_client.doctor.finding_codes import CODES, Level


class Group(StrEnum):
    """What a check looks at; the values of ``--only``."""

    CONFIG = "config"
    SERVERS = "servers"
    TOOLS = "tools"
    MODEL = "model"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that removes the cause of a finding: of a configuration's text, or of the permissions of a file."""

    description: str
    """In the imperative: ``rename "comand" to "command"``."""
    path: str
    edit: Callable[[str], str] | None = field(default=None, repr=False)
    """Returns the changed text of the file; None where only the mode is changed."""
    mode: int | None = None
    """The permissions of the file (POSIX)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or not as good as it could be. No text of it holds a secret."""

    code: str
    """A key of `finding_codes.CODES`."""
    text: str
    """The finding, with the name of the server, tool, or key; one line."""
    hint: str = ""
    """What to do about the finding."""
    path: str = ""
    """The file; empty if the finding is in no file."""
    line: int = 0
    """Counted from 1; 0 if unknown."""
    column: int = 0
    """Counted from 1, in characters; 0 if unknown."""
    fix: Fix | None = None

    @property
    def level(self) -> Level:
        """How serious the finding is."""
        return CODES[self.code].level

    @property
    def place(self) -> str:
        """The place as compilers write it: ``servers.json:3:14``; empty without a file."""
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

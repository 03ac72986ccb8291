"""The findings of checks, and their codes. A code keeps its meaning; a removed code is not used again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How serious a finding is. Errors make the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class FindingCode:
    """The level and the title of a code."""

    level: Level
    title: str
    """The heading of the code in docs/doctor.md."""


def _build_error(title: str) -> FindingCode:
    return FindingCode(Level.ERROR, title)


def _build_warning(title: str) -> FindingCode:
    return FindingCode(Level.WARNING, title)


def _build_info(title: str) -> FindingCode:
    return FindingCode(Level.INFO, title)


CODES: Mapping[str, FindingCode] = {
    "DC101": _build_error("the file is not JSON"),
    "DC102": _build_warning("an unknown key has no effect"),
    "DC103": _build_error("a variable is not set"),
    "DC104": _build_error("a value is wrong"),
    "DC105": _build_error("a file cannot be read"),
    "DC106": _build_error("an entry names neither a program nor an address"),
    "DC107": _build_error("two keys contradict each other"),
    "DC108": _build_warning("a time is in the wrong unit"),
    "DC109": _build_warning("a variable is written without braces"),
    "DC110": _build_warning("the file contains a secret"),
    "DC111": _build_warning("other users can read a file with secrets"),
    "DC112": _build_error("a secret is sent without encryption"),
    "DC113": _build_error("a folder does not exist"),
    "DC114": _build_warning("a file of this folder is not trusted"),
    "DC115": _build_info("there is no configuration"),
    "DC116": _build_warning("a pattern matches nothing"),
    "DC117": _build_warning("two entries are the same server"),
    "DC201": _build_error("a program was not found"),
    "DC202": _build_error("the command contains its arguments"),
    "DC203": _build_warning("npx asks before it installs"),
    "DC204": _build_error("docker does not pass on standard input"),
    "DC205": _build_error("docker allocates a terminal"),
    "DC206": _build_error("a script does not exist"),
    "DC207": _build_error("Node.js is too old"),
    "DC208": _build_warning("a server can reach more than it should need"),
    "DC301": _build_error("a server does not start"),
    "DC302": _build_warning("a server is not ready after 10 seconds"),
    "DC303": _build_info("a server starts slowly"),
    "DC304": _build_warning("a server prints to its standard output"),
    "DC305": _build_error("a server cannot be reached"),
    "DC306": _build_error("a server requires a login"),
    "DC307": _build_info("a server offers nothing"),
    "DC308": _build_info("a server behaves unusually"),
    "DC401": _build_warning("a description gives instructions to the model"),
    "DC402": _build_warning("a description has invisible text"),
    "DC403": _build_warning("a description mentions a tool of another server"),
    "DC404": _build_info("two servers have a tool of the same name"),
    "DC405": _build_warning("the schema of a tool is not valid"),
    "DC406": _build_warning("the tools take a large part of the context window"),
    "DC407": _build_info("a tool has no description"),
    "DC408": _build_warning("a tool asks for secrets or for the conversation"),
    "DC409": _build_warning("a tool has changed since it was approved"),
    "DC410": _build_info("the definitions of one server are large"),
    "DC501": _build_error("there is no such model"),
    "DC502": _build_error("a key is missing"),
    "DC503": _build_error("a key is refused"),
    "DC504": _build_error("the endpoint does not have the model"),
    "DC505": _build_error("the endpoint cannot be reached"),
    "DC506": _build_warning("the API has another address"),
    "DC507": _build_warning("the clock is wrong"),
    "DC508": _build_error("a certificate cannot be verified"),
    "DC509": _build_warning("a proxy is set and cannot be used"),
    "DC510": _build_error("the embedded model is not installed"),
    "DC511": _build_info("the weights of the embedded model are not downloaded yet"),
    "DC512": _build_warning("the memory is too small for the embedded model"),
    "DC513": _build_info("no model is named"),
    "DC514": _build_error("the endpoint has another API"),
    "DC601": _build_error("the database cannot be used"),
    "DC602": _build_error("the database is of a newer version"),
    "DC603": _build_info("the next start migrates the database"),
    "DC604": _build_error("a folder of this program cannot be written"),
    "DC901": _build_warning("a check was not completed"),
}


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

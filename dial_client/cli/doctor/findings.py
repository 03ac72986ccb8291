"""The findings of checks, and their codes. A code keeps its meaning; a removed code is not used again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
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


_ERROR, _WARNING, _INFO = (partial(FindingCode, level) for level in Level)
CODES: Mapping[str, FindingCode] = {
    "DC101": _ERROR("the file is not JSON"),
    "DC102": _WARNING("an unknown key has no effect"),
    "DC103": _ERROR("a variable is not set"),
    "DC104": _ERROR("a value is wrong"),
    "DC105": _ERROR("a file cannot be read"),
    "DC106": _ERROR("an entry names neither a program nor an address"),
    "DC107": _ERROR("two keys contradict each other"),
    "DC108": _WARNING("a time is in the wrong unit"),
    "DC109": _WARNING("a variable is written without braces"),
    "DC110": _WARNING("the file contains a secret"),
    "DC111": _WARNING("other users can read a file with secrets"),
    "DC112": _ERROR("a secret is sent without encryption"),
    "DC113": _ERROR("a folder does not exist"),
    "DC114": _ERROR("a file of this folder is not trusted"),
    "DC115": _INFO("there is no configuration"),
    "DC116": _WARNING("a pattern matches nothing"),
    "DC117": _WARNING("two entries are the same server"),
    "DC201": _ERROR("a program was not found"),
    "DC202": _ERROR("the command contains its arguments"),
    "DC203": _WARNING("npx asks before it installs"),
    "DC204": _ERROR("docker does not pass on standard input"),
    "DC205": _ERROR("docker allocates a terminal"),
    "DC206": _ERROR("a script does not exist"),
    "DC207": _ERROR("Node.js is too old"),
    "DC208": _WARNING("a server can reach more than it should need"),
    "DC301": _ERROR("a server does not start"),
    "DC302": _WARNING("a server is not ready after 10 seconds"),
    "DC303": _INFO("a server starts slowly"),
    "DC304": _WARNING("a server prints to its standard output"),
    "DC305": _ERROR("a server cannot be reached"),
    "DC306": _ERROR("a server requires a login"),
    "DC307": _INFO("a server offers nothing"),
    "DC308": _INFO("a server behaves unusually"),
    "DC401": _WARNING("a description gives instructions to the model"),
    "DC402": _WARNING("a description has invisible text"),
    "DC403": _WARNING("a description mentions a tool of another server"),
    "DC404": _INFO("two servers have a tool of the same name"),
    "DC405": _WARNING("the schema of a tool is not valid"),
    "DC406": _WARNING("the tools take a large part of the context window"),
    "DC407": _INFO("a tool has no description"),
    "DC408": _WARNING("a tool asks for secrets or for the conversation"),
    "DC409": _WARNING("a tool has changed since it was approved"),
    "DC410": _INFO("the definitions of one server are large"),
    "DC501": _ERROR("there is no such model"),
    "DC502": _ERROR("a key is missing"),
    "DC503": _ERROR("a key is refused"),
    "DC504": _ERROR("the endpoint does not have the model"),
    "DC505": _ERROR("the endpoint cannot be reached"),
    "DC506": _WARNING("the API has another address"),
    "DC507": _WARNING("the clock is wrong"),
    "DC508": _ERROR("a certificate cannot be verified"),
    "DC509": _WARNING("a proxy is set and cannot be used"),
    "DC510": _ERROR("the embedded model is not installed"),
    "DC511": _INFO("the weights of the embedded model are not downloaded yet"),
    "DC512": _WARNING("the memory is too small for the embedded model"),
    "DC513": _INFO("no model is named"),
    "DC514": _ERROR("the endpoint has another API"),
    "DC515": _WARNING("another model of the configuration does not work"),
    "DC516": _ERROR("nobody pays for answers with this key"),
    "DC601": _ERROR("the database cannot be used"),
    "DC602": _ERROR("the database is of a newer version"),
    "DC603": _INFO("the next start migrates the database"),
    "DC604": _ERROR("a folder of this program cannot be written"),
    "DC901": _WARNING("a check was not completed"),
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
    """A key of `CODES`."""
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
        fix = self.fix.description if self.fix is not None else None
        return {"code": self.code, "level": self.level.value} | asdict(self) | {"fix": fix}

"""The codes of findings. A code keeps its meaning; a removed code is not used again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


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


def _error(title: str) -> FindingCode:
    return FindingCode(Level.ERROR, title)


def _warning(title: str) -> FindingCode:
    return FindingCode(Level.WARNING, title)


def _info(title: str) -> FindingCode:
    return FindingCode(Level.INFO, title)


CODES: Mapping[str, FindingCode] = {
    "DC101": _error("the file is not JSON"),
    "DC102": _warning("an unknown key has no effect"),
    "DC103": _error("a variable is not set"),
    "DC104": _error("a value is wrong"),
    "DC105": _error("a file cannot be read"),
    "DC106": _error("an entry names neither a program nor an address"),
    "DC107": _error("two keys contradict each other"),
    "DC108": _warning("a time is in the wrong unit"),
    "DC109": _warning("a variable is written without braces"),
    "DC110": _warning("the file contains a secret"),
    "DC111": _warning("other users can read a file with secrets"),
    "DC112": _error("a secret is sent without encryption"),
    "DC113": _error("a folder does not exist"),
    "DC114": _warning("a file of this folder is not trusted"),
    "DC115": _info("there is no configuration"),
    "DC116": _warning("a pattern matches nothing"),
    "DC117": _warning("two entries are the same server"),
    "DC201": _error("a program was not found"),
    "DC202": _error("the command contains its arguments"),
    "DC203": _warning("npx asks before it installs"),
    "DC204": _error("docker does not pass on standard input"),
    "DC205": _error("docker allocates a terminal"),
    "DC206": _error("a script does not exist"),
    "DC207": _error("Node.js is too old"),
    "DC208": _warning("a server can reach more than it should need"),
    "DC301": _error("a server does not start"),
    "DC302": _warning("a server is not ready after 10 seconds"),
    "DC303": _info("a server starts slowly"),
    "DC304": _warning("a server prints to its standard output"),
    "DC305": _error("a server cannot be reached"),
    "DC306": _error("a server requires a login"),
    "DC307": _info("a server offers nothing"),
    "DC308": _info("a server behaves unusually"),
    "DC401": _warning("a description gives instructions to the model"),
    "DC402": _warning("a description has invisible text"),
    "DC403": _warning("a description mentions a tool of another server"),
    "DC404": _info("two servers have a tool of the same name"),
    "DC405": _warning("the schema of a tool is not valid"),
    "DC406": _warning("the tools take a large part of the context window"),
    "DC407": _info("a tool has no description"),
    "DC408": _warning("a tool asks for secrets or for the conversation"),
    "DC409": _warning("a tool has changed since it was approved"),
    "DC410": _info("the definitions of one server are large"),
    "DC501": _error("there is no such model"),
    "DC502": _error("a key is missing"),
    "DC503": _error("a key is refused"),
    "DC504": _error("the endpoint does not have the model"),
    "DC505": _error("the endpoint cannot be reached"),
    "DC506": _warning("the API has another address"),
    "DC507": _warning("the clock is wrong"),
    "DC508": _error("a certificate cannot be verified"),
    "DC509": _warning("a proxy is set and cannot be used"),
    "DC510": _error("the embedded model is not installed"),
    "DC511": _info("the weights of the embedded model are not downloaded yet"),
    "DC512": _warning("the memory is too small for the embedded model"),
    "DC513": _info("no model is named"),
    "DC514": _error("the endpoint has another API"),
    "DC601": _error("the database cannot be used"),
    "DC602": _error("the database is of a newer version"),
    "DC603": _info("the next start migrates the database"),
    "DC604": _error("a folder of this program cannot be written"),
    "DC901": _warning("a check was not completed"),
}

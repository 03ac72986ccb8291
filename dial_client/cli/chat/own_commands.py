"""Commands of the user: Markdown files whose text is sent to the model, with the arguments of the command in it.

    ---
    description: find the cause of an issue
    argument-hint: NUMBER
    ---
    Find the cause of issue $1. $ARGUMENTS

The description and the hint are shown in ``/help`` and in the menu of commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.settings.config_trust import FoundFile

# The characters of a name; a colon would be the prompt of a server.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}\Z")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PLACEHOLDER = re.compile(r"\$(ARGUMENTS\b|[1-9])")
_MAX_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """A command whose text is in a file."""

    name: str
    """The name with its slash."""
    text: str
    """The text for the model, with ``$ARGUMENTS`` and ``$1`` to ``$9``."""
    description: str
    """The description in one line; by default the first line of the text."""
    arguments: str
    """The arguments in ``/help``; empty if the file names none."""
    path: Path

    def build_message(self, arguments: str) -> str:
        """Return the text with the arguments in it; without a place for them, they follow the text."""
        try:
            words = shlex.split(arguments)
        except ValueError:  # a quotation mark that is not closed
            words = arguments.split()

        def fill(found: re.Match[str]) -> str:
            if found[1] == "ARGUMENTS":
                return arguments
            return words[int(found[1]) - 1] if int(found[1]) <= len(words) else ""

        text = _PLACEHOLDER.sub(fill, self.text)
        has_place = _PLACEHOLDER.search(self.text) is not None
        return text if has_place or not arguments else f"{text}\n\n{arguments}"


def read_own_commands(files: Iterable[FoundFile], taken: Collection[str]) -> tuple[dict[str, OwnCommand], list[str]]:
    """Return the commands of files by their names, and a sentence about each file that is not a command.

    Args:
        files: The files; of two with the same name, the later one is used.
        taken: The names of the program's own commands, with their slashes.
    """
    commands: dict[str, OwnCommand] = {}
    problems: list[str] = []
    for file in files:
        name = f"/{file.path.stem.lower()}"
        if not _NAME.match(name[1:]):
            problems.append(f"{file.path} is no command: its name may have letters, digits, - and _")
        elif name in taken:
            problems.append(f"{file.path} is no command: {name} is a command of dial-chat")
        else:
            if name in commands:
                problems.append(f"{file.path} is used for {name}, and not {commands[name].path}")
            commands[name] = _read_command(name, file)
    return commands, problems


def _read_command(name: str, file: FoundFile) -> OwnCommand:
    text = sanitize(file.text.removeprefix("\ufeff"))
    fields: dict[str, str] = {}
    if front := _FRONT_MATTER.match(text):
        text = text[front.end() :]
        for line in front[1].splitlines():
            key, colon, value = line.partition(":")
            if colon:
                fields[key.strip().lower()] = value.strip().strip("\"'")
    text = text.strip()
    described = fields.get("description") or text.partition("\n")[0].lstrip("# ")
    hint = fields.get("argument-hint") or ("ARGUMENTS" if _PLACEHOLDER.search(text) else "")
    return OwnCommand(name, text, to_one_line(described, _MAX_DESCRIPTION), to_one_line(hint, 60), file.path)

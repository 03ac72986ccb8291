"""Skills of the program: those of the user's configuration folder, of ``"skills"``, and of the working folder.

A skill below the working folder was written by others, so it is not used before the user trusts it: by the content of
all its files, as a ``servers.json`` (`settings.config_trust`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dial_client.cli.streams.error_stream import warn_once
from dial_client.messages.errors import ConfigError
from dial_client.settings.config_locations import build_user_config_path
from dial_client.settings.config_trust import FoundFile, read_found
from dial_client.settings.config_types import Settings, SkillFolder

# The folder of skills in the user's configuration folder, and the folders of skills in the working folder.
USER_SKILLS = "skills"
SKILL_FILE = "SKILL.md"
FOLDER_SKILLS = (Path(".dial", "skills"), Path(".claude", "skills"))


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text below the working folder, such as a ``SKILL.md``, with its content at that moment."""

    file: FoundFile
    files: Mapping[str, str] = field(default_factory=dict)
    """For a ``SKILL.md``, the SHA-256 of the skill's other files, by their paths in the skill with ``/``."""

    def to_folder(self) -> SkillFolder:
        """Return a skill for a client, which compares each file that it reads."""
        return SkillFolder(self.file.path.parent, {self.file.path.name: self.file.digest, **self.files})


def list_own_folders(settings: Settings) -> list[SkillFolder]:
    """Return the skills that need no trust: of the user's folder, and of ``"skills"`` outside the working folder."""
    folder = build_user_config_path().parent / USER_SKILLS
    named = [path for path in settings.skills if not is_below(path)]
    return [SkillFolder(path) for path in _list_valid([*([folder] if folder.is_dir() else []), *named])]


def find_folder_skills(settings: Settings) -> list[FoundText]:
    """Return the skills below the working folder, each with the digests of its files."""
    named = [path for path in settings.skills if is_below(path)]
    found: list[FoundText] = []
    for path in _list_valid([*(path for path in FOLDER_SKILLS if path.is_dir()), *named]):
        if not is_below(path):
            warn_once(f"not used: {path} is a link out of the working folder")
            continue
        try:
            found.append(read_found_skill(path))
        except ConfigError as error:
            warn_once(f"not used: {error}")
    return found


def read_found_skill(folder: Path) -> FoundText:
    """Read a skill, and the digests of its files.

    Raises:
        ConfigError: A file cannot be read, or there are too many files or bytes.
    """
    from dial_client.tools.skills.skill_folders import hash_files

    digests = hash_files(folder)
    # The bytes that are shown are the bytes that are trusted: those of the next reading.
    digests.pop(SKILL_FILE, None)
    return FoundText(read_found(folder / SKILL_FILE), digests)


def _list_valid(places: list[Path]) -> Iterator[Path]:
    """Yield the folders of the skills at some places; a warning names each that is wrong."""
    if not places:
        return
    from dial_client.tools.skills.skill_folders import find_skill_folders, read_skill

    for place in places:
        try:
            folders = find_skill_folders(place)
        except ConfigError as error:
            warn_once(f"not used: {error}")
            continue
        for folder in folders:
            try:
                read_skill(SkillFolder(folder))
            except ConfigError as error:
                warn_once(f"not used: {error}")
            else:
                yield folder


def is_below(path: Path) -> bool:
    """Return True for a folder in the working folder, whatever links lead to it."""
    return path.resolve().is_relative_to(Path.cwd().resolve())

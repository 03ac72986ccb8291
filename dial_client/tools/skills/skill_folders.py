"""Skills in folders on this machine: the folders that have one, and the files in them that the model may read.

A skill has only regular files below its folder: no symbolic link in it is followed, and names that begin with a dot are
left out. A file that the user trusted by its content is compared with its SHA-256 each time it is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dial_client.messages.errors import ConfigError
from dial_client.settings.config_locations import report_unreadable
from dial_client.settings.config_types import SkillFolder
from dial_client.tools.skills.skill_document import FILE_NAME, SkillDocument, parse_skill

# Maximum number of skills in one folder of skills.
MAX_SKILLS = 200
# Maximum number of files of one skill, and of bytes of all of them: what SEP-2640 has hosts support.
MAX_FILES, MAX_BYTES = 512, 16 * 1024 * 1024
# Maximum bytes of a SKILL.md.
MAX_DOCUMENT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalSkill:
    """A skill in a folder, with its ``SKILL.md`` as it was read."""

    document: SkillDocument
    root: Path
    """The real path of the folder."""
    digests: Mapping[str, str] | None = field(default=None, repr=False)
    """As `SkillFolder.digests`."""

    @property
    def name(self) -> str:
        """The name of the skill, which is the name of its folder."""
        return self.document.name

    def list_files(self) -> tuple[str, ...]:
        """Return the paths of the files besides ``SKILL.md``, with ``/``, sorted.

        Raises:
            ConfigError: The folder has too many files, or cannot be read.
        """
        names = self.digests if self.digests is not None else _list_files(self.root)
        return tuple(sorted(name for name in names if name != FILE_NAME))

    def read_file(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            ConfigError: The skill has no such file, or the file is not the one that was trusted.
        """
        if name != FILE_NAME and name not in self.list_files():
            hint = "the files are those that the text of the skill lists"
            raise ConfigError(f"the skill {self.name} has no file {name[:200]!r}", hint)
        data = _read_bounded(self.root, name)
        if self.digests is not None and compute_digest(data) != self.digests.get(name):
            raise ConfigError(f"{name} of the skill {self.name} has changed since it was trusted")
        return data


def find_skill_folders(path: Path) -> tuple[Path, ...]:
    """Return the folder itself if it has a ``SKILL.md``, else the folders in it that have one, sorted by name.

    Raises:
        ConfigError: There is no such folder, it cannot be read, or it has more than `MAX_SKILLS` skills.
    """
    with report_unreadable(path):
        if (path / FILE_NAME).is_file():
            return (path,)
        found = sorted(child for child in path.iterdir() if (child / FILE_NAME).is_file())
    if len(found) > MAX_SKILLS:
        raise ConfigError(f"a folder has at most {MAX_SKILLS} skills", f"this one has {len(found):,}", str(path))
    return tuple(found)


def read_skill(folder: SkillFolder) -> LocalSkill:
    """Read the ``SKILL.md`` of a folder.

    Raises:
        ConfigError: The file cannot be read, is no skill, is not the one that was trusted, or has another name than its
            folder.
    """
    path = folder.path / FILE_NAME
    with report_unreadable(path):
        root = Path(os.path.realpath(folder.path))
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise ConfigError(f"a SKILL.md has at most {MAX_DOCUMENT:,} bytes", path=str(path))
    if folder.digests is not None and compute_digest(data) != folder.digests.get(FILE_NAME):
        raise ConfigError("has changed since it was trusted", path=str(path))
    document = parse_skill(data, str(path))
    if document.name != folder.path.absolute().name:
        hint = f"name the folder {document.name}, or change the name in the file"
        raise ConfigError(f"the name {document.name} is not that of the folder", hint, str(path), 2)
    return LocalSkill(document, root, folder.digests)


def read_skills(folder: SkillFolder) -> Iterator[LocalSkill]:
    """Yield the skills of a folder, which is one skill or has several.

    Raises:
        ConfigError: As `find_skill_folders` and `read_skill`.
    """
    for path in find_skill_folders(folder.path):
        yield read_skill(SkillFolder(path, folder.digests))


def hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a skill, by its path in the folder with ``/``.

    Raises:
        ConfigError: A file cannot be read, or the skill has too many files or bytes.
    """
    room, digests = MAX_BYTES, {}
    for name in _list_files(folder):
        data = _read_bounded(folder, name)
        room -= len(data)
        if room < 0:
            raise ConfigError(f"the files of a skill have at most {MAX_BYTES:,} bytes", path=str(folder))
        digests[name] = compute_digest(data)
    return digests


def compute_digest(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _list_files(root: Path) -> tuple[str, ...]:
    """Return the paths of the regular files in a folder, with ``/``, sorted."""
    found: list[str] = []
    with report_unreadable(root):
        for folder, folders, names in os.walk(root, followlinks=False):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and _is_inside(root, folder, name))
            for name in names:
                path = Path(folder, name)
                if not name.startswith(".") and not path.is_symlink() and path.is_file():
                    found.append(path.relative_to(root).as_posix())
            if len(found) > MAX_FILES:
                raise ConfigError(f"a skill has at most {MAX_FILES} files", path=str(root))
    return tuple(sorted(found))


def _is_inside(root: Path, folder: str, name: str) -> bool:
    """Return False for a link to a folder, and for a junction of Windows."""
    real = os.path.realpath(os.path.join(folder, name))  # noqa: PTH118 - compared as text
    return real == os.path.join(os.path.realpath(folder), name) and Path(real).is_relative_to(os.path.realpath(root))  # noqa: PTH118


def _read_bounded(root: Path, name: str) -> bytes:
    path = root / name
    with report_unreadable(path), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"a file of a skill has at most {MAX_BYTES:,} bytes", path=str(path))
    return data

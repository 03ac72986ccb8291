"""Trust in configurations found in a folder: such a file has no effect before the user trusts it.

    read_found    reads the file once -> `FoundFile`
    EnvFiles      reads the files of variables that a configuration names, each once
    TrustStore    stores the trusted files in the user's own data folder -> `TrustedFile`

Trust is bound to one location, and to the SHA-256 of the file and of every ``envFile`` it names (CVE-2025-54136: an
approval stored by name stayed valid after the command had changed). The hashed bytes are the bytes used: no file is
read twice. The store may have been tampered with, so an invalid file in it counts as no trust.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath

from dial_client.messages.errors import ConfigError
from dial_client.runtime.private_files import read_json_object, write_private
from dial_client.settings.config_locations import report_unreadable, resolve_location
from dial_client.settings.config_types import Outline, is_enabled
from dial_client.settings.config_values import Variables, find_references

# Maximum bytes of a found configuration file, and of each file of variables that it names.
MAX_BYTES = 1024 * 1024
# Used in place of the hash of a file that does not exist or cannot be read.
UNREADABLE = "unreadable"
# Version of the format of the store's files; files of other versions are not read.
FORM = 1
_MAX_STORED = 8 * MAX_BYTES


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A found configuration file, and its content at that moment."""

    path: Path
    """The path under which the file was found."""
    location: str
    """The real path of the folder, with the file's name: see `resolve_location`."""
    target: str
    """The real path of the file, with symbolic links resolved."""
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def text(self) -> str:
        """The content as text to show; bytes that are not text are replaced."""
        return self.data.decode(json.detect_encoding(self.data), "replace")


@dataclass(frozen=True, slots=True)
class TrustedFile:
    """A file that the user trusts, as it was at that moment."""

    location: str
    target: str
    digest: str
    env_files: Mapping[str, str]
    """Maps the path of each file of variables to its SHA-256, or to `UNREADABLE`."""
    text: str = field(repr=False)
    """The content, to show the difference after a change."""
    trusted_at: str
    """The time of the user's decision, in UTC (ISO 8601)."""
    noted: str = ""
    """The SHA-256 of a later content of which the user was told that its changes need no question; or empty."""

    def matches(self, found: FoundFile) -> bool:
        """Return True if a file has the content and the location that were trusted."""
        return (self.location, self.target, self.digest) == (found.location, found.target, found.digest)


def read_found(path: Path) -> FoundFile:
    """Read a found configuration file.

    Raises:
        ConfigError: The file cannot be read, is no regular file, or is larger than `MAX_BYTES`.
    """
    location, target = resolve_location(path), os.path.realpath(path)
    with report_unreadable(path):
        if not path.is_file():
            problem = "this is not a regular file" if path.exists() else "there is no such file"
            raise ConfigError(f"cannot be read: {problem}", path=str(path))
        data = _read_bounded(path)
    if data is None:
        raise ConfigError(f"a configuration found in a folder must not exceed {MAX_BYTES:,} bytes", path=str(path))
    return FoundFile(path, location, target, data)


class EnvFiles:
    """Files of variables, each read once, so that the bytes shown and hashed are the bytes used."""

    def __init__(self) -> None:
        self._read: dict[Path, bytes | None] = {}

    def read(self, path: Path) -> bytes | None:
        """Return the content of a file; None if it cannot be read, or is larger than `MAX_BYTES`."""
        if path not in self._read:
            try:
                self._read[path] = _read_bounded(path) if path.is_file() else None
            except (OSError, ValueError):
                self._read[path] = None
        return self._read[path]

    def peek(self, name: str, folder: Path) -> bytes | None:
        """Return the content of a file of variables that an untrusted configuration in this folder names.

        Returns None, without reading, for a name with variables, a file outside the folder, and a symbolic link. In
        Windows, reading a network path would open a connection.
        """
        relative = PurePath(name)
        if find_references(name) or "${" in name or relative.anchor or name.startswith("~") or ".." in relative.parts:
            return None
        path = folder / relative
        try:
            has_link = any(part.is_symlink() for part in (path, *path.parents[: len(relative.parts) - 1]))
        except (OSError, ValueError):
            return None
        return None if has_link else self.read(path)

    def hash_files(self, outline: Outline, variables: Variables) -> dict[str, str]:
        """Return, by path, the SHA-256 or `UNREADABLE` for each file of variables that an enabled server names."""
        found: dict[str, str] = {}
        for entry in outline.servers.values():
            if "envFile" in entry and is_enabled(entry):
                try:
                    path = variables.folder / variables.expand_text(entry["envFile"], home=True)
                except ConfigError:  # a variable in the path is not set: the server cannot use the file
                    continue
                data = self.read(path)
                found[str(path)] = UNREADABLE if data is None else hashlib.sha256(data).hexdigest()
        return found


class TrustStore:
    """The trusted files: a folder with one file for each location, readable by its owner only.

    Files are written atomically; several programs may use the store at once.

    Args:
        folder: The folder of the store; None for the default folder in the user's data folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        if folder is None:
            from platformdirs import user_data_dir

            folder = Path(user_data_dir("dial-client"), "trusted-files")
        self.folder = Path(folder)
        """The folder of the store; a decision changes its time of modification."""

    def find(self, location: str) -> TrustedFile | None:
        """Return the trusted file of a location; None if there is none, or the stored data is invalid."""
        trusted = _read_stored(self._build_path(location))
        return trusted if trusted is not None and trusted.location == location else None

    def save(self, found: FoundFile, env_files: Mapping[str, str]) -> TrustedFile:
        """Trust a file as it was read; this replaces the trusted file of the same location.

        Raises:
            OSError: The store cannot be written.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        trusted = TrustedFile(found.location, found.target, found.digest, dict(env_files), found.text, now)
        self._write(trusted)
        return trusted

    def note(self, trusted: TrustedFile, digest: str) -> None:
        """Store that the user was told about a later content of a trusted file; this trusts nothing.

        Raises:
            OSError: The store cannot be written.
        """
        if self.find(trusted.location) == trusted:  # else the user has decided anew, or has revoked the trust
            self._write(replace(trusted, noted=digest))

    def revoke(self, location: str) -> bool:
        """Remove the trusted file of a location; return False if there was none.

        Raises:
            OSError: The stored file cannot be removed.
        """
        path = self._build_path(location)
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed

    def list(self) -> list[TrustedFile]:
        """Return all trusted files, sorted by location."""
        try:
            paths = sorted(self.folder.glob("*.json"))
        except OSError:
            return []
        stored = ((path, _read_stored(path)) for path in paths)
        files = [
            trusted for path, trusted in stored if trusted is not None and path == self._build_path(trusted.location)
        ]
        return sorted(files, key=lambda trusted: trusted.location)

    def _write(self, trusted: TrustedFile) -> None:
        data = json.dumps({"form": FORM, **asdict(trusted)}, indent=1).encode()
        write_private(self._build_path(trusted.location), data)

    def _build_path(self, location: str) -> Path:
        return self.folder / f"{hashlib.sha256(os.fsencode(location)).hexdigest()[:32]}.json"


def _read_bounded(path: Path) -> bytes | None:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    return data if len(data) <= MAX_BYTES else None


def _read_stored(path: Path) -> TrustedFile | None:
    value = read_json_object(path, _MAX_STORED)
    if value.pop("form", None) != FORM:
        return None
    try:
        trusted = TrustedFile(**value)
        texts = (trusted.location, trusted.target, trusted.digest, trusted.text, trusted.trusted_at, trusted.noted)
        is_valid = all(isinstance(text, str) for text in (*texts, *trusted.env_files.values()))
    except (TypeError, AttributeError):
        return None
    return trusted if is_valid else None

"""Changes of a configuration file: the edited text is checked, the old file is backed up, and the file is replaced.

    read_text     reads the file -> `ConfigText`; for a missing file, the text of an empty configuration
    write_text    writes the changed text, if it is a valid configuration

Comments and the order of keys are preserved, because a change is an edit of the text (`jsonc_editor`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.private_files import write_private
from dial_client.settings import configuration
from dial_client.settings.config_trust import MAX_BYTES

EMPTY = "{\n}\n"
"""The text of an empty configuration, used for a file that does not exist yet."""
BACKUP_SUFFIX = ".bak"


@dataclass(frozen=True, slots=True)
class ConfigText:
    """The text of a configuration at the moment it was read."""

    path: Path
    text: str = field(repr=False)
    data: bytes | None = field(repr=False)
    """The content of the file in bytes; None if there is no file yet."""

    @property
    def is_new(self) -> bool:
        """True if there is no file yet."""
        return self.data is None


def read_text(path: Path) -> ConfigText:
    """Read a configuration in order to change it.

    Raises:
        ConfigError: The file cannot be read, is larger than `config_trust.MAX_BYTES`, or is not UTF-8.
    """
    try:
        if not path.exists():
            return ConfigText(path, EMPTY, None)
        if not path.is_file():
            raise ConfigError("this is not a regular file", path=str(path))
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {describe_system_error(error)}", path=str(path)) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"a configuration to edit must not exceed {MAX_BYTES:,} bytes", path=str(path))
    try:
        return ConfigText(path, data.decode(), data)
    except UnicodeDecodeError:
        raise ConfigError("this is not text in UTF-8", "save the file as UTF-8", str(path)) from None


def write_text(original: ConfigText, text: str) -> Path | None:
    """Replace the text of a configuration file, after a backup of the old file.

    The file is replaced atomically. A new file and the backup are readable by their owner only; an existing file keeps
    its permissions. If the path is a symbolic link, its target is replaced.

    Args:
        original: The configuration as it was read.
        text: The changed text.

    Returns:
        The path of the backup; None if there was no file.

    Raises:
        ConfigError: The text is no valid configuration, the file has changed since it was read, or it cannot be
            written.
    """
    check_text(text, original)
    target = Path(os.path.realpath(original.path))
    try:
        if (target.read_bytes() if target.exists() else None) != original.data:
            raise ConfigError("another program has changed the file meanwhile", "try again", str(original.path))
        if original.data is None:
            write_private(target, text.encode())
            return None
        backup = target.with_name(target.name + BACKUP_SUFFIX)
        write_private(backup, original.data)
        mode = target.stat().st_mode & 0o777
        write_private(target, text.encode(), mode=mode)
    except OSError as error:
        raise ConfigError(f"cannot be written: {describe_system_error(error)}", path=str(original.path)) from None
    return backup


def check_text(text: str, original: ConfigText) -> None:
    """Check that a changed text consists of entries, and is a valid configuration unless the old text was invalid too.

    Unset variables and missing files of variables are no errors.

    Raises:
        ConfigError: The text is invalid; the error names the place, and what was expected.
    """
    configuration.outline(text, str(original.path))
    problem = find_problem(text, original.path)
    if problem is not None and find_problem(original.text, original.path) is None:
        raise problem


def find_problem(text: str, path: Path) -> ConfigError | None:
    """Return the error of an invalid configuration, ignoring unset variables; None if it is valid."""
    problem: ConfigError | None = None
    for value_of in _SAMPLE_VALUES:
        try:
            configuration.parse(text, path=str(path), environ=_SampleEnvironment(value_of), read=lambda _: b"")
        except ConfigError as error:
            problem = error
        else:
            return None
    return problem


_SAMPLE_URL = "https://localhost"
_URL_NAME = re.compile(r"(?i)url|uri|endpoint|address|base|server")
_PART_NAME = re.compile(r"(?i)port|key|token|secret|password|name|user|id$|host|version")
_SAMPLE_VALUES: tuple[Callable[[str], str | None], ...] = (
    lambda name: None,  # noqa: ARG005 - no value: enough if every variable has a default
    lambda name: "1",  # noqa: ARG005 - a port, a part of a host or of a path, a key
    lambda name: _SAMPLE_URL if _URL_NAME.search(name) else "1",
    lambda name: "1" if _PART_NAME.search(name) else _SAMPLE_URL,
)
"""Functions that return a sample value for a variable's name; they are tried in order."""


class _SampleEnvironment(Mapping[str, str]):
    """An environment with sample values for all variables, except for the home folder."""

    def __init__(self, value_of: Callable[[str], str | None]) -> None:
        self._value_of = value_of

    def __getitem__(self, name: str) -> str:
        home = os.environ.get(name) if name in ("HOME", "USERPROFILE") else None
        value = home or self._value_of(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

"""The location of a configuration: an explicit path, ``./servers.json``, or the file in the user's folder.

Also the error for a file at such a location that cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dial_client.messages.errors import ConfigError, describe_system_error

FILE_NAME = "servers.json"
# Unlike `Path.exists`, it is False for a file in a folder that cannot be read.
_exists = os.path.exists


def find_config(explicit: str | None = None) -> Path | None:
    """Return the path of the configuration file; None if there is none.

    It is the explicit path, otherwise ``./servers.json``, otherwise the file in the user's configuration folder. A file
    in the working folder is not trusted: it needs the user's consent (`config_trust`).

    Raises:
        ConfigError: The explicit path does not exist.
    """
    if explicit is not None:
        if not _exists(Path(explicit)):
            raise ConfigError("there is no such file", path=explicit)
        return Path(explicit)
    in_working_folder = Path(FILE_NAME)
    return in_working_folder if _exists(in_working_folder) else find_user_config()


def find_user_config() -> Path | None:
    """Return the path of the file in the user's configuration folder; None if it does not exist."""
    path = build_user_config_path()
    return path if _exists(path) else None


def is_user_config(path: Path) -> bool:
    """Return True if this is the file ``servers.json`` in the user's configuration folder."""
    return resolve_location(path) == resolve_location(build_user_config_path())


def resolve_location(path: str | os.PathLike[str]) -> str:
    """Return the real path of the file's folder, joined with the file's name.

    If the file itself is a symbolic link, it is not followed: relative paths and ``${workspaceFolder}`` refer to the
    folder in which the file was found.
    """
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - absolute() keeps "..", which folders need
    return os.path.normcase(os.path.join(os.path.realpath(folder), name))  # noqa: PTH118 - stored as text


def build_user_config_path() -> Path:
    """Return the path of the file in the user's configuration folder, whether it exists or not."""
    from platformdirs import user_config_dir

    return Path(user_config_dir("dial-client"), FILE_NAME)


@contextmanager
def report_unreadable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of reading a file into a `ConfigError` that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = describe_system_error(error, "this is not the name of a file")
        raise ConfigError(f"cannot be read: {reason}", path=str(path)) from None

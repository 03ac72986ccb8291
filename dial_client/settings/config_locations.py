"""The location of a configuration: the file that is named, ``./servers.json``, or the file in the user's folder."""

from __future__ import annotations

import os
from pathlib import Path

from dial_client.errors import ConfigError

FILE_NAME = "servers.json"


def find_config(explicit: str | None = None) -> Path | None:
    """Return the file that is named, else ``./servers.json``, else the file in the user's configuration folder.

    Only the first and the last are trusted: `config_trust` says what a file of the working folder has to wait for.

    Raises:
        ConfigError: the file that was named does not exist.
    """
    if explicit is not None:
        if not _exists(explicit):
            raise ConfigError("there is no such file", path=explicit)
        return Path(explicit)
    in_working_folder = Path(FILE_NAME)
    return in_working_folder if _exists(in_working_folder) else find_user_config()


def find_user_config() -> Path | None:
    """Return the file in the user's own configuration folder; None where there is none."""
    path = user_config_path()
    return path if _exists(path) else None


def is_user_config(path: Path) -> bool:
    """Return True if the file stands in the user's configuration folder, under the usual name."""
    return real_location(path) == real_location(user_config_path())


def real_location(path: str | os.PathLike[str]) -> str:
    """Return the real path of the folder, and the name of the file in it.

    A symbolic link in the file's own place is not followed: relative paths and ``${workspaceFolder}`` begin where the
    file was found, not where the link leads.
    """
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - absolute() keeps "..", which folders need
    return os.path.normcase(os.path.join(os.path.realpath(folder), name))  # noqa: PTH118 - text, as it is stored


def user_config_path() -> Path:
    """Return the path of the file in the user's configuration folder, whether it exists or not."""
    from platformdirs import user_config_dir

    return Path(user_config_dir("dial-client"), FILE_NAME)


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False

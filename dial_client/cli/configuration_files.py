"""The configuration files in use: the named file; else the user's own file, overridden by the working folder's file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dial_client.cli.options import Options
from dial_client.settings.config_locations import FILE_NAME, find_config, find_user_config, is_user_config
from dial_client.settings.config_trust import EnvFiles, read_found
from dial_client.settings.configuration import ConfigFile, read_config_file

PROFILE_VARIABLE = "DIAL_PROFILE"
"""The environment variable that names a profile if ``--profile`` is not given."""


def find_profile_name(options: Options) -> str | None:
    """Return the name of the profile in use; None if there is none."""
    return options.profile or os.environ.get(PROFILE_VARIABLE) or None


def find_folder_config() -> Path | None:
    """Return the path of ``./servers.json``; None if it does not exist, or is the user's own file."""
    path = find_config()
    return None if path is None or path.is_absolute() or is_user_config(path) else path


def read_trusted_files(config: str | None) -> list[ConfigFile]:
    """Return the files in use without asking the user; an untrusted file of the working folder is left out.

    Args:
        config: The file to use in place of all others; None to find the files.

    Raises:
        ConfigError: A file cannot be read.
    """
    if config is not None:
        path = find_config(config)
        return [read_config_file(path)] if path is not None else []
    own = find_user_config()
    files = [read_config_file(own)] if own is not None else []
    folder_file = find_folder_config()
    if folder_file is not None:
        from dial_client.cli.trust_prompt import find_changes

        found, env_files = read_found(folder_file), EnvFiles()
        if find_changes(found, env_files) == []:
            files.append(ConfigFile(found.data, str(folder_file), read=env_files.read))
    return files


async def ask_for_files(options: Options, report: Callable[[str], None], *, may_ask: bool = True) -> list[ConfigFile]:
    """Return the files in use: the user's own file, then the file of the working folder if it is trusted.

    With `may_ask`, the user is asked whether to trust it. `report` gets a message if the file is left out.

    Raises:
        ConfigError: A file cannot be read; or it is not trusted, and the user cannot be asked.
    """
    if options.config is not None:
        return read_trusted_files(str(options.config))
    own = find_user_config()
    files = [read_config_file(own)] if own is not None else []
    folder_file = find_folder_config()
    if folder_file is not None:
        from dial_client.cli.trust_prompt import is_trusted

        found, env_files = read_found(folder_file), EnvFiles()
        if options.trust or await is_trusted(found, env_files, may_ask=may_ask):
            files.append(ConfigFile(found.data, str(folder_file), read=env_files.read))
        else:
            report(f"continuing without the {FILE_NAME} of this folder, with {own or 'no servers'}")
    return files


def describe_sources(sources: tuple[Path, ...]) -> str:
    """Return the absolute paths of the files in use, or "none". The first file overrides the later files."""
    return ", over ".join(str(path.absolute()) for path in sources) or "none"

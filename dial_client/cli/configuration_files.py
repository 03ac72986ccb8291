"""The configuration files in use: the named file; else the user's own file, overridden by the working folder's file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dial_client.cli.options import Options
from dial_client.settings.config_locations import FILE_NAME, find_config, find_user_config, is_user_config
from dial_client.settings.config_trust import EnvFiles, read_found
from dial_client.settings.configuration import ConfigFile, read_config_file

# The environment variable that names a profile if ``--profile`` is not given.
PROFILE_VARIABLE = "DIAL_PROFILE"


def find_profile_name(options: Options) -> str | None:
    """Return the name of the profile in use; None if there is none."""
    return options.profile or os.environ.get(PROFILE_VARIABLE) or None


def find_folder_config() -> Path | None:
    """Return the path of ``./servers.json``; None if it does not exist, or is the user's own file."""
    path = find_config()
    return None if path is None or path.is_absolute() or is_user_config(path) else path


def find_files(config: str | Path | None, *, trust: bool = False) -> tuple[list[ConfigFile], Path | None]:
    """Return the files in use, and the path of the working folder's file if it is left out as untrusted; else None.

    Args:
        config: The file to use in place of all others; None to find the files.
        trust: Use the file of the working folder in any case.

    Raises:
        ConfigError: A file cannot be read.
    """
    own = find_user_config() if config is None else find_config(str(config))
    files = [read_config_file(own)] if own is not None else []
    folder_file = find_folder_config() if config is None else None
    if folder_file is None:
        return files, None
    from dial_client.cli.trust_prompt import find_changes

    found, env_files = read_found(folder_file), EnvFiles()
    if not trust and find_changes(found, env_files) != []:
        return files, folder_file
    return [*files, ConfigFile(found.data, str(folder_file), read=env_files.read)], None


async def ask_for_files(options: Options, report: Callable[[str], None], *, may_ask: bool = True) -> list[ConfigFile]:
    """Return the files in use: the user's own file, then the file of the working folder if it is trusted.

    With `may_ask`, the user is asked whether to trust it. `report` gets a message if the file is left out.

    Raises:
        ConfigError: A file cannot be read; or it is not trusted, and the user cannot be asked.
    """
    files, untrusted = find_files(options.config, trust=options.trust)
    if untrusted is None:
        return files
    from dial_client.cli.trust_prompt import is_trusted

    found, env_files = read_found(untrusted), EnvFiles()
    if await is_trusted(found, env_files, may_ask=may_ask):
        return [*files, ConfigFile(found.data, str(untrusted), read=env_files.read)]
    report(f"continuing without the {FILE_NAME} of this folder, with {find_user_config() or 'no servers'}")
    return files


def describe_sources(sources: tuple[Path, ...]) -> str:
    """Return the absolute paths of the files in use, or "none". The first file overrides the later files."""
    return ", over ".join(str(path.absolute()) for path in sources) or "none"

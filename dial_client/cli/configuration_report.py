"""The work of ``dial-chat config path``, ``show``, ``get`` and ``schema``: prints values, files and folders."""

from __future__ import annotations

import json
import os
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from dial_client.cli.config_summary import escape_line
from dial_client.cli.configuration_files import (
    PROFILE_VARIABLE,
    find_folder_config,
    find_profile_name,
    read_trusted_files,
)
from dial_client.cli.configuration_values import as_text, find_value, list_written_values, to_document
from dial_client.cli.options import ExitCode, Options
from dial_client.messages.errors import ConfigError
from dial_client.providers.presets import MODELS_OF_KEYS
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path, find_user_config
from dial_client.settings.config_trust import TrustStore, read_found
from dial_client.settings.configuration import ConfigFile

SCHEMA_FILE = "servers.schema.json"


def print_paths(options: Options, *, as_json: bool) -> int:
    """Print which configuration files are read, and the folders of the program."""
    files = _list_config_files(options)
    folders = _list_folders()
    if as_json:
        rows = [{"file": str(path), "kind": kind, "state": state} for kind, path, state in files]
        print(json.dumps({"files": rows, "folders": {name: str(path) for name, path in folders.items()}}, indent=2))
        return ExitCode.ANSWERED
    lines = [(kind, path, state) for kind, path, state in files]
    lines += [(name, path, "" if path.exists() else "does not exist yet") for name, path in folders.items()]
    for name, path, state in lines:
        print(f"{name:<8} {escape_line(str(path))}{f'  ({state})' if state else ''}")
    return ExitCode.ANSWERED


def _list_config_files(options: Options) -> list[tuple[str, Path, str]]:
    """Return kind, path and state of each file that is looked for."""
    if options.config is not None:
        return [("named", options.config.absolute(), "in use" if options.config.exists() else "does not exist")]
    own, folder_file = find_user_config(), find_folder_config()
    folder_path = Path(FILE_NAME).absolute()
    folder_state = "does not exist" if folder_file is None else _trust_state(folder_file)
    return [
        ("user", build_user_config_path(), "in use" if own else "does not exist"),
        ("folder", folder_path, folder_state),
    ]


def _trust_state(path: Path) -> str:
    try:
        found = read_found(path)
    except ConfigError:
        return "cannot be read"
    trusted = TrustStore().find(found.location)
    if trusted is None:
        return "not trusted, not in use: dial-chat trust shows it and asks"
    return "in use" if trusted.matches(found) else "changed since you trusted it, not in use: dial-chat trust"


def _list_folders() -> dict[str, Path]:
    import platformdirs

    return {
        "data": platformdirs.user_data_path("dial-client", appauthor=False),
        "cache": Path(platformdirs.user_cache_dir("dial-client")),
        "state": Path(platformdirs.user_state_dir("dial-client")),
    }


def print_values(options: Options, *, as_json: bool) -> int:
    """Print the values in effect as one JSON object.

    Raises:
        ConfigError: A file is not JSON.
    """
    document = json.dumps(to_document(list_written_values(_read_files(options))), ensure_ascii=as_json, indent=2)
    print("\n".join(map(escape_line, document.splitlines())))
    return ExitCode.ANSWERED


def print_origins(options: Options, key: str | None, *, as_json: bool) -> int:
    """Print the values in effect, each with its file and line; with `key`, only the values at that path.

    Raises:
        ConfigError: A file is not JSON, or there is no value at the path.
    """
    values = list_written_values(_read_files(options))
    rows = [(".".join(value.keys), value.value, str(value.origin)) for value in values]
    if key:
        at_key = find_value(to_document(values), key)
        below = [row for row in rows if f"{row[0]}.".startswith(f"{key}.")]
        # A path may lead into a value, such as an item of a list: print the place of the whole value.
        rows = below or [(key, at_key, origin) for name, _, origin in rows if key.startswith(f"{name}.")]
    else:
        rows += _list_choices(options)
    if as_json:
        print(json.dumps([{"key": name, "value": value, "origin": origin} for name, value, origin in rows], indent=2))
    else:
        for name, value, origin in rows:
            print(escape_line(f"{origin}  {name} = {json.dumps(value, ensure_ascii=False)}"))
    return ExitCode.ANSWERED


def print_value(options: Options, key: str | None) -> int:
    """Print one value as it is written: a string without quotes, anything else as JSON.

    Raises:
        ConfigError: No key is given, or there is no such value.
    """
    if not key:
        raise ConfigError("which value?", hint="dial-chat config get KEY, such as defaultModel or mcpServers.time.args")
    text = as_text(find_value(to_document(list_written_values(_read_files(options))), key))
    print("\n".join(map(escape_line, text.split("\n"))) if sys.stdout.isatty() else text)
    return ExitCode.ANSWERED


def print_schema() -> int:
    """Print the JSON Schema of servers.json, for editors."""
    print(read_schema().rstrip())
    return ExitCode.ANSWERED


def read_schema() -> str:
    """Return the text of the JSON Schema of servers.json (draft 2020-12)."""
    return resources.files("dial_client.settings").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def _read_files(options: Options) -> list[ConfigFile]:
    """Return the files that may be shown: the files in use, and with ``--trust`` also ./servers.json."""
    files = read_trusted_files(None if options.config is None else str(options.config))
    folder_file = find_folder_config()
    if options.trust and options.config is None and folder_file is not None:
        files = [file for file in files if file.path != str(folder_file)]
        files.append(ConfigFile(read_found(folder_file).data, str(folder_file)))
    return files


def _list_choices(options: Options) -> list[tuple[str, Any, str]]:
    """Return the values that options or environment variables set, each with its key and origin."""
    profile = find_profile_name(options)
    found: list[tuple[str, Any, str]] = []
    if profile is not None:
        found.append(("profile", profile, "--profile" if options.profile else f"environment {PROFILE_VARIABLE}"))
    if options.model is not None:
        return [*found, ("model", options.model, "-m")]
    for variable, model in MODELS_OF_KEYS.items():
        if os.environ.get(variable):
            return [*found, ("model, if no file names one", model, f"environment {variable}")]
    return found

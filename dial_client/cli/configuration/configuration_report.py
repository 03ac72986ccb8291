"""The work of ``dial-chat config path``, ``show``, ``get`` and ``schema``: prints values, files and folders."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from dial_client.cli.options import Options
from dial_client.cli.trust.configuration_files import (
    PROFILE_VARIABLE,
    find_files,
    find_folder_config,
    find_profile_name,
)
from dial_client.cli.trust.trust_review import describe_changes, review_file
from dial_client.messages.errors import ConfigError
from dial_client.providers.presets import MODELS_OF_KEYS
from dial_client.runtime.safe_text import escape_line
from dial_client.runtime.text import suggest_name
from dial_client.servers.secret_masking import SecretMask, find_in_arguments, find_in_variable, names_secret
from dial_client.settings.config_entries import build_profile_error
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path, find_user_config
from dial_client.settings.config_values import Node
from dial_client.settings.configuration import ConfigFile
from dial_client.settings.jsonc import read

HIDDEN = "***"
# Keys whose value is an object of named entries: an entry of a later file replaces the entry of the same name, but
# profiles of the same name are merged.
ENTRIES = ("mcpServers", "models", "limits", "profiles")
_SERVERS = ("mcpServers", "servers")
_REFERENCE = re.compile(r"(\$\{[^{}]*\})")


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """One value of a file."""

    keys: tuple[str, ...]
    """The path to the value. The path of a server begins with ``mcpServers``, whatever key the file uses."""
    value: Any
    origin: str
    """The file, line and column: ``servers.json:3:14``."""


def list_written_values(files: Sequence[ConfigFile]) -> list[WrittenValue]:
    """Return the values in effect, with secrets hidden; approval rules are last.

    Args:
        files: The files, in the order of `configuration.combine`: a later file overrides an earlier one.

    Raises:
        ConfigError: A file is not JSON, or not an object.
    """
    found: dict[tuple[str, ...], list[WrittenValue]] = {}
    rules: list[WrittenValue] = []
    for file in files:
        root = read(file.text, file.path)
        entries = list(_list_entries(root))
        if any(keys == ("defaultModel",) and node.value is not None for keys, node in entries):
            found.pop(("fallbackModels",), None)  # fallback models belong to the default model of their file
        for keys, node in entries:
            if node.value is None and (keys in found or keys == ("policy",)):
                continue  # null counts as absent
            members = [(keys, node)]
            if len(keys) == 2 and isinstance(node.value, Mapping) and node.value:
                members = [((*keys, name), child) for name, child in node.read_members().items()]
            values = [WrittenValue(path, _mask(path, part.value), _find_place(part)) for path, part in members]
            rules += [value for value in values if _are_rules(value.keys)]
            plain = [value for value in values if not _are_rules(value.keys)]
            if keys[0] == "profiles":  # profiles of one name are merged value by value
                found |= {value.keys: [value] for value in plain if value.value is not None or value.keys not in found}
            elif keys != ("policy",):
                found[keys] = plain
    return [*(value for values in found.values() for value in values), *rules]


def to_document(values: Sequence[WrittenValue]) -> dict[str, Any]:
    """Return values as one object, like a file that has all of them."""
    document: dict[str, Any] = {}
    for value in values:
        place = document
        for key in value.keys[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        if _are_rules(value.keys) and isinstance(value.value, list):
            place.setdefault("policy", []).extend(value.value)
        elif value.value != {} or not isinstance(place.get(value.keys[-1]), dict):
            place[value.keys[-1]] = value.value
    return document


def _are_rules(keys: tuple[str, ...]) -> bool:
    """Return True for a list of approval rules: lists of several files are joined, that of an earlier file first."""
    return keys == ("policy",) or (len(keys) == 3 and (keys[0], keys[2]) == ("profiles", "policy"))


def find_value(document: Any, dotted: str) -> Any:
    """Return the value at a dotted path, such as ``mcpServers.time.args.0``. A key may itself contain dots.

    Raises:
        ConfigError: There is no such value; the nearest key is the hint.
    """
    value, rest, passed = document, dotted, ""
    while rest:
        key, child = _find_longest_key(value, rest)
        if key is None:
            keys = [f"{passed}{name}" for name in value] if isinstance(value, Mapping) else []
            hint = suggest_name(dotted, keys) if keys else ""
            raise ConfigError(f"there is no value at {dotted!r}", hint=hint)
        value, passed, rest = child, f"{passed}{key}.", rest[len(key) + 1 :]
    return value


def _find_longest_key(value: Any, rest: str) -> tuple[str | None, Any]:
    """Return the longest key that `rest` begins with, and its value; None for both if no key matches."""
    if isinstance(value, list):
        index = rest.partition(".")[0]
        return (index, value[int(index)]) if index.isdecimal() and int(index) < len(value) else (None, None)
    keys = value if isinstance(value, Mapping) else ()
    fitting = [key for key in keys if rest == key or rest.startswith(f"{key}.")]
    return (key := max(fitting, key=len), value[key]) if fitting else (None, None)


def _list_entries(root: Node) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield the path and the node of each entry under a key of `ENTRIES`, and of each other top-level value."""
    top = root.read_members()
    has_servers = any(name in top for name in _SERVERS)
    for key, node in top.items():
        name = "mcpServers" if key in _SERVERS else key
        if name in ENTRIES and isinstance(node.value, Mapping):
            yield from (((name, entry), child) for entry, child in node.read_members().items())
        elif not has_servers and isinstance(node.value, Mapping) and {"command", "url"} & node.value.keys():
            yield ("mcpServers", name), node
        else:
            yield (name,), node


def _find_place(node: Node) -> str:
    line, column = node.source.find_place(node.keys, at_name=True)
    return f"{node.source.path}:{line}:{column}"


def _mask(keys: tuple[str, ...], value: Any) -> Any:
    """Return a value with its secrets hidden; references to variables remain visible."""
    return _replace_secrets(value, sorted({*_collect_secrets(keys[-1], value)}, key=len, reverse=True))


def _collect_secrets(name: str, value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from find_in_variable(name, value)
        case Mapping():
            for key, child in value.items():
                yield from _collect_secrets(str(key), child)
        case int() | float() if not isinstance(value, bool) and names_secret(name):
            yield str(value)
        case list():
            yield from find_in_arguments([word for word in value if isinstance(word, str)])
            for child in value:
                if not isinstance(child, str) or names_secret(name):
                    yield from _collect_secrets(name, child)


def _replace_secrets(value: Any, secrets: Sequence[str]) -> Any:
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, _hide_secret(secret))
            whole = [secret for secret in secrets if not _REFERENCE.search(secret)]
            return SecretMask("", *whole).mask_text(value).replace(SecretMask.build_replacement(""), HIDDEN)
        case Mapping():
            return {key: _replace_secrets(child, secrets) for key, child in value.items()}
        case list():
            return [_replace_secrets(child, secrets) for child in value]
        case _:
            return HIDDEN if not isinstance(value, bool) and str(value) in secrets else value


def _hide_secret(secret: str) -> str:
    """Return the part of a secret that may be shown: the names of its variables, without their defaults."""
    parts = _REFERENCE.split(secret)
    return "".join(
        re.sub(r":-.*", f":-{HIDDEN}}}", part, flags=re.DOTALL)
        if part.startswith("${")
        else HIDDEN * bool(part.strip())
        for part in parts
    )


SCHEMA_FILE = "servers.schema.json"


def print_paths(options: Options, *, as_json: bool) -> None:
    """Print which configuration files are read, and the folders of the program."""
    import platformdirs

    files = _list_config_files(options)
    folders = {
        "data": platformdirs.user_data_path("dial-client", appauthor=False),
        "cache": Path(platformdirs.user_cache_dir("dial-client")),
        "state": Path(platformdirs.user_state_dir("dial-client")),
    }
    if as_json:
        rows = [{"file": str(path), "kind": kind, "state": state} for kind, path, state in files]
        print(json.dumps({"files": rows, "folders": {name: str(path) for name, path in folders.items()}}, indent=2))
        return
    lines = list(files)
    lines += [(name, path, "" if path.exists() else "does not exist yet") for name, path in folders.items()]
    for name, path, state in lines:
        print(f"{name:<8} {escape_line(str(path))}{f'  ({state})' if state else ''}")


def _list_config_files(options: Options) -> list[tuple[str, Path, str]]:
    """Return kind, path and state of each file that is looked for."""
    if options.config is not None:
        return [("named", options.config.absolute(), "in use" if options.config.exists() else "does not exist")]
    folder_file = find_folder_config()
    folder_state = "does not exist" if folder_file is None else _trust_state(folder_file)
    return [
        ("user", build_user_config_path(), "in use" if find_user_config() else "does not exist"),
        ("folder", Path(FILE_NAME).absolute(), folder_state),
    ]


def _trust_state(path: Path) -> str:
    try:
        review = review_file(path)
    except ConfigError:
        return "cannot be read"
    if review.trusted is None:
        return "not trusted, not in use: dial-chat trust shows it and asks"
    if review.changes is None:
        return "changed since you trusted it, not in use: dial-chat trust"
    return f"in use, but for changes: {describe_changes(review.asked)}: dial-chat trust" if review.asked else "in use"


def print_values(options: Options, *, as_json: bool) -> None:
    """Print the values in effect as one JSON object.

    Raises:
        ConfigError: A file is not JSON.
    """
    document = json.dumps(to_document(_read_values(options)), ensure_ascii=as_json, indent=2)
    print("\n".join(map(escape_line, document.splitlines())))


def print_origins(options: Options, key: str | None, *, as_json: bool) -> None:
    """Print the values in effect, each with its file and line; with `key`, only the values at that path.

    Raises:
        ConfigError: A file is not JSON, or there is no value at the path.
    """
    values = _read_values(options)
    rows = [(".".join(value.keys), value.value, value.origin) for value in values]
    if key:
        at_key = find_value(to_document(values), key)
        below = [row for row in rows if f"{row[0]}.".startswith(f"{key}.")]
        # A path may lead into a value, such as an item of a list: print the place of the whole value.
        rows = below or [(key, at_key, origin) for name, _, origin in rows if key.startswith(f"{name}.")]
    else:
        known = [name for value in values for place, name, *_ in [(*value.keys, "")] if place == "profiles"]
        rows += _list_choices(options, known)
    if as_json:
        print(json.dumps([{"key": name, "value": value, "origin": origin} for name, value, origin in rows], indent=2))
    else:
        for name, value, origin in rows:
            print(escape_line(f"{origin}  {name} = {json.dumps(value, ensure_ascii=False)}"))


def print_value(options: Options, key: str | None, *, as_json: bool) -> None:
    """Print one value as it is written: a string without quotes unless `as_json`, anything else as JSON.

    Raises:
        ConfigError: No key is given, or there is no such value.
    """
    if not key:
        raise ConfigError(
            "missing value", hint="dial-chat config get KEY, such as defaultModel or mcpServers.time.args"
        )
    value = find_value(to_document(_read_values(options)), key)
    text = value if isinstance(value, str) and not as_json else json.dumps(value, ensure_ascii=as_json, indent=2)
    print("\n".join(map(escape_line, text.split("\n"))) if sys.stdout.isatty() else text)


def print_schema() -> None:
    """Print the JSON Schema of servers.json, for editors."""
    print(read_schema().rstrip())


def read_schema() -> str:
    """Return the text of the JSON Schema of servers.json (draft 2020-12)."""
    return resources.files("dial_client.settings").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def _read_values(options: Options) -> list[WrittenValue]:
    return list_written_values(find_files(options.config, trust=options.trust).files)


def _list_choices(options: Options, profiles: Sequence[str]) -> list[tuple[str, Any, str]]:
    """Return the values that options or environment variables set, each with its key and origin.

    Raises:
        ConfigError: The profile is none of `profiles`.
    """
    profile = find_profile_name(options)
    if profile is not None and profile not in profiles:
        raise build_profile_error(profile, profiles)
    found: list[tuple[str, Any, str]] = []
    if profile is not None:
        found.append(("profile", profile, "--profile" if options.profile else f"environment {PROFILE_VARIABLE}"))
    if options.model is not None:
        return [*found, ("model", options.model, "-m")]
    for variable, model in MODELS_OF_KEYS.items():
        if os.environ.get(variable):
            return [*found, ("model, if no file names one", model, f"environment {variable}")]
    return found

"""The values of the configuration files in use, as they are written, each with its file, line and column.

Variables are not expanded. Secrets are shown as ``***``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean
from dial_client.servers.secret_masking import SecretMask, find_secrets, names_secret
from dial_client.settings.config_types import ServerSettings, Transport
from dial_client.settings.configuration import ConfigFile
from dial_client.settings.jsonc import Keys, Node, read

HIDDEN = "***"
ENTRIES = ("mcpServers", "models", "profiles")
"""Keys whose value is an object of named entries: an entry of a later file replaces the entry of the same name, but
profiles of the same name are merged."""
_SERVERS = ("mcpServers", "servers")
_REFERENCE = re.compile(r"(\$\{[^{}]*\})")


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """The file, line and column of a value."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """One value of a file."""

    keys: tuple[str, ...]
    """The path to the value. The path of a server begins with ``mcpServers``, whatever key the file uses."""
    value: Any
    origin: ValuePlace


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
            values = [
                WrittenValue(path, _mask(path, part.value), _find_place(part))
                for path, part in _list_members(keys, node)
            ]
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
            hint = did_you_mean(dotted, keys) or (f"there are {', '.join(keys[:20])}" if keys else "")
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


def _list_members(keys: tuple[str, ...], node: Node) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield the path and the node of each member of an entry; yield any other value unchanged."""
    if len(keys) == 2 and isinstance(node.value, Mapping) and node.value:
        yield from (((*keys, name), child) for name, child in node.read_members().items())
    else:
        yield keys, node


def _find_place(node: Node) -> ValuePlace:
    keys: Keys = node.keys
    return ValuePlace(node.source.path, *node.source.find_place(keys, at_name=True))


def _mask(keys: tuple[str, ...], value: Any) -> Any:
    """Return a value with its secrets hidden; references to variables remain visible."""
    name = keys[-1]
    return _replace_secrets(value, sorted(_collect_secrets(name, value), key=len, reverse=True))


def _collect_secrets(name: str, value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from find_secrets(_as_settings(env={name: value}))
        case Mapping():
            for key, child in value.items():
                yield from _collect_secrets(str(key), child)
        case int() | float() if not isinstance(value, bool) and names_secret(name):
            yield str(value)
        case list():
            words = tuple(word for word in value if isinstance(word, str))
            yield from find_secrets(_as_settings(args=words))
            for child in value:
                if not isinstance(child, str) or names_secret(name):
                    yield from _collect_secrets(name, child)


def _as_settings(*, env: Mapping[str, str] | None = None, args: tuple[str, ...] = ()) -> ServerSettings:
    return ServerSettings("", Transport.STDIO, env=env or {}, args=args)


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
    return "".join(_without_default(part) if part.startswith("${") else HIDDEN * bool(part.strip()) for part in parts)


def _without_default(reference: str) -> str:
    name, has_default, _ = reference[2:-1].partition(":-")
    return f"${{{name}:-{HIDDEN}}}" if has_default else reference


def as_text(value: Any) -> str:
    """Return a value as ``config get`` prints it: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)

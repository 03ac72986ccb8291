"""Reads a configuration entry by entry, so that an error in one entry does not hide errors in others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dial_client.cli.doctor.findings import Finding, Fix
from dial_client.messages.errors import ConfigError
from dial_client.settings import jsonc
from dial_client.settings.config_editor import remove_value, set_value
from dial_client.settings.config_entries import (
    OTHER_HOSTS_KEYS,
    SERVER_ALIASES,
    SERVER_KEYS,
    EntryFault,
    EntryWarning,
    find_odd_values,
    find_unknown_keys,
    read_model,
    read_profile,
    read_server,
)
from dial_client.settings.config_types import ModelProfile, Profile, ServerSettings
from dial_client.settings.config_values import COMMENTS, TOP_KEYS, Node, Variables, build_variables
from dial_client.settings.configuration import ConfigFile
from dial_client.settings.policy_config import read_policy


@dataclass(frozen=True, slots=True)
class EntryReading:
    """One entry of ``mcpServers``."""

    node: Node
    settings: ServerSettings | None
    """The settings; None if the entry is invalid."""

    def find_place(self, *keys: str | int) -> tuple[str, int, int]:
        """Return file, line and column of the entry, or of a value in it."""
        line, column = self.node.source.find_place((*self.node.keys, *keys), at_name=not keys)
        return self.node.source.path, line, column


@dataclass(slots=True)
class FileReading:
    """The valid entries of a file, and the findings for invalid entries."""

    path: str
    is_trusted: bool
    servers: dict[str, EntryReading] = field(default_factory=dict)
    models: dict[str, ModelProfile] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    default_model: str | None = None
    findings: list[Finding] = field(default_factory=list)


def read_file_leniently(file: ConfigFile, environ: Mapping[str, str], *, is_trusted: bool = True) -> FileReading:
    """Read a file. Errors become findings, and the valid parts are read.

    For an untrusted file, no variables are expanded and no other files are read.
    """
    reading = FileReading(file.path, is_trusted)
    try:
        top, unknown = jsonc.read(file.text, file.path).split_members(TOP_KEYS, {})
    except ConfigError as error:
        reading.findings.append(to_finding(error, "DC101"))
        return reading
    folder = Path(file.path).parent if file.folder is None else file.folder
    names = build_variables(environ if file.environ is None else file.environ, folder, file.read)
    for name, node in _read_server_nodes(top, unknown, reading).items():
        _read_entry(name, node, names, reading)
    if is_trusted:
        _read_top_level(top, names, reading)
    return reading


def to_finding(error: ConfigError, code: str = "") -> Finding:
    """Return the finding for a configuration error; without `code`, the text of the problem determines the code."""
    code = code or next((code for text, code in _CODES_OF_PROBLEMS.items() if text in error.problem), "DC104")
    return Finding(code, error.problem, error.hint, error.path, error.line, error.column)


_CODES_OF_PROBLEMS = {
    " is not set": "DC103",
    "neither command nor url": "DC106",
    "must not be combined": "DC107",
    "contradicts": "DC107",
    "there is no such file": "DC105",
    "cannot be read": "DC105",
    "unknown key": "DC102",
}
_CODES_OF_WARNINGS = {
    EntryFault.UNKNOWN_KEY: "DC102",
    EntryFault.SHORT_TIMEOUT: "DC108",
    EntryFault.BARE_VARIABLE: "DC109",
}


def _read_server_nodes(top: Mapping[str, Node], unknown: Mapping[str, Node], reading: FileReading) -> dict[str, Node]:
    keys = [key for key in ("mcpServers", "servers") if key in top]
    if len(keys) == 2:
        error = top["servers"].build_error("must not be combined with mcpServers", "keep one of the two", at_name=True)
        reading.findings.append(to_finding(error))
    try:
        if keys:
            _add_warnings(reading, find_unknown_keys(unknown, TOP_KEYS))
            return top[keys[0]].read_members()
    except ConfigError as error:
        reading.findings.append(to_finding(error))
        return {}
    return {name: node for name, node in unknown.items() if not name.startswith(COMMENTS)}


def _read_entry(name: str, node: Node, names: Variables, reading: FileReading) -> None:
    settings = None
    try:
        found, unknown = node.split_members(SERVER_KEYS, SERVER_ALIASES)
        _add_warnings(reading, find_unknown_keys(unknown, (*SERVER_KEYS, *SERVER_ALIASES), OTHER_HOSTS_KEYS))
        _add_warnings(reading, find_odd_values(found))
        settings = read_server(name, node, names, is_selected=reading.is_trusted)
        if not reading.is_trusted:
            settings = replace(settings, enabled=False)
    except ConfigError as error:
        reading.findings.append(to_finding(error))
    reading.servers[name] = EntryReading(node, settings)


def _add_warnings(reading: FileReading, warnings: Iterable[EntryWarning]) -> None:
    for warning in warnings:
        fix = _build_fix(warning) if warning.replacement and warning.node.source.path else None
        reading.findings.append(replace(to_finding(warning.to_error(), _CODES_OF_WARNINGS[warning.fault]), fix=fix))


def _build_fix(warning: EntryWarning) -> Fix:
    keys, value, meant = tuple(map(str, warning.node.keys)), warning.node.value, warning.replacement
    path = warning.node.source.path
    if warning.fault is EntryFault.UNKNOWN_KEY:
        renamed = (*keys[:-1], meant)
        description = f'rename "{keys[-1]}" to "{meant}"'
        return Fix(description, path, lambda text: set_value(remove_value(text, keys), renamed, value))
    return Fix(f"write {meant}", path, partial(set_value, keys=keys, value=meant))


def _read_top_level(top: Mapping[str, Node], names: Variables, reading: FileReading) -> None:
    """Read the top-level keys other than the servers."""
    for name, node in _read_members(top, "models", reading).items():
        model = _attempt(reading, partial(read_model, name, node, names))
        if model is not None:
            reading.models[name] = model
    for name, node in _read_members(top, "profiles", reading).items():
        profile = _attempt(reading, partial(read_profile, name, node, names))
        if profile is not None:
            reading.profiles[name] = profile
    if "policy" in top:
        _attempt(reading, lambda: read_policy(top["policy"], names))
    if "startupPatience" in top:
        _attempt(reading, top["startupPatience"].read_positive)
    if "fallbackModels" in top:
        _attempt(reading, lambda: names.expand(top["fallbackModels"]).read_strings())
    if "defaultModel" in top:
        reading.default_model = _attempt(reading, lambda: names.expand_text(top["defaultModel"]))


def _read_members(top: Mapping[str, Node], key: str, reading: FileReading) -> dict[str, Node]:
    return (_attempt(reading, top[key].read_members) or {}) if key in top else {}


def _attempt(reading: FileReading, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ConfigError as error:
        reading.findings.append(to_finding(error))
        return None

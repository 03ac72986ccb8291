"""Reads a configuration entry by entry, so that an error in one entry does not hide errors in others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    read_limits,
    read_model,
    read_profile,
    read_server,
)
from dial_client.settings.config_types import ModelProfile, Profile, ServerSettings, read_notification
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
    limits: Mapping[str, Any] = field(default_factory=dict)
    """The values of ``limits`` by the names of the fields of `Limits`."""
    findings: list[Finding] = field(default_factory=list)

    @contextmanager
    def collecting(self, code: str = "") -> Iterator[None]:
        """Turn a configuration error into a finding, which ends the context."""
        try:
            yield
        except ConfigError as error:
            self.findings.append(to_finding(error, code))


def read_file_leniently(file: ConfigFile, environ: Mapping[str, str], *, is_trusted: bool = True) -> FileReading:
    """Read a file. Errors become findings, and the valid parts are read.

    For an untrusted file, no variables are expanded and no other files are read.
    """
    reading = FileReading(file.path, is_trusted)
    with reading.collecting("DC101"):
        top, unknown = jsonc.read(file.text, file.path).split_members(TOP_KEYS, {})
        folder = Path(file.path).parent if file.folder is None else file.folder
        names = build_variables(environ if file.environ is None else file.environ, folder, file.read)
        for name, node in _read_server_nodes(top, unknown, reading).items():
            reading.servers[name] = EntryReading(node, _read_entry(name, node, names, reading))
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
    if not keys:
        return {name: node for name, node in unknown.items() if not name.startswith(COMMENTS)}
    servers: dict[str, Node] = {}
    with reading.collecting():
        _add_warnings(reading, find_unknown_keys(unknown, TOP_KEYS))
        servers.update(top[keys[0]].read_members())
    return servers


def _read_entry(name: str, node: Node, names: Variables, reading: FileReading) -> ServerSettings | None:
    settings = None
    with reading.collecting():
        found, unknown = node.split_members(SERVER_KEYS, SERVER_ALIASES)
        _add_warnings(reading, find_unknown_keys(unknown, (*SERVER_KEYS, *SERVER_ALIASES), OTHER_HOSTS_KEYS))
        _add_warnings(reading, find_odd_values(found))
        settings = read_server(name, node, names, is_selected=reading.is_trusted)
        if not reading.is_trusted:
            settings = replace(settings, enabled=False)
    return settings


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
    with reading.collecting():
        for name, node in top["models"].read_members().items() if "models" in top else ():
            with reading.collecting():
                reading.models[name] = read_model(name, node, names)
    with reading.collecting():
        for name, node in top["profiles"].read_members().items() if "profiles" in top else ():
            with reading.collecting():
                reading.profiles[name] = read_profile(name, node, names)
    with reading.collecting():
        if "policy" in top:
            read_policy(top["policy"], names)
    with reading.collecting():
        if "startupPatience" in top:
            top["startupPatience"].read_positive()
    with reading.collecting():
        if "notify" in top:
            read_notification(top["notify"])
    with reading.collecting():
        if "limits" in top:
            _read_limits(top["limits"], reading)
    with reading.collecting():
        if "fallbackModels" in top:
            names.expand(top["fallbackModels"]).read_strings()
    with reading.collecting():
        if "defaultModel" in top:
            reading.default_model = names.expand_text(top["defaultModel"])


def _read_limits(node: Node, reading: FileReading) -> None:
    """Read each limit by itself; without an error, also look for two names of the same limit."""
    before = len(reading.findings)
    for key in node.read_members():
        with reading.collecting():
            reading.limits = {**reading.limits, **read_limits(replace(node, value={key: node.value[key]}))}
    if len(reading.findings) == before:
        read_limits(node)

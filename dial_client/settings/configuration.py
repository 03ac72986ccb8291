"""Reads ``servers.json`` and the environment into `Settings`, and checks the whole configuration.

    load                reads a file
      combine           reads the texts of one or several files
        read_profile    reads an entry of ``profiles``    -> `Profile`
        read_server     reads an entry of ``mcpServers`` -> `ServerSettings`
        read_model      reads a profile of ``models``    -> `ModelProfile`

No message and no repr shows a value, because it may be a secret. Messages name the key, and its place in the file.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean
from dial_client.settings.config_entries import (
    MODEL_ALIASES,
    MODEL_KEYS,
    SERVER_ALIASES,
    SERVER_KEYS,
    apply_profile,
    build_profile_error,
    check_servers,
    describe_unknown_keys,
    find_unknown_keys,
    merge_profiles,
    read_limits,
    read_model,
    read_profile,
    read_server,
    selects_server,
)
from dial_client.settings.config_locations import report_unreadable
from dial_client.settings.config_types import (
    ModelProfile,
    Outline,
    Profile,
    ServerSettings,
    Settings,
    read_notification,
)
from dial_client.settings.config_values import (
    COMMENTS,
    TOP_KEYS,
    Node,
    ReadFile,
    Variables,
    build_variables,
    find_references,
    read_file,
)
from dial_client.settings.jsonc import read as document
from dial_client.settings.policy_config import read_policy


def load_config(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None, *, profile: str | None = None
) -> Settings:
    """Read a configuration file.

    Args:
        path: The path of the file.
        environ: Replaces the environment of this process.
        profile: The name of a profile to use.

    Raises:
        ConfigError: The file cannot be read or is invalid, or there is no such profile.
    """
    return combine((read_config_file(path, environ),), profile)


def parse(
    text: str | bytes,
    *,
    path: str = "",
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    read: ReadFile = read_file,
    profile: str | None = None,
) -> Settings:
    """Read the text of a configuration.

    Args:
        text: JSON; comments and trailing commas are accepted.
        path: The path of the file, for messages.
        folder: The base of relative paths, and the value of ``${workspaceFolder}``; by default the folder of `path`.
        environ: Replaces the environment of this process.
        read: Returns the content of an ``envFile``.
        profile: The name of a profile to use.

    Raises:
        ConfigError: The configuration is invalid; the error names the place, and what was expected.
    """
    return combine((ConfigFile(text, path, folder, environ, read),), profile)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The text of a configuration with its context; the fields are the arguments of `parse`."""

    text: str | bytes = field(repr=False)
    path: str = ""
    folder: str | os.PathLike[str] | None = None
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    read: ReadFile = read_file


def read_config_file(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> ConfigFile:
    """Read the text of a file.

    Raises:
        ConfigError: The file cannot be read.
    """
    with report_unreadable(path):
        return ConfigFile(Path(path).read_bytes(), str(path), environ=environ)


def combine(
    files: Sequence[ConfigFile], profile: str | None = None, only_server: str | None = None, *, leaves_out: bool = False
) -> Settings:
    """Read several files as one configuration. A later file has precedence over an earlier one.

    A server, a model or a value of a profile replaces the one of the same name in earlier files as a whole. Rules are
    not replaced: the rules of an earlier file are tried first. An unset variable is an error in the last file; in an
    earlier file it is a warning, and the server or model that needs it is not used.

    Args:
        files: The texts of the files; an empty sequence is an empty configuration.
        profile: The name of a profile to use, from any of the files.
        only_server: The name of the only server to use; all others count as disabled, and need no variables.
        leaves_out: Treat an unset variable in the last file as one in an earlier file.

    Raises:
        ConfigError: A file is invalid; the error names the place, and what was expected.
    """
    documents = [_Document.read(file) for file in files]
    found = [document.find_profile(profile) for document in documents if profile is not None]
    if profile is not None and not any(found):
        raise build_profile_error(
            profile, [name for document in documents for name in document.read_members("profiles")]
        )
    chosen = reduce(merge_profiles, filter(None, found)) if any(found) else None
    check_servers(chosen, [name for document in documents for name in document.servers])
    if only_server is not None:
        chosen = replace(chosen or Profile(""), servers=(glob.escape(only_server),))
    settings = [
        document.build_settings(chosen, documents[index:], is_strict=index == len(documents) and not leaves_out)
        for index, document in enumerate(documents, 1)
    ]
    return apply_profile(reduce(merge_settings, settings, Settings()), chosen)


# Top-level keys of other hosts that resemble keys of this one: of Gemini CLI and opencode.
_OTHER_HOSTS_TOP_KEYS = ("model", "agent")


@dataclass(frozen=True, eq=False, slots=True)
class _Document:
    """One parsed file whose top-level keys were checked; its entries are not read yet."""

    path: str
    variables: Variables
    top: Mapping[str, Node]
    servers: Mapping[str, Node]
    unknown: Mapping[str, Node]
    """The other top-level keys; empty if these are the servers."""

    @classmethod
    def read(cls, file: ConfigFile) -> _Document:
        names = build_variables(file.environ, Path(file.path).parent if file.folder is None else file.folder, file.read)
        top, unknown = document(file.text, file.path).split_members(TOP_KEYS, {})
        has_servers = "mcpServers" in top or "servers" in top
        return cls(file.path, names, top, _find_entries(top, unknown), unknown if has_servers else {})

    def read_members(self, key: str) -> Mapping[str, Node]:
        """Return the members of a top-level object; empty if the file has no such key."""
        return self.top[key].read_members() if key in self.top else {}

    def find_profile(self, name: str | None) -> Profile | None:
        """Return the profile of this name; None if the file has no such profile."""
        node = self.read_members("profiles").get(name or "")
        return None if node is None else read_profile(name or "", node, self.variables)

    def build_settings(self, profile: Profile | None, later: Sequence[_Document], *, is_strict: bool) -> Settings:
        """Return the settings of the file. Of the profile's values they include only the rules, which come first.

        Args:
            profile: The profile in use.
            later: The files with precedence over this one.
            is_strict: Raise an error for a server or a model whose variables are not set, in place of a warning.
        """
        top, variables = self.top, self.variables
        servers = {
            name: self._read_server(name, profile, is_strict=is_strict)
            for name in self.servers
            if not any(name in document.servers for document in later)
        }
        models: dict[str, ModelProfile] = {}
        # Only keys that resemble a known one: other hosts have further keys of their own.
        misspelt = (odd for odd in find_unknown_keys(self.unknown, TOP_KEYS, _OTHER_HOSTS_TOP_KEYS) if odd.hint)
        warnings = [*describe_unknown_keys(misspelt)]
        warnings += [warning for server in servers.values() for warning in server.warnings]
        for name, node in self.read_members("models").items():
            if any(name in document.read_members("models") for document in later):
                continue
            try:
                models[name] = read_model(name, node, variables)
            except ConfigError as error:
                if is_strict:
                    raise
                warnings.append(f"{error}: this model is not used")
        own_profile = self.find_profile(profile.name) if profile is not None else None
        default_model, rules = top.get("defaultModel"), top.get("policy")
        patience, fallback_models = top.get("startupPatience"), top.get("fallbackModels")
        return Settings(
            servers=servers,
            models=models,
            default_model=variables.expand_text(default_model) if default_model else None,
            path=Path(self.path) if self.path else None,
            warnings=tuple(warnings),
            policy=(*(own_profile.policy if own_profile else ()), *(read_policy(rules, variables) if rules else ())),
            profiles=tuple(self.read_members("profiles")),
            startup_patience=patience.read_positive() if patience else None,
            notify=read_notification(top["notify"]) if "notify" in top else None,
            limits=read_limits(top["limits"]) if "limits" in top else {},
            fallback_models=variables.expand(fallback_models).read_strings() if fallback_models else None,
            skills=self._read_paths("skills"),
            agents=self._read_paths("agents"),
        )

    def _read_paths(self, key: str) -> tuple[Path, ...]:
        """Return the paths of ``skills`` or ``agents``; a relative one belongs to the folder of the file."""
        if (node := self.top.get(key)) is None:
            return ()
        variables = self.variables
        texts = [variables.expand_text(element, home=True) for element in node.read_elements()]
        return tuple((variables.folder / text).absolute() for text in texts)

    def _read_server(self, name: str, profile: Profile | None, *, is_strict: bool) -> ServerSettings:
        node, is_selected = self.servers[name], selects_server(profile, name)
        try:
            return read_server(name, node, self.variables, is_selected=is_selected)
        except ConfigError as error:
            if is_strict:
                raise
            unused = read_server(name, node, self.variables, is_selected=False)
            return replace(unused, warnings=(*unused.warnings, f"{error}: this server is not used"))


def outline(text: str | bytes, path: str = "") -> Outline:
    """Return the entries as written, without expanding variables or reading other files.

    Raises:
        ConfigError: The text is not JSON, or has values other than entries.
    """
    top, unknown = document(text, path).split_members(TOP_KEYS, {})
    servers, models = _find_entries(top, unknown), top["models"].read_members() if "models" in top else {}
    shown = {"mcpServers", "servers", "models", "defaultModel"}
    if not {"mcpServers", "servers"} & top.keys():
        shown |= servers.keys()
    return Outline(
        {name: reduce(or_, node.split_members(SERVER_KEYS, SERVER_ALIASES)) for name, node in servers.items()},
        {name: reduce(or_, node.split_members(MODEL_KEYS, MODEL_ALIASES)) for name, node in models.items()},
        top.get("defaultModel"),
        {key: node for key, node in {**unknown, **top}.items() if key not in shown},
    )


def list_model_names(text: str | bytes) -> list[str]:
    """Return the names of models that a text refers to as it is written, without those that have variables.

    They are the default model, the models of profiles, and the fallback models.

    Raises:
        ConfigError: The text is not JSON, or has values other than entries.
    """
    entries = outline(text)
    nodes = [entries.default_model, entries.unknown.get("fallbackModels")]
    nodes += [entry.get("fallback_models") for entry in entries.models.values()]
    if (profiles := entries.unknown.get("profiles")) is not None:
        nodes += [profile.read_members().get("model") for profile in profiles.read_members().values()]
    values = [
        value
        for node in nodes
        if node
        for value in (node.value if isinstance(node.value, list | tuple) else (node.value,))
    ]
    return list(dict.fromkeys(value for value in values if isinstance(value, str) and not find_references(value)))


def read_server_mapping(
    name: str,
    entry: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ServerSettings:
    """Read one server's entry that was made in Python.

    Args:
        name: The server's name.
        entry: The entry, with the keys of ``servers.json``.
        environ: Replaces the environment of this process.
        folder: The base of relative paths; by default the current folder.

    Raises:
        ConfigError: The entry is invalid; the error names the key, and what was expected.
    """
    return read_server(name, Node(entry, (name,)), build_variables(environ, folder or ""))


def read_model_mapping(name: str, entry: Mapping[str, Any]) -> ModelProfile:
    """Read one profile of a model that was made in Python, with the keys of ``models`` in ``servers.json``.

    Raises:
        ConfigError: The entry is invalid; the error names the key, and what was expected.
    """
    return read_model(name, Node(entry, (name,)), build_variables(None, ""))


def _find_entries(top: Mapping[str, Node], unknown: Mapping[str, Node]) -> Mapping[str, Node]:
    """Return the entries of the servers: under ``mcpServers`` or ``servers``, otherwise at the top level."""
    if "mcpServers" in top and "servers" in top:
        raise top["servers"].build_error("must not be combined with mcpServers", "keep one of the two", at_name=True)
    for key in ("mcpServers", "servers"):
        if key in top:
            return top[key].read_members()
    entries = {name: node for name, node in unknown.items() if not name.startswith(COMMENTS)}
    for name, node in entries.items():
        if not isinstance(node.value, Mapping):
            raise node.build_type_error(
                "a server's entry", did_you_mean(name, TOP_KEYS) or 'servers belong under "mcpServers"'
            )
    return entries


def merge_settings(base: Settings, over: Settings) -> Settings:
    """Return both configurations as one.

    A server or model of `over` completely replaces the entry of the same name. The rules of `base` are tried first,
    and a rule that denies applies at any position: `over` cannot allow a call that `base` asks about or denies.
    """
    fallback_models = over.fallback_models
    # Fallback models belong to the default model of the same file, not to a default model of another file.
    if fallback_models is None and over.default_model is None:
        fallback_models = base.fallback_models
    return Settings(
        servers={**base.servers, **over.servers},
        models={**base.models, **over.models},
        default_model=base.default_model if over.default_model is None else over.default_model,
        path=base.path if over.path is None else over.path,
        warnings=tuple(dict.fromkeys((*base.warnings, *over.warnings))),
        policy=(*base.policy, *over.policy),
        system=base.system if over.system is None else over.system,
        profiles=tuple(dict.fromkeys((*base.profiles, *over.profiles))),
        base_paths=(*over.sources, *base.sources)[1:],  # the first source is `path`
        limits={**base.limits, **over.limits},
        notify=base.notify if over.notify is None else over.notify,
        startup_patience=base.startup_patience if over.startup_patience is None else over.startup_patience,
        fallback_models=fallback_models,
        skills=tuple(dict.fromkeys((*base.skills, *over.skills))),
        agents=tuple(dict.fromkeys((*base.agents, *over.agents))),
    )

"""What is checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from dial_client.doctor.config_entries import FileReading, read_file_soundly
from dial_client.doctor.server_run import MAX_SECONDS, ServerRun
from dial_client.providers.presets import MODELS_OF_KEYS
from dial_client.settings.config_types import ModelSettings, Profile, ServerSettings
from dial_client.settings.configuration import ConfigFile
from dial_client.settings.jsonc import read
from dial_client.settings.jsonc_editor import set_value
from dial_client.settings.profile_config import merge_profiles, selects_server


@dataclass(frozen=True, slots=True)
class DoctorTarget:
    """The configuration to check, as options and folders name it."""

    files: tuple[ConfigFile, ...] = ()
    """Files in use, beginning with the user's own."""
    untrusted: tuple[ConfigFile, ...] = ()
    """Files that were found and are not in use: they are read, and nothing in them is started."""
    model: str | None = None
    """As ``--model`` names it; None for that of the files, or of a key in the environment."""
    base_url: str | None = None
    profile: str | None = None
    """The name of the profile in use."""
    database: Path | str | None = None
    """Where conversations are stored; None to leave the database out."""
    folders: tuple[Path, ...] = ()
    """Folders of this program that must be writable."""
    tool_pins: Path | None = None
    """The folder with the definitions of approved tools."""
    server_seconds: float = MAX_SECONDS
    """Seconds that servers have to become ready."""


@dataclass(slots=True)
class Subject:
    """What the checks share: everything is read once, and the servers are started once."""

    target: DoctorTarget
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    readings: tuple[FileReading, ...] = ()
    run: ServerRun = field(init=False)

    def __post_init__(self) -> None:
        files = (*self.target.files, *self.target.untrusted)
        self.readings = tuple(
            read_file_soundly(file, self.environ, is_trusted=file in self.target.files) for file in files
        )
        self.run = ServerRun(self.servers, self.target.server_seconds)

    @property
    def servers(self) -> dict[str, ServerSettings]:
        """The servers that are used and whose entries are right."""
        profile = reduce(merge_profiles, reversed(self._profiles)) if self._profiles else None
        return {
            name: entry.settings
            for reading in self.readings
            if reading.is_trusted
            for name, entry in reading.servers.items()
            if entry.settings is not None and entry.settings.enabled and selects_server(profile, name)
        }

    @property
    def models(self) -> dict[str, ModelSettings]:
        """The model profiles of all files in use."""
        return {
            name: model for reading in self.readings if reading.is_trusted for name, model in reading.models.items()
        }

    @property
    def model_name(self) -> str | None:
        """The model in use: named, or that of a key in the environment; None where there is neither."""
        named = (reading.default_model for reading in reversed(self.readings) if reading.is_trusted)
        of_keys = (model for variable, model in MODELS_OF_KEYS.items() if self.environ.get(variable))
        of_profile = (profile.model for profile in self._profiles)
        return self.target.model or next(filter(None, (*of_profile, *named, *of_keys)), None)

    @property
    def _profiles(self) -> tuple[Profile, ...]:
        """The profile in use, as each file has it; that whose values count is the first."""
        name = self.target.profile or ""
        return tuple(
            reading.profiles[name]
            for reading in reversed(self.readings)
            if reading.is_trusted and name in reading.profiles
        )

    def edit_of(self, server: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Callable[[str], str]:
        """Return an edit of the text of a file: `change` returns new values for keys of the entry as it is written."""
        keys = next(
            reading.servers[server].node.keys
            for reading in reversed(self.readings)
            if reading.is_trusted and server in reading.servers
        )
        path = tuple(str(key) for key in keys)

        def edit(text: str) -> str:
            entry = reduce(lambda value, key: value[key], path, read(text).value)
            for key, value in change(entry).items():
                text = set_value(text, (*path, key), value)
            return text

        return edit

    def place_of(self, server: str, *keys: str | int) -> tuple[str, int, int]:
        """Return file, line and column of a server's entry, or of a value in it."""
        for reading in reversed(self.readings):
            if reading.is_trusted and server in reading.servers:
                return reading.servers[server].place(*keys)
        return "", 0, 0
